"""Every layout of a matrix product under random schedules: the same sums, each written once.

Whole numbers, so that any order of the reduction gives the same bits.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from helpers.graphs import default_of, interpreted, results, run_steps, steps_of
from helpers.loop_check import check_loops
from helpers.schedules import random_schedule
from helpers.seeds import seeds

from lab.subjects import matmul_step
from tilewright.base.dtypes import F32, I8, U8
from tilewright.graph import ops
from tilewright.graph.node import Graph, Node, contract, graph_input, node, pad
from tilewright.graph.passes import optimise
from tilewright.kernel.form import Contraction, IntegerContraction, classify, product
from tilewright.kernel.layout import Blocks, Groups, Packing, Panels, Rows, Taps
from tilewright.kernel.serialise import kernel_from_data, kernel_to_data
from tilewright.kernel.spec import Kernel
from tilewright.targets.protocol import PACKING
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.contraction import ContractionSchedule
from tilewright.targets.simd.inner_product import InnerProductSchedule
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.strategies import default_schedule, lower

#: (equation, shapes, whether the second operand is a weight)
PRODUCTS = {
    "weight": ("mk,kn->mn", (13, 37), (37, 21), True),
    "weight-few-columns": ("mk,kn->mn", (13, 37), (37, 3), True),
    "weight-one-column": ("mk,kn->mn", (13, 37), (37, 1), True),
    "inputs": ("bmk,bkn->bmn", (2, 9, 37), (2, 37, 14), False),
    "transposed-a": ("km,kn->mn", (37, 9), (37, 14), False),
    "transposed-b": ("bmk,bnk->bmn", (2, 9, 37), (2, 14, 37), False),
    "two-sums": ("mhk,hkn->mn", (7, 5, 9), (5, 9, 13), True),
    "strided-sums": ("hmk,nhk->mn", (5, 7, 20), (13, 5, 20), False),
}


def made(name: str) -> tuple[Graph, dict[str, np.ndarray]]:
    equation, a, b, is_weight = PRODUCTS[name]
    rng = np.random.default_rng(0)
    values = {"a": rng.integers(-3, 4, a).astype("f4"), "b": rng.integers(-3, 4, b).astype("f4")}
    x = graph_input("a", a, F32)
    y: Node = graph_input("b", b, F32)
    if is_weight:
        weight = values.pop("b")
        y = node(ops.Weight("b", b, F32, lambda: weight))
    inputs = (("a", x),) if is_weight else (("a", x), ("b", y))
    return Graph(name, inputs, (("y", contract(equation, x, y)),)), values


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("seed", seeds(12, nightly=48))
def test_any_schedule_gives_the_same_product(name: str, seed: int) -> None:
    graph, values = made(name)
    (want,) = results(graph, values)
    packed = optimise(graph, PACKING)
    rng = Random(f"{name}{seed}")

    def pick(kernel: Kernel) -> Schedule:
        assert product(kernel) is not None, "no register tile suits"
        schedule = random_schedule(rng, kernel)
        check_loops(lower(kernel, schedule))
        return schedule

    (got,) = run_steps(packed, steps_of(packed), values, interpreted(pick))
    np.testing.assert_array_equal(got, want)


def the_kernel(name: str) -> Kernel:
    (step,) = steps_of(optimise(made(name)[0], PACKING))
    return step.kernel


@pytest.mark.parametrize("name", ["weight-few-columns", "weight-one-column"])
def test_few_columns_of_a_weight_run_along_the_reduction(name: str) -> None:
    assert isinstance(default_schedule(the_kernel(name), Machine()), InnerProductSchedule)


def test_columns_far_apart_are_copied_first() -> None:
    assert default_schedule(the_kernel("transposed-b"), Machine()).stage
    assert not default_schedule(the_kernel("inputs"), Machine()).stage  # it fits L1 as it is
    assert default_schedule(the_kernel("inputs"), Machine(l1=1024)).stage is False  # 2 uses only


def test_a_long_reduction_is_split_so_that_its_rows_stay_in_the_cache() -> None:
    kernel = the_kernel("weight")
    assert default_schedule(kernel, Machine()).r1 == 0
    small = default_schedule(kernel, Machine(l1=1024))
    assert 0 < 4 * small.r1 * small.x0 <= 1024


def test_sums_wait_in_scratch_between_blocks_and_columns_are_staged() -> None:
    kernel = the_kernel("inputs")
    fn = lower(kernel, ContractionSchedule(x0=3, y0=8, r0=4, r1=8, x1=6, y1=16, stage=True))
    partial, staged = (s.size for s in fn.scratch)
    assert partial == 2 * 2 * 3 * 8  # two by two register tiles of 3 rows and 8 columns
    # 37 steps: 9 passes of 4 in 5 pieces of 2 passes; the last piece also takes the rest
    assert staged == 2 * (2 * 4 + 1) * 8


@pytest.mark.parametrize("shape", [(2, 5), (3, 12), (2, 16)], ids=str)
def test_columns_of_bytes_in_two_axes_that_do_not_merge(shape: tuple[int, int]) -> None:
    """Padding keeps them apart: columns of the inner axis begin anywhere in a panel."""
    rng = np.random.default_rng(0)
    values = {"x": rng.integers(0, 256, (5, 16), np.uint8)}
    weight = rng.integers(-60, 61, (16, *shape), np.int8)
    x = graph_input("x", (5, 16), U8)
    w = node(ops.Weight("w", weight.shape, I8, lambda: weight))
    y = pad(contract("mk,khn->mhn", x, w), (0, 0, 1), (0, 0, 2))
    graph = Graph("heads", (("x", x),), (("y", y),))
    packed = optimise(graph, PACKING)
    (got,) = run_steps(packed, steps_of(packed), values, interpreted(default_of))
    np.testing.assert_array_equal(got, results(graph, values)[0])


OTHERS = Packing(floats=Panels(16), integers=Groups(4, 16), taps=Taps(4), blocks=Blocks(16), few=2)


@pytest.mark.parametrize("packing", [PACKING, OTHERS], ids=["usual", "wide"])
@pytest.mark.parametrize("integers", [False, True])
def test_weights_are_packed_as_the_target_asks(packing: Packing, integers: bool) -> None:
    """Buffers keep the layout by name; what is computed does not depend on it."""
    rng = np.random.default_rng(0)
    a, b = (U8, I8) if integers else (F32, F32)
    values = {"x": rng.integers(0, 9, (7, 16)).astype(a.numpy)}
    weight = rng.integers(-9, 9, (16, 37)).astype(b.numpy)
    x = graph_input("x", (7, 16), a)
    w = node(ops.Weight("w", weight.shape, b, lambda: weight))
    graph = Graph("product", (("x", x),), (("y", contract("mk,kn->mn", x, w)),))
    packed = optimise(graph, packing)
    (step,) = steps_of(packed)
    wanted = packing.integers if integers else packing.floats
    assert [b.layout for b in step.kernel.buffers] == [Rows(), Rows(), wanted]
    assert kernel_from_data(kernel_to_data(step.kernel)) == step.kernel
    assert isinstance(classify(step.kernel), IntegerContraction if integers else Contraction)
    (got,) = run_steps(packed, (step,), values, interpreted(default_of))
    np.testing.assert_array_equal(got, results(graph, values)[0])


def test_a_panel_is_told_only_where_there_are_several() -> None:
    for columns, panel in ((8, 1), (9, 8), (64, 8)):
        roles = product(matmul_step(4, 16, columns).kernel)
        assert roles is not None
        assert roles.panel == panel
