"""Products that are timed on GPUs: their bundles, their check against float64 and their figures.

Input: sizes and how elements lie in memory.  Output: bundles, and rows of results beside cuBLAS.
What runs them is a `Runner`: gpu/kernels.py has one for WebGPU, cuda/kernels.py one for CUDA.
"""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, prod
from types import ModuleType

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from benchmarks.accuracy import relative_error, require_close
from benchmarks.gpu.cublas import Cublas
from benchmarks.gpu.gpu_clock import KEPT_MS, RUN_MS, WARM_MS
from benchmarks.models.row_kernels import attention_graph
from benchmarks.options import begins
from benchmarks.records import Row
from lab.paper_spaces import PAPER
from lab.subjects import BLOCK, Subject, alone, product, product_step, steps_of
from lab.subjects import weight_of as random_weight
from lab.timing import by_turns, spread
from tilewright.base.dtypes import F32, I8, I16, U8
from tilewright.base.numpy_scalars import Array
from tilewright.compiler import Options, compile_model
from tilewright.graph import ops
from tilewright.graph.node import Graph, Node, cast, contract, evaluate, graph_input, node
from tilewright.kernel.spec import Kernel
from tilewright.targets import target
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.product.strategies import F16_GEMM
from tilewright.targets.gpu.workgroup_limits import WorkgroupLimits
from tilewright.targets.protocol import Variant
from tilewright.targets.schedule import Schedule

#: Repeats of a plan in a run, at most.
MOST_REPEATS = 4096
#: How many times as much is tried where the clock shows nothing.
STEP = 16
#: Runs of a sample.
RUNS = 5
#: Products that share a copy of their rows as halves, as those of a layer do in models.
READERS = 16
#: Rows of a product that are compared with float64.
CHECKED = 64


@dataclass(frozen=True)
class Case:
    """A product; `layers`: that many weights one after the other, else one kernel repeated.

    bits:   of a weight's elements; those of 4 have a scale in f32 for each block of 32 rows; 8 is a
            product of bytes in i32
    halves: both operands come to the product as f16, if the adapter has it: by "matrices" of
            subgroups, which is the target's own choice, or by "tiles"; scales are f16, too
    rounded: the row comes to the product as bytes, if the adapter has packed dot products
    tf32:   both operands of f32 may be rounded to TF32
    With one kernel repeated its operands stay in the caches, for cuBLAS as for us.
    """

    name: str
    equation: str
    a: tuple[int, ...]
    b: tuple[int, ...]
    weight: bool = True
    layers: int = 0
    bits: int = 32
    halves: str = ""
    rounded: bool = False
    tf32: bool = False

    @property
    def tolerance(self) -> float:
        """Relative error of a product; of bytes there is none."""
        if self.rounded:
            return 1e-2
        return 1e-3 if self.halves or self.tf32 else 1e-5 if self.bits != 8 else 0.0

    @property
    def kind(self) -> str:
        """The type that cuBLAS computes it in."""
        return "i8" if self.bits == 8 else "f16" if self.halves else "tf32" if self.tf32 else "f32"

    @property
    def flops(self) -> int:
        """Of one product."""
        dims = dict(
            zip(self.equation.split("->")[0].replace(",", ""), self.a + self.b, strict=True)
        )
        return 2 * prod(dims.values())

    def subject(self, times: int, options: Options) -> Subject:
        if self.bits == 8:
            return bytes_product(self.a, self.b, options)
        if self.halves or self.tf32:
            (step,) = steps_of(self.graph())
            if self.halves == "tiles":
                options = replace(options, schedule=by_tiles)
            return alone(step, options, times)
        if self.layers or self.bits < 32:
            return product(
                self.equation, self.a, self.b, weight=True, times=self.layers or times,
                bits=self.bits, loose="i8" if self.rounded else "", options=options,
            )  # fmt: skip
        step = product_step(self.equation, self.a, self.b, weight=self.weight)
        return alone(step, options, times)

    def graph(self) -> Graph:
        """The product alone."""
        x = graph_input("a", self.a, U8 if self.bits == 8 else F32)
        if self.bits == 8:
            y = contract(self.equation, cast(x, I16), cast(weight_node(self), I16))
        else:
            y = contract(self.equation, x, weight_node(self))
        return Graph("product", (("a", x),), (("y", y),))

    def inputs(self, rng: np.random.Generator) -> list[Array]:
        """Random ones, in order."""
        shapes = (self.a,) if self.weight else (self.a, self.b)
        if self.bits == 8:
            return [rng.integers(0, 256, shape, np.uint8) for shape in shapes]
        return [rng.standard_normal(shape, np.float32) for shape in shapes]

    def wanted(self, inputs: Sequence[Array]) -> Array:
        """The first product in float64; of a matrix the first rows."""
        a, *rest = (each.astype(np.float64) for each in inputs)
        b = rest[0] if rest else weight_of(self)
        return (a[:CHECKED] if a.ndim == 2 else a) @ b

    @property
    def on_cublas(self) -> bool:
        """Whether cuBLAS computes the same."""
        return True

    @property
    def readers(self) -> int:
        """Products in a plan that read the same rows."""
        return READERS if self.halves else 1


@dataclass(frozen=True)
class Attention(Case):
    """Fused attention, of f32 or as `halves` says: queries `a`, keys and values `b`, [rows, heads *
    depth] each."""

    heads: int = 12

    @property
    def flops(self) -> int:
        """Of both products."""
        return 4 * self.a[0] * prod(self.b)

    def graph(self) -> Graph:
        return attention_graph(self.a[0], self.b[0], self.heads, self.a[1] // self.heads)

    def subject(self, times: int, options: Options) -> Subject:
        fused, *_ = steps_of(self.graph())
        return alone(fused, replace(options, halves=bool(self.halves)), times)

    def inputs(self, rng: np.random.Generator) -> list[Array]:
        return [rng.standard_normal(shape, np.float32) for shape in (self.a, self.b, self.b)]

    def wanted(self, inputs: Sequence[Array]) -> Array:
        q, k, v = (
            each.astype(np.float64).reshape(len(each), self.heads, -1).swapaxes(0, 1)
            for each in inputs
        )
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        made: Array = (weights / weights.sum(-1, keepdims=True)) @ v
        return made.swapaxes(0, 1)

    @property
    def on_cublas(self) -> bool:
        return False


def by_tiles(kernel: Kernel, variant: Variant) -> Schedule:
    """The first that is tried of tiles of halves."""
    device = CLASSES["webgpu"]
    if not F16_GEMM.suits(kernel):  # the copy of the rows as halves
        made: Schedule = target("wgsl").default(kernel, variant.name)
        return made
    assert isinstance(device.machine, WorkgroupLimits)
    return F16_GEMM.space(kernel, device.core, device.machine)[0][0]


def weight_node(case: Case) -> Node:
    if case.bits == 8:
        return node(ops.Weight("w", case.b, I8, lambda: weight_of(case)))
    loose = "i8" if case.rounded else "tf32" if case.tf32 else ""
    return random_weight(case.b, 0, case.bits, "f16" if case.halves else "", loose)


def bytes_product(a: Sequence[int], b: Sequence[int], options: Options) -> Subject:
    """u8 by i8 in i32, as ONNX has it."""
    weight = np.random.default_rng(0).integers(-128, 128, tuple(b), np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        "bytes",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, a)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, (a[0], b[1]))],
        [numpy_helper.from_array(weight, "b")],
    )
    opsets = [helper.make_opsetid("", 17)]
    compiled = compile_model(helper.make_model(graph, opset_imports=opsets, ir_version=9), options)
    return Subject("bytes", compiled.contents, 2 * a[0] * a[1] * b[1])


def matmul(
    name: str, m: int, k: int, n: int, layers: int = 0, bits: int = 32, halves: str = ""
) -> Case:
    return Case(name, "mk,kn->mn", (m, k), (k, n), layers=layers, bits=bits, halves=halves)


def of_paper(name: str) -> Case:
    """K0 to K3 of the nnJIT paper."""
    p = PAPER[name]
    if p.batch == 1:
        return matmul(name, p.m, p.k, p.n)
    return Case(name, "bmk,bkn->bmn", (p.batch, p.m, p.k), (p.batch, p.k, p.n), weight=False)


#: Queries and keys of a layer of Llama 2 7B.
WIDE = (512, 4096)

CASES = (
    *(of_paper(name) for name in PAPER),
    *(matmul(f"GEMM {n}", n, n, n) for n in (512, 1024, 2048, 4096, 8192)),
    matmul("GEMV 4096x4096", 1, 4096, 4096, layers=8),
    matmul("GEMV 4096x11008", 1, 4096, 11008, layers=3),
    matmul("GEMV 4096x11008, 16 bits", 1, 4096, 11008, layers=8, bits=16),
    matmul("GEMV 4096x11008, 4 bits", 1, 4096, 11008, layers=8, bits=4),
    matmul("GEMV 11008x4096, 4 bits", 1, 11008, 4096, layers=8, bits=4),
    *(
        replace(matmul(f"GEMV {k}x{n}, 4 bits, rows in bytes", 1, k, n, 8, 4), rounded=True)
        for k, n in ((4096, 11008), (11008, 4096))
    ),
    matmul("GEMM 512x4096x11008", 512, 4096, 11008),
    matmul("GEMM 512x4096x11008, 4 bits", 512, 4096, 11008, bits=4),
    *(
        matmul(f"{name}, {bits} bits, halves by {form}", *sizes, bits=bits, halves=form)
        for name, sizes, bits in (
            ("GEMM 4096", (4096, 4096, 4096), 16),
            ("GEMM 512x4096x11008", (512, 4096, 11008), 4),
        )
        for form in ("matrices", "tiles")
    ),
    matmul("GEMM 4096, bytes", 4096, 4096, 4096, bits=8),
    Attention("Attention, 512 rows", "", (512, 768), (512, 768)),
    Attention("Attention 512x32x128", "", WIDE, WIDE, heads=32),
    replace(
        Attention("Attention 512x32x128, halves by matrices", "", WIDE, WIDE, heads=32),
        halves="matrices",
    ),
    Attention("Attention, 1 row of 2048 keys", "", (1, 768), (2048, 768)),
)


class Runner(ABC):
    """A case that is loaded: its plan, repeated so often that a run takes about `RUN_MS`."""

    def __init__(self, case: Case, names: Sequence[str]) -> None:
        """names: of the inputs, then of the output that is compared"""
        self.layers, self.times, self.warm = (case.layers or 1) * case.readers, 1, 0.0
        self.error = self._check(case, names)
        # the clock is rounded, and a card that is not yet warm is slow: each time more is known
        for _ in range(4):
            once = statistics.median(self.many(RUNS))
            wanted = ceil(RUN_MS / once) if once else STEP * self.times
            self.times = min(MOST_REPEATS, wanted)

    @abstractmethod
    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """The outputs of one run."""

    @abstractmethod
    def many(self, runs: int) -> list[float]:
        """Milliseconds of the plan by the GPU's clock, in each of `runs` runs of `times` plans."""

    @abstractmethod
    def waited(self) -> float:
        """Milliseconds from the submission of one plan until its end is known."""

    @property
    @abstractmethod
    def features(self) -> Sequence[str]: ...

    def sample(self, runs: int) -> list[float]:
        """Milliseconds of one product by the GPU's clock."""
        spent, self.warm = 0.0, KEPT_MS if self.warm else WARM_MS
        while spent < self.warm:
            spent += self.times * sum(self.many(1))
        return [ms / self.layers for ms in self.many(runs)]

    def _check(self, case: Case, names: Sequence[str]) -> float:
        """Relative error of the first product against float64."""
        given = case.inputs(np.random.default_rng(1))
        got = self.run(dict(zip(names, given, strict=False)))[names[-1]]
        want = case.wanted(given)
        got = got.ravel()[: want.size].reshape(want.shape)
        return require_close(case.name, relative_error(got, want), case.tolerance)


def weight_of(case: Case) -> Array:
    """The first weight of a case."""
    if case.bits == 8:
        return np.random.default_rng(0).integers(-128, 128, case.b, np.int8)
    return evaluate([weight_node(case)])[0]


def measure(ours: Runner, torch: ModuleType | None, case: Case, rounds: int) -> Row:
    timers = {"": partial(ours.sample, RUNS)}
    if torch and case.on_cublas:
        times = ours.times * ours.layers
        theirs = Cublas(torch, case.a, case.b, case.layers or 1, case.kind, times)
        timers["cublas_"] = partial(theirs.sample, RUNS)
    found = by_turns(timers, rounds)
    row: Row = {
        "case": case.name, "shape": [*case.a, *case.b], "repeats": ours.times,
        "features": ours.features, "waited_ms": round(ours.waited(), 4),
    }  # fmt: skip
    for prefix, samples in found.items():
        row |= {prefix + key: value for key, value in figures(case, samples).items()}
    if "cublas_" in found:
        ours_ms, cublas_ms = (statistics.median(found[name]) for name in ("", "cublas_"))
        row["share_of_cublas"] = round(cublas_ms / ours_ms, 4)
    return row | {"relative_error": ours.error}


def figures(case: Case, times: Sequence[float]) -> Row:
    middle = statistics.median(times)
    found: Row = {"ms": round(middle, 6), "tflops": round(case.flops / middle / 1e9, 3)}
    if case.layers:
        scales = 32 / BLOCK if case.bits == 4 else 0
        found["gb_per_s"] = round((case.bits + scales) / 8 * prod(case.b) / middle / 1e6, 1)
    return found | {"spread": round(spread(times), 4), "n": len(times)}


def chosen_cases(only: Iterable[str] | None, cases: Iterable[Case] = CASES) -> list[Case]:
    return [c for c in cases if begins(c.name, only)]
