"""Products by matrix units of subgroups (gpu/matrix/schedule.py): any schedule, the exact sums.

Layers of random bytes, weights and epilogues (helpers/integers.py); the graph is the judge.  In the
interpreter the first thread of a subgroup stands for all of it; it finds races between subgroups.
Those of halves are in test_gpu_halves.py.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from helpers.gpu import ByGroups, random_matrices, some_for_each_unit
from helpers.graphs import results, run_steps, steps_of
from helpers.integers import quantised_graph
from helpers.seeds import seeds

from tilewright.graph.passes import optimise
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.matrix.schedule import MatrixGemmSchedule
from tilewright.targets.gpu.matrix.strategies import MATRIX_GEMM
from tilewright.targets.gpu.workgroup_limits import (
    MATRIX_FEATURE,
    PACKED_DOT_FEATURE,
    SUBGROUPS_FEATURE,
)
from tilewright.targets.protocol import PACKING
from tilewright.targets.wgsl.target import Wgsl
from tilewright.tuning.candidates import space_of

WGSL = Wgsl()


def products(seed: int) -> list[Kernel]:
    graph, _ = quantised_graph(seed)
    return [s.kernel for s in steps_of(optimise(graph, PACKING)) if MATRIX_GEMM.suits(s.kernel)]


LAYERS = [seed for seed in range(40) if products(seed)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("seed", seeds(2, nightly=15))
def test_any_schedule_gives_the_same_sums(layer: int, seed: int) -> None:
    graph, values = quantised_graph(layer)
    rng = Random(f"matrices {layer} {seed}")
    execute = ByGroups(MATRIX_GEMM, lambda _: random_matrices(rng))
    packed = optimise(graph, PACKING)
    got = run_steps(packed, steps_of(packed), values, execute)
    assert execute.products
    for one, wanted in zip(got, results(graph, values), strict=True):
        np.testing.assert_array_equal(one, wanted)


def test_a_kernel_needs_its_unit() -> None:
    (kernel,) = products(LAYERS[0])
    schedule = MatrixGemmSchedule("i8-i32", 16, 8, 32, 32, 1, 1, 1, 1)
    code = WGSL.code(kernel, schedule)
    sizes = {"subgroups-32", "subgroup-matrix-i8-i32-16x8x32"}
    assert code.needs == {MATRIX_FEATURE, SUBGROUPS_FEATURE, PACKED_DOT_FEATURE} | sizes


def test_the_space_has_some_for_each_unit() -> None:
    (kernel,) = products(12)
    space = space_of(kernel, CLASSES["webgpu"])
    some_for_each_unit(space, kernel, MatrixGemmSchedule, "i8-i32")
    eight = {
        MATRIX_FEATURE,
        SUBGROUPS_FEATURE,
        PACKED_DOT_FEATURE,
        "subgroups-8",
        "subgroup-matrix-i8-i32-8x8x8",
    }
    able = [space.schedules[n] for n in space.trial_on(eight)]
    assert {s.m for s in able if isinstance(s, MatrixGemmSchedule)} == {8}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"types": "i8-i8"}, "types is one of"),
        ({"m": 6}, "m and n are multiples"),
        ({"rows": 8, "columns": 4}, "at most 128 sums"),
        ({"down": 4, "along": 4}, "at most 256 threads"),
        ({"rows": 4, "columns": 4, "r1": 8}, "shares at most"),
    ],
)
def test_objections(change: dict[str, object], words: str) -> None:
    (kernel,) = products(LAYERS[0])
    assert words in WGSL.objection(kernel, replace(MatrixGemmSchedule(), **change))  # type: ignore[arg-type]
