"""Every kernel has one form, found from its specification alone."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from helpers.attention import bert
from helpers.integers import quantised_graph
from helpers.kernels import ANCHORS, random_case
from helpers.seeds import seeds
from helpers.steps import compiled, steps_for

from lab.subjects import matmul_step
from tilewright.base.dtypes import F32, I32, I64, DType
from tilewright.graph import ops
from tilewright.graph.node import Node, elementwise, graph_input, node, reduce, transpose, unfold
from tilewright.kernel.collapse import collapse
from tilewright.kernel.expr import Acc, Load
from tilewright.kernel.form import (
    Attention,
    Contraction,
    Form,
    IntegerContraction,
    IntegerWindows,
    Map,
    Reduction,
    RowWise,
    TopK,
    Transposition,
    Windows,
    classify,
    form_as,
    product,
)
from tilewright.kernel.index import Var, index
from tilewright.kernel.layout import (
    ROWS,
    Groups,
    Layout,
    Panels,
    Taps,
    layout_from_data,
    layout_to_data,
)
from tilewright.kernel.serialise import kernel_from_data, kernel_to_data
from tilewright.kernel.spec import Buffer, Kernel, Stage
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.strategies import TABLE, default_schedule, strategy_of


def x(*shape: int) -> Node:
    return graph_input("x", shape, F32)


def depthwise() -> Node:
    w = node(ops.Weight("w", (1, 3, 4), F32, lambda: np.ones((1, 3, 4), "f4")))
    taps = transpose(unfold(x(9, 4), 0, 3, 1), (0, 2, 1))
    return reduce("sum", elementwise("mul", taps, w), [1])


MADE: dict[str, tuple[Node, type[Form]]] = {
    "elementwise": (elementwise("exp", x(5, 7)), Map),
    "turned": (elementwise("exp", transpose(x(5, 7), (1, 0))), Transposition),
    "rows": (reduce("sum", x(5, 7), [1]), RowWise),
    "pool": (reduce("max", unfold(x(5, 4), 0, 3, 2), [2]), Windows),
    "depthwise": (depthwise(), Windows),
    "columns": (reduce("max", x(9, 4), [0]), Windows),
    "order": (node(ops.Order(3), graph_input("x", (5, 7), I32)), TopK),
}


@pytest.mark.parametrize("name", MADE)
def test_forms_of_small_graphs(name: str) -> None:
    out, kind = MADE[name]
    kernels = [s.kernel for s in steps_for(out, x=next(n for n in _inputs(out)))]
    assert type(classify(kernels[-1])) is kind


def _inputs(n: Node) -> list[Node]:
    return [n] if isinstance(n.op, ops.Input) else [i for x in n.inputs for i in _inputs(x)]


def test_products_and_attention() -> None:
    for weight in (True, False):
        kernel = matmul_step(8, 16, 24, weight=weight).kernel
        roles = form_as(kernel, Contraction).operands
        assert (roles.m.extent, roles.n.extent, roles.steps) == (8, 24, 16)
        assert product(kernel) == roles
    _, steps = compiled(bert())
    assert sum(isinstance(classify(s.kernel), Attention) for s in steps) == 1


def test_integers_have_forms_of_their_own() -> None:
    forms = [
        classify(s.kernel) for seed in range(30) for s in compiled(quantised_graph(seed)[0])[1]
    ]
    groups = [f for f in forms if isinstance(f, IntegerContraction)]
    assert {f.group for f in groups} == {4}
    assert {f.narrow for f in groups} == {True, False}
    assert any(isinstance(f, IntegerWindows) for f in forms)


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("seed", seeds(20))
def test_names_and_copies_change_no_form(seed: int, anchor: str) -> None:
    kernel = collapse(random_case(seed, anchor).kernel)
    copy = kernel_from_data(kernel_to_data(kernel) | {"name": f"other{Random(seed).random()}"})
    assert classify(copy) == classify(kernel)
    assert type(classify(kernel)) in TABLE


@pytest.mark.parametrize(("dtype", "rows"), [(F32, False), (I64, True)])
def test_what_vectors_cannot_hold_goes_another_way(dtype: DType, rows: bool) -> None:
    """The form is the same: only this kind of target has to give way."""
    n, k = Var("n", 10), Var("k", 5)
    stage = Stage("max", (k,), Load(1, index(k) * 10 + index(n), dtype))
    buffers = (Buffer(dtype, 10), Buffer(dtype, 50))
    kernel = Kernel("max", (n,), (stage,), Acc(0, dtype), index(n), buffers)
    assert isinstance(classify(kernel), Windows)
    assert (strategy_of(kernel) is TABLE[RowWise]) is rows
    assert default_schedule(kernel, Machine()).tag == ("rows" if rows else "windows")


def test_rows_in_the_middle_are_reduced_across_memory() -> None:
    """softmax over a middle axis: vectors run along the last one"""
    a, j, n, k = Var("a", 3), Var("j", 4), Var("n", 5), Var("k", 4)
    at = index(a) * 20 + index(j) * 5 + index(n)
    stage = Stage("max", (k,), Load(1, index(a) * 20 + index(k) * 5 + index(n), F32))
    buffers = (Buffer(F32, 60), Buffer(F32, 60))
    kernel = Kernel("top", (a, n, j), (stage,), Acc(0, F32), at, buffers, cols=1)
    assert classify(kernel) == Reduction(n)


@pytest.mark.parametrize("layout", [ROWS, Panels(8), Groups(4, 8), Taps(2)], ids=str)
def test_layouts_are_data_and_back(layout: Layout) -> None:
    assert layout_from_data(layout_to_data(layout)) == layout
