"""Foreign CUDA source, made elastic: docs/elastic-transform.md."""

from tilewright.elastic.transform.transform import (
    KernelReport,
    Options,
    Transformed,
    transform,
)

__all__ = ["KernelReport", "Options", "Transformed", "transform"]
