"""The cases of the comparison on GPUs: nnJIT's kernels, larger products, whole models.

Input: nothing.  Output: `CASES`, and a small form of each, to see whether all works where there is
no GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .cases import KERNELS, Case, Matmul, Model

#: Relative errors: sums of halves in halves, and activations in bytes, as engines choose.
_HALVES, _BYTES, _MODEL = 3e-2, 3e-2, 1e-3
_SIZES = (1024, 2048, 4096)
#: The largest sizes of a small form.
_SMALL = 64, 3

_PRODUCTS = (
    *(Case(f"gemm_{n}", "gemm", Matmul(n, n, n)) for n in _SIZES),
    *(Case(f"gemm_{n}_f16", "gemm", Matmul(n, n, n, halves=True), _HALVES) for n in _SIZES),
    Case("gemv_4096x11008", "gemm", Matmul(1, 4096, 11008)),
    *(Case(name, "bits4", Model(name), _BYTES) for name in ("bits4_1", "bits4_128")),
)
_NETS = ("roberta_base", "bart_base", "gpt2", "t5_small", "resnet50", "mobilenet_v2")

CASES = (*KERNELS, *_PRODUCTS, *(Case(name, "model", Model(name), _MODEL) for name in _NETS))
GROUPS = tuple(dict.fromkeys(case.group for case in CASES))


def chosen(names: Sequence[str]) -> list[Case]:
    """Cases by name or group; all without any."""
    known = {c.name for c in CASES} | set(GROUPS)
    if unknown := sorted(set(names) - known):
        raise SystemExit(f"Unknown: {', '.join(unknown)}. Known are {', '.join(sorted(known))}")
    return [c for c in CASES if not names or c.name in names or c.group in names]


def small(case: Case) -> Case:
    """The same, little enough for a software adapter; it has a name of its own."""
    work, name = case.work, f"{case.name}-small"
    if isinstance(work, Model):
        return replace(case, name=name, work=Model(name))
    assert isinstance(work, Matmul)
    most, batch = _SMALL
    sizes = {key: min(getattr(work, key), most) for key in ("m", "k", "n")}
    return replace(case, name=name, work=replace(work, batch=min(work.batch, batch), **sizes))
