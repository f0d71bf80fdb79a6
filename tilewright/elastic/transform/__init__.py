"""Foreign CUDA source, made elastic: docs/elastic-transform.md.

* `tokens.py`, `cuda_source.py` and `definitions.py` parse the text of one source.
* `source_group.py`, `device_marks.py` and `modules.py` join a source and its headers: what words
  mean, which functions are device code, and which call which.
* `word_index.py` and `pasting.py` find what a kernel leads to, `identity.py` what of it reads the
  block's number.
* `eligibility.py` finds reasons to refuse a kernel in its own text, with `spin_loops.py`, `ptx.py`
  and `flow.py`.  `refusals.py` finds them elsewhere, with `unit_refusals.py`, `unknown_code.py`
  and `proof.py`.
* `copies.py`, `forms.py` and `padding.py` write the new text; `transform.py` calls all of these.
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
