"""The measured cases: kernels, sweeps and models, as a table of plain data.

Input: nothing.  Output: `CASES`.  A kernel case has its shapes, its floating point operations and
the least bytes that it must move; files.py makes its files, the pages in page/ run it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.paper_spaces import PAPER

Shape = tuple[int, ...]
F32_BYTES = 4


@dataclass(frozen=True)
class Matmul:
    """x[batch, m, k] times w[batch, k, n]; without a batch, w is a constant as in real layers.

    halves: all of it in f16
    """

    m: int
    k: int
    n: int
    batch: int = 0
    halves: bool = False

    op = "matmul"

    @property
    def flops(self) -> int:
        return 2 * max(self.batch, 1) * self.m * self.k * self.n

    @property
    def x(self) -> Shape:
        return (self.batch, self.m, self.k) if self.batch else (self.m, self.k)

    @property
    def w(self) -> Shape:
        return (self.batch, self.k, self.n) if self.batch else (self.k, self.n)

    @property
    def y(self) -> Shape:
        return (*self.x[:-1], self.n)


@dataclass(frozen=True)
class Conv:
    """x[1, channels, size, size] with `filters` square filters and a bias, both constant."""

    channels: int
    size: int
    filters: int
    kernel: int
    stride: int = 1
    pad: int = 0
    groups: int = 1

    op = "conv"

    @property
    def out(self) -> int:
        return (self.size + 2 * self.pad - self.kernel) // self.stride + 1

    @property
    def flops(self) -> int:
        depth = self.channels // self.groups * self.kernel**2
        return 2 * self.out**2 * self.filters * depth

    @property
    def x(self) -> Shape:
        return (1, self.channels, self.size, self.size)

    @property
    def w(self) -> Shape:
        return (self.filters, self.channels // self.groups, self.kernel, self.kernel)

    @property
    def y(self) -> Shape:
        return (1, self.filters, self.out, self.out)


@dataclass(frozen=True)
class Add:
    """x + w over `count` elements, both inputs: nothing but memory traffic."""

    count: int

    op = "add"

    @property
    def flops(self) -> int:
        return self.count

    @property
    def x(self) -> Shape:
        return (self.count,)

    w = y = x


@dataclass(frozen=True)
class Attention:
    """softmax(q kᵀ / √depth) v for each head; q is [1, rows, heads * depth], as k and v of `keys`.

    halves: all of it in f16
    node:   onnxruntime-web gets it as one node
    """

    rows: int
    keys: int
    heads: int
    depth: int
    halves: bool = False
    node: bool = False

    op = "attention"

    @property
    def flops(self) -> int:
        return 4 * self.rows * self.keys * self.heads * self.depth

    @property
    def x(self) -> Shape:
        return (1, self.rows, self.heads * self.depth)

    @property
    def w(self) -> Shape:
        """Of the keys, and of the values."""
        return (1, self.keys, self.heads * self.depth)

    @property
    def y(self) -> Shape:
        return self.x


@dataclass(frozen=True)
class Model:
    """An ONNX file `stem`[-exporter].onnx; `dims` are sizes of its named dimensions.

    Dimensions that the file names otherwise get `length`, the sequence length.
    """

    stem: str
    length: int = 384

    op = "model"


Kernel = Matmul | Conv | Add | Attention
Work = Kernel | Model


@dataclass(frozen=True)
class Case:
    """One thing to measure.

    tolerance:   largest relative error of the output's norm
    requantised: the same for an engine whose file comes from another quantiser
    """

    name: str
    group: str
    work: Work
    tolerance: float = 1e-5
    requantised: float = 0.0

    @property
    def bytes(self) -> int:
        """The least traffic of a kernel: every operand read once, the result written once."""
        if isinstance(self.work, Model):
            return 0
        work = self.work
        more = (work.w,) if isinstance(work, Attention) else ()
        return F32_BYTES * sum(_count(s) for s in (work.x, work.w, *more, work.y))

    @property
    def flops(self) -> int:
        """Of a kernel; models have theirs counted by the compiler."""
        return 0 if isinstance(self.work, Model) else self.work.flops


def _count(shape: Shape) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


#: Measured in every run, for the roofline: 192 MiB of traffic, beyond every cache.
STREAM = Case("stream", "machine", Add(1 << 24), 0.0)
PEAK = "peak"

#: Of the nnJIT paper.
KERNELS = tuple(
    Case(name.lower(), "kernel", Matmul(p.m, p.k, p.n, p.batch if p.batch > 1 else 0))
    for name, p in PAPER.items()
)

_GEMMS: Sequence[tuple[int, int, int]] = (
    *((n, n, n) for n in (16, 32, 64, 128, 256, 512, 1024)),
    # one row: GEMV
    (1, 768, 768), (1, 768, 3072), (1, 3072, 768), (1, 2048, 1000),
    # few rows, few columns, little depth
    (4, 768, 768), (16, 1024, 16), (1024, 64, 16), (1024, 16, 1024), (16, 4096, 16),
    # sizes that are multiples of nothing
    (7, 13, 11), (33, 65, 129), (100, 200, 300), (197, 768, 768), (385, 769, 767), (49, 1024, 513),
)  # fmt: skip

_CONVS: Sequence[tuple[str, Conv]] = (
    ("resnet50_stem", Conv(3, 224, 64, 7, 2, 3)),
    ("resnet50_1x1_up56", Conv(64, 56, 256, 1)),
    ("resnet50_1x1_down56", Conv(256, 56, 64, 1)),
    ("resnet50_3x3_56", Conv(64, 56, 64, 3, 1, 1)),
    ("resnet50_3x3_s2_56", Conv(128, 56, 128, 3, 2, 1)),
    ("resnet50_3x3_14", Conv(256, 14, 256, 3, 1, 1)),
    ("resnet50_1x1_s2_14", Conv(1024, 14, 2048, 1, 2)),
    ("resnet50_3x3_7", Conv(512, 7, 512, 3, 1, 1)),
    ("mobilenet_stem", Conv(3, 224, 32, 3, 2, 1)),
    ("mobilenet_dw_112", Conv(32, 112, 32, 3, 1, 1, 32)),
    ("mobilenet_pw_112", Conv(16, 112, 96, 1)),
    ("mobilenet_dw_s2_112", Conv(96, 112, 96, 3, 2, 1, 96)),
    ("mobilenet_pw_56", Conv(24, 56, 144, 1)),
    ("mobilenet_dw_14", Conv(384, 14, 384, 3, 1, 1, 384)),
    ("mobilenet_pw_14", Conv(96, 14, 576, 1)),
    ("mobilenet_dw_7", Conv(960, 7, 960, 3, 1, 1, 960)),
    ("mobilenet_pw_7", Conv(320, 7, 1280, 1)),
    ("squeezenet_stem", Conv(3, 224, 64, 3, 2)),
    ("squeezenet_squeeze_55", Conv(128, 55, 16, 1)),
    ("squeezenet_expand_55", Conv(16, 55, 64, 3, 1, 1)),
    ("squeezenet_expand_13", Conv(64, 13, 256, 3, 1, 1)),
    ("alexnet_11x11_s4", Conv(3, 224, 64, 11, 4, 2)),
    ("alexnet_5x5_27", Conv(64, 27, 192, 5, 1, 2)),
    ("alexnet_3x3_13", Conv(192, 13, 384, 3, 1, 1)),
)

#: 8-bit models: engines round at different places, so that single steps of the grid differ; and
#: with random weights each quantiser's model is some 0.2 from the answer in floats.
_INT8, _REQUANTISED = 0.1, 0.4
_MODELS = (
    Case("minilm", "model", Model("minilm", 128), 1e-4),
    Case("roberta_base", "model", Model("roberta-base"), 1e-4),
    Case("bart_encoder", "model", Model("bart-base-encoder"), 1e-4),
    Case("bart_decoder", "model", Model("bart-base-decoder"), 1e-4),
    Case("gpt2", "model", Model("gpt2"), 1e-4),
    Case("t5_encoder", "model", Model("t5-small-encoder"), 1e-4),
    Case("t5_decoder", "model", Model("t5-small-decoder"), 1e-4),
    Case("resnet18", "model", Model("resnet18"), 1e-4),
    Case("resnet50", "model", Model("resnet50"), 1e-4),
    Case("mobilenet_v2", "model", Model("mobilenet_v2"), 1e-4),
    Case("squeezenet", "model", Model("squeezenet"), 1e-4),
    Case("alexnet", "model", Model("alexnet"), 1e-4),
    Case("gru", "model", Model("gru"), 1e-4),
    Case("lstm", "model", Model("lstm"), 1e-4),
    Case("mobilenet_v2_int8", "model", Model("mobilenet_v2_int8"), _INT8, _REQUANTISED),
)

CASES: tuple[Case, ...] = (
    *KERNELS,
    *(Case(f"gemm_{m}x{k}x{n}", "gemm", Matmul(m, k, n)) for m, k, n in _GEMMS),
    *(Case(f"conv_{name}", "conv", conv) for name, conv in _CONVS),
    *_MODELS,
)


def groups(cases: Sequence[Case]) -> tuple[str, ...]:
    """The names of their groups, in order."""
    return tuple(dict.fromkeys(case.group for case in cases))


#: What --quick measures.
QUICK = ("k0", "k3", "gemm_64x64x64", "conv_mobilenet_dw_112", "minilm", "squeezenet")


def chosen(cases: Sequence[Case], names: Sequence[str]) -> list[Case]:
    """The cases with these names or groups; all without any."""
    known = {case.name for case in cases} | {case.group for case in cases}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"Unknown: {', '.join(unknown)}. Known are {', '.join(sorted(known))}")
    return [c for c in cases if not names or c.name in names or c.group in names]
