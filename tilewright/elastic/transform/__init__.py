"""Foreign CUDA source, made elastic: docs/elastic-transform.md.

* `cuda_source.py` and `definitions.py` parse the text.
* `eligibility.py`, `spin_loops.py`, `ptx.py` and `flow.py` find reasons to refuse a kernel.
* `copies.py`, `forms.py` and `padding.py` write the new text.
* `cpu_trial.py` and `gpu_trial.py` try it.
"""

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
