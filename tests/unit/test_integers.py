"""Quantised products as integers: rewriting changes no value, whatever the axes and the range."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.dtypes import F32, I8, I16, I32, U8, DType
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    broadcast,
    cast,
    constant,
    contract,
    elementwise,
    evaluate,
    graph_input,
    node,
    reduce,
    reshape,
    toposort,
    unfold,
)
from tilewright.graph.passes.algebra import simplify


def rewritten(y: Node, values: np.ndarray) -> tuple[Node, np.ndarray, np.ndarray]:
    """(the rewritten node, its value, the value before)"""
    (x,) = (n for n in toposort([y]) if isinstance(n.op, ops.Input))
    ((_, made),) = simplify(Graph("g", (("x", x),), (("y", y),))).outputs
    return made, evaluate([made], {"x": values})[0], evaluate([y], {"x": values})[0]


def scaled(q: Node, by: float) -> Node:
    return elementwise("mul", cast(q, F32), broadcast(constant(by, F32), q.shape))


def weight(shape: tuple[int, ...], dtype: DType, value: int) -> Node:
    return node(ops.Weight("w", shape, dtype, lambda: np.full(shape, value, dtype.numpy)))


@pytest.mark.parametrize(("r", "in_bytes"), [(4, False), (1, True)])
def test_an_axis_that_only_the_values_sum(r: int, in_bytes: bool) -> None:
    x = graph_input("x", (3, r, 5), U8)
    centred = elementwise("sub", cast(x, I16), broadcast(constant(7, I16), x.shape))
    w = constant(np.arange(30, dtype=np.int16).reshape(5, 6) - 10)
    values = np.random.default_rng(0).integers(0, 256, x.shape).astype(np.uint8)
    made, got, want = rewritten(contract("mrk,kn->mn", centred, w), values)
    np.testing.assert_array_equal(got, want)
    found = {i.dtype for n in toposort([made]) if isinstance(n.op, ops.Contract) for i in n.inputs}
    assert (found == {U8, I8}) == in_bytes


def test_depthwise_weights_behind_views() -> None:
    """As ConvInteger and QLinearConv make them: the sum is one of bytes all the same."""
    x = graph_input("x", (9, 16), U8)
    across = unfold(cast(cast(x, I16), I32), 0, 3, 1, 1)
    w = cast(weight((16, 3), I8, 5), I16)
    spread = broadcast(reshape(cast(w, I32), (1, 16, 3)), across.shape)
    values = np.random.default_rng(0).integers(0, 256, x.shape).astype(np.uint8)
    y = reduce("sum", elementwise("mul", across, spread), (2,))
    made, got, want = rewritten(y, values)
    np.testing.assert_array_equal(got, want)
    found = {i.dtype for n in toposort([made]) if isinstance(n.op, ops.Contract) for i in n.inputs}
    assert found == {U8, I8}


@pytest.mark.parametrize(
    ("dtype", "most", "depth", "exact"),
    [(U8, 255, 2048, True), (U8, 255, 70_000, False), (I16, 32_000, 2048, False)],
)
def test_sums_that_leave_i32_stay_real(dtype: DType, most: int, depth: int, exact: bool) -> None:
    x = graph_input("x", (2, depth), dtype)
    y = contract("mk,kn->mn", scaled(x, 2**-15), scaled(weight((depth, 3), I8, 127), 2**-7))
    made, got, want = rewritten(y, np.full(x.shape, most, dtype.numpy))
    np.testing.assert_allclose(got, want, rtol=1e-4)
    found = {i.dtype for n in toposort([made]) if isinstance(n.op, ops.Contract) for i in n.inputs}
    assert (F32 not in found) == exact


def test_a_zero_point_counts_in_the_range_of_sums() -> None:
    """Bytes less 255 reach -255, so 70,000 products with 127 leave i32."""
    x = graph_input("x", (2, 70_000), U8)
    centred = elementwise("sub", cast(x, I16), broadcast(constant(255, I16), x.shape))
    w = scaled(weight((x.shape[1], 3), I8, 127), 2**-7)
    y = contract("mk,kn->mn", scaled(centred, 2**-15), w)
    _, got, want = rewritten(y, np.zeros(x.shape, np.uint8))
    np.testing.assert_allclose(got, want, rtol=1e-4)
