"""Products by groups of threads: random schedules, and steps that run as these schedules say.

Input: a strategy of targets/gpu, a choice of schedules.  Output: what `run_steps` calls for each.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from tilewright.graph.node import Graph
from tilewright.graph.passes import optimise
from tilewright.hosts.cuda_on_cpu import Kernels
from tilewright.hosts.reference import run_kernel
from tilewright.kernel.layout import Packing
from tilewright.kernel.spec import Kernel
from tilewright.targets.cuda.emit import dynamic_of
from tilewright.targets.cuda.prelude import prelude
from tilewright.targets.gpu.matrix.schedule import MatrixGemmSchedule
from tilewright.targets.gpu.product.schedule import (
    FewRowsSchedule,
    RegisterGemmSchedule,
    SubgroupGemmSchedule,
)
from tilewright.targets.gpu.workgroup_limits import FEATURES, MATRIX_UNITS
from tilewright.targets.gpu.workgroup_strategy import AnyStrategy
from tilewright.targets.protocol import PACKING, Code
from tilewright.targets.schedule import Schedule
from tilewright.targets.wgsl.target import Wgsl
from tilewright.tuning.candidates import Space

from .graphs import interpret, run_steps, steps_of
from .loop_check import check_loops


class ByGroups:
    """Runs what suits a strategy as its loops say, all else as specified.

    products: how many kernels suited it
    """

    def __init__(self, strategy: AnyStrategy, pick: Callable[[Kernel], Schedule]) -> None:
        self.strategy, self.pick, self.products = strategy, pick, 0

    def __call__(self, kernel: Kernel, buffers: list[np.ndarray]) -> None:
        if not self.strategy.suits(kernel):
            run_kernel(kernel, buffers)
            return
        self.products += 1
        schedule = self.pick(kernel)
        assert not schedule.objection(kernel)
        fn = self.strategy.lower_any(kernel, schedule)
        check_loops(fn)
        interpret(fn, buffers)


def by_groups(
    strategy: AnyStrategy,
    graph: Graph,
    values: dict[str, np.ndarray],
    pick: Callable[[Kernel], Schedule],
    packing: Packing = PACKING,
) -> np.ndarray:
    """What a graph gives whose only kernel that suits the strategy runs under a schedule."""
    packed, execute = optimise(graph, packing), ByGroups(strategy, pick)
    (got,) = run_steps(packed, steps_of(packed), values, execute)
    assert execute.products == 1
    return got


def some_for_each_unit(space: Space, kernel: Kernel, kind: type[Schedule], types: str) -> None:
    """Of a kind of schedules a space has some for each unit, all of which WGSL can have."""
    wgsl = Wgsl()
    found: list[Any] = [s for s in space.schedules if isinstance(s, kind)]
    assert {(s.m, s.n, s.k, s.width) for s in found} == set(MATRIX_UNITS[types])
    for schedule in found:
        assert schedule.features <= FEATURES
        assert not wgsl.objection(kernel, schedule)
        assert wgsl.schedule(schedule.to_json()) == schedule


def on_cpu(code: Code, buffers: list[np.ndarray]) -> None:
    """Runs CUDA's text by the system's compiler of C++; vectors may reach beyond an end."""
    kinds = [np.float16 if b.as_f16 else b.dtype.numpy for b in code.kernel.buffers]
    arrays = [np.zeros(len(x) + 16, kind) for x, kind in zip(buffers, kinds, strict=True)]
    for array, given in zip(arrays, buffers, strict=True):
        array[: given.size] = given
    tiles, trap = code.loops.tiles, np.zeros(1, np.uint32)
    text = "#define CUDA_ON_CPU\n" + prelude() + str(code.body)
    shared = dynamic_of(code.loops)
    args = [*arrays, np.int32(tiles), trap]
    Kernels(text, {"k": "k"}).run("k", [tiles], [code.loops.threads], args, shared=shared)
    buffers[0][:] = arrays[0][: buffers[0].size]


def random_tile(rng: Random, least: int = 4) -> RegisterGemmSchedule:
    """A small tile; its blocks have at least and whole multiples of `least` steps."""
    x0, y0, r0 = rng.choice([4, 8]), rng.choice([4, 8]), rng.choice([1, 2, 4])
    slices = rng.choice([1, 1, 2, 4])
    return RegisterGemmSchedule(
        x0, y0, r0, x0 * rng.choice([1, 2, 3]), y0 * rng.choice([1, 2, 3]),
        max(least, r0 * slices) * rng.choice([1, 2]), rng.choice([1, 2, 4]), rng.random() < 0.5,
        rng.random() < 0.5, slices,
    )  # fmt: skip


def random_few_rows(rng: Random) -> FewRowsSchedule:
    slices = rng.choice([1, 2, 8, 16])
    return FewRowsSchedule(rng.choice([1, 2, 3]), rng.choice([4, 8, 12, 32]), slices)


def random_shuffles(rng: Random, least: int = 1) -> SubgroupGemmSchedule:
    """A small tile by small subgroups; `least` steps of the columns at least are read together."""
    width, x0, y0 = rng.choice([4, 8]), rng.choice([1, 3, 4]), rng.choice([4, 8])
    r0 = rng.choice([r for r in (1, 2, 4, 8) if r >= least])
    return SubgroupGemmSchedule(
        max(width, r0), x0, y0, r0, x0 * rng.choice([1, 2, 3]),
        y0 * max(width, r0) * rng.choice([1, 1, 2]), rng.choice([1, 2, 4]), rng.random() < 0.5,
    )  # fmt: skip


def random_matrices(rng: Random, types: str = "i8-i32") -> MatrixGemmSchedule:
    """Any schedule by matrix units of these types."""
    m, n, k, width = rng.choice([*MATRIX_UNITS[types], (8, 8, 8, 32)])
    *one_or_two, r1 = (rng.choice([1, 2]) for _ in range(5))
    slices = rng.choice([1, 1, 2])
    return MatrixGemmSchedule(
        types, m, n, k, width, *one_or_two, r1 * slices, rng.choice([1, 4]), rng.random() < 0.5,
        rng.random() < 0.5, slices,
    )  # fmt: skip
