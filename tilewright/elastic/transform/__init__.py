"""Foreign CUDA source, made elastic: docs/elastic-transform.md."""

from tilewright.elastic.transform.cuda_source import KEPT, text_of
from tilewright.elastic.transform.transform import (
    ElasticOptions,
    KernelReport,
    Transformed,
    is_ours,
    transform,
)

__all__ = [
    "KEPT",
    "ElasticOptions",
    "KernelReport",
    "Transformed",
    "is_ours",
    "text_of",
    "transform",
]
