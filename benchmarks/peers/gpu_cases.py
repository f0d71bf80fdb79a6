"""The cases of the comparison on GPUs: nnJIT's kernels, larger products, attention, whole models.

Input: nothing.  Output: `CASES`, and a small form of each, to see whether all works where there is
no GPU.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.peers.cases import KERNELS, Attention, Case, Matmul, Model

#: Relative errors: sums of halves in halves, and activations in bytes, as engines choose.
_HALVES, _BYTES, _MODEL = 3e-2, 3e-2, 1e-3
#: Engines compute exponentials each in their own way.
_SOFTMAX = 1e-4
_SIZES = (1024, 2048, 4096, 8192)
#: One row by the weights of Llama 2 7B: k, n.
_ROWS = ((4096, 4096), (4096, 11008), (11008, 4096))
#: Names of models.py: up and down by Llama's hidden layers, and its square projections; rows.
BITS4 = ("bits4_1", "bits4_128", "bits4_512", "bits4_square_1", "bits4_square_512")
#: The largest sizes of a small form, by the name of the size.
_SMALL = {"m": 64, "k": 64, "n": 64, "batch": 3, "rows": 32, "keys": 32, "heads": 2, "depth": 32}

_PRODUCTS = (
    *(Case(f"gemm_{n}", "gemm", Matmul(n, n, n)) for n in _SIZES),
    *(Case(f"gemm_{n}_f16", "gemm", Matmul(n, n, n, halves=True), _HALVES) for n in _SIZES),
    *(Case(f"gemv_{k}x{n}", "gemm", Matmul(1, k, n)) for k, n in _ROWS),
    *(Case(f"gemv_{k}x{n}_f16", "gemm", Matmul(1, k, n, halves=True), _HALVES) for k, n in _ROWS),
    *(Case(name, "bits4", Model(name), _BYTES) for name in BITS4),
)
_ATTENTION = tuple(
    Case(
        f"attention_{name}{'_node' if node else ''}",
        "attention",
        replace(work, node=node),
        _HALVES if work.halves else _SOFTMAX,
    )
    for name, work in (
        ("512x12x64", Attention(512, 512, 12, 64)),
        ("512x32x128", Attention(512, 512, 32, 128)),
        ("512x32x128_f16", Attention(512, 512, 32, 128, halves=True)),
        # a token that follows 2048
        ("1x32x128", Attention(1, 2048, 32, 128)),
    )
    for node in (False, True)
)
NETS = ("roberta_base", "bart_base", "gpt2", "t5_small", "resnet50", "mobilenet_v2", "unet")

CASES = (
    *KERNELS,
    *_PRODUCTS,
    *_ATTENTION,
    *(Case(name, "model", Model(name), _MODEL) for name in NETS),
)


def small(case: Case) -> Case:
    """The same, little enough for a software adapter; it has a name of its own."""
    work, name = case.work, f"{case.name}-small"
    if isinstance(work, Model):
        return replace(case, name=name, work=Model(name))
    assert isinstance(work, Matmul | Attention)
    sizes = {key: min(size, _SMALL[key]) for key, size in vars(work).items() if key in _SMALL}
    return replace(case, name=name, work=replace(work, **sizes))
