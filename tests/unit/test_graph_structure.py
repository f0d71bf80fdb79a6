"""What fusion must achieve: the kernels of real layers, counted and named.

Input: small hand-built layers.  A copy that appears here costs time in every model.
Around convolutions: test_graph_convs.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.graphs import (
    Weights,
    bert_layer,
    default_of,
    gelu,
    interpreted,
    linear,
    relu,
    results,
    run_steps,
    softmax,
)
from helpers.steps import checked, compiled, fns, kinds, steps_for

from tilewright.base.dtypes import BOOL, F32, I64
from tilewright.base.errors import ShapeError
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    cast,
    concat,
    constant,
    contract,
    elementwise,
    gather,
    graph_input,
    node,
    pad,
    reduce,
    reshape,
    scalar_like,
    slice_,
    transpose,
)
from tilewright.kernel.form import product

# ---- transformers --------------------------------------------------------------------------------


def test_bert_layer_has_no_kernel_too_many() -> None:
    steps = checked(bert_layer())
    # q, k, v, projection, up, down; three layer norms; scores, softmax and context in one
    assert kinds(steps) == {"contract": 6, "rowwise": 3, "attention": 1}
    assert not any(isinstance(s.output.op, ops.Realize) for s in steps)


def test_bert_layer_by_interpreted_loops() -> None:
    graph = bert_layer(width=8, length=5)
    packed, steps = compiled(graph)
    values = {"ids": np.random.default_rng(0).integers(0, 50, (1, 5))}
    (want,) = results(graph, values)
    (got,) = run_steps(packed, steps, values, interpreted(default_of))
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("batch", [1, 3])
def test_bert_epilogues_are_in_the_store(batch: int) -> None:
    steps = checked(bert_layer(batch=batch))
    products = [s for s in steps if s.kernel.anchor == "contract"]
    assert sum("erf" in fns(s) for s in products) == 1, "bias and GELU"
    residuals = [s for s in products if fns(s) == {"add"} and len(s.kernel.buffers) == 5]
    assert len(residuals) == 2, "bias and residual"
    assert all(product(s.kernel) is not None for s in products)


def test_attention_output_is_read_where_it_lies() -> None:
    """contract over (heads, dim) instead of a copy of transpose(context)"""
    w = Weights()
    context = graph_input("context", (1, 2, 10, 8), F32)
    merged = reshape(transpose(context, (0, 2, 1, 3)), (1, 10, 16))
    (step,) = steps_for(linear(merged, w, 16), context=context)
    assert len(step.kernel.stages[0].axes) == 2
    assert product(step.kernel) is not None


def test_softmax_is_one_kernel() -> None:
    x = graph_input("x", (2, 3, 7), F32)
    (step,) = steps_for(softmax(x), x=x)
    assert [s.op for s in step.kernel.stages] == ["max", "sum"]


def test_masked_softmax_is_one_kernel() -> None:
    x, mask = graph_input("x", (2, 3, 7), F32), graph_input("mask", (2, 1, 7), BOOL)
    masked = elementwise("where", mask, x, scalar_like(-1e9, x))
    (step,) = steps_for(softmax(masked), x=x, mask=mask)
    assert step.kernel.anchor == "rowwise"


def test_softmax_over_a_middle_axis_is_one_kernel() -> None:
    x = graph_input("x", (2, 5, 3), F32)
    e = elementwise("exp", elementwise("sub", x, reduce("max", x, [1])))
    (step,) = steps_for(elementwise("div", e, reduce("sum", e, [1])), x=x)
    assert step.kernel.anchor == "rowwise"


def test_attention_mask_is_in_the_scores_kernel() -> None:
    q, k = (graph_input(n, (2, 5, 8), F32) for n in "qk")
    mask = graph_input("mask", (5, 5), BOOL)
    scores = contract("bmk,bnk->bmn", q, k)
    masked = elementwise("where", mask, scores, scalar_like(-1e9, scores))
    steps = steps_for(masked, q=q, k=k, mask=mask)
    assert kinds(steps) == {"contract": 1}


def test_gelu_alone_reads_and_writes_once() -> None:
    x = graph_input("x", (4, 6), F32)
    (step,) = steps_for(gelu(x), x=x)
    assert len(step.kernel.buffers) == 2


def test_an_epilogue_may_add_axes_of_extent_1() -> None:
    """Gemm has two axes where the model has three: bias, GELU and residual still fold."""
    w = Weights()
    x, residual = graph_input("x", (6, 8), F32), graph_input("residual", (1, 6, 8), F32)
    h = reshape(contract("mk,kn->mn", x, w(8, 8)), (1, 6, 8))
    y = elementwise("add", gelu(elementwise("add", h, w(8))), residual)
    steps = steps_for(y, x=x, residual=residual)
    assert kinds(steps) == {"contract": 1}


def test_a_row_is_not_stored_again_because_of_what_made_it() -> None:
    """x * x under a sum is cheap, although x itself came from an expensive function."""
    w = Weights()
    x = graph_input("x", (6, 8), F32)
    h = elementwise("exp", contract("mk,kn->mn", x, w(8, 8)))
    steps = steps_for(reduce("sum", elementwise("mul", h, h), [-1]), elementwise("neg", h), x=x)
    assert sum(kinds(steps).values()) == 3


def test_matmul_shared_by_two_users_is_computed_once() -> None:
    w = Weights()
    x = graph_input("x", (1, 6, 8), F32)
    h = linear(x, w, 8)
    steps = steps_for(gelu(h), relu(h), x=x)
    assert kinds(steps)["contract"] == 1


# ---- single decisions ----------------------------------------------------------------------------


def test_what_two_kernels_use_is_computed_once() -> None:
    x, y = graph_input("x", (3, 8), F32), graph_input("y", (3, 8), F32)
    total = elementwise("add", x, y)
    down, right = reduce("sum", total, [0]), reduce("max", total, [1])
    steps = steps_for(down, right, x=x, y=y)
    assert kinds(steps) == {"map": 1, "reduce": 2}


def test_gather_of_an_even_range_is_a_view() -> None:
    x = graph_input("x", (9, 4), F32)
    (step,) = steps_for(elementwise("neg", gather(x, constant([1, 3, 5, 7], I64), 0)), x=x)
    assert len(step.kernel.buffers) == 2
    steps_for(gather(x, constant([1, 3, 4], I64), 0), x=x)


def test_neutral_operands_count_only_on_their_side() -> None:
    x = graph_input("x", (4,), F32)
    one, zero = scalar_like(1, x), scalar_like(0, x)
    for fn, neutral in (("mul", one), ("div", one), ("add", zero), ("sub", zero)):
        assert not steps_for(elementwise(fn, x, neutral), x=x)
    for fn, other in (("div", one), ("sub", zero)):
        (step,) = steps_for(elementwise(fn, other, x), x=x)
        assert fns(step) == {fn}


def test_input_as_output_and_constant_output() -> None:
    x = graph_input("x", (2, 3), F32)
    fixed = constant([[1.0, 2.0]], F32)
    steps = steps_for(x, fixed, elementwise("neg", x), x=x)
    assert len(steps) == 1, "input and constant are in memory already"


def test_expensive_functions_are_not_computed_twice() -> None:
    x = graph_input("x", (4, 8), F32)
    e = elementwise("exp", x)
    steps = steps_for(contract("ab,cb->ac", e, e), x=x)
    assert sum("exp" in fns(s) for s in steps) == 1


def test_lonely_letters_of_the_column_operand() -> None:
    """Letters that only b has: in the output beside the columns, or summed alone."""
    w = Weights()
    x = graph_input("x", (5, 6), F32)
    steps_for(contract("ak,knm->anm", x, w(6, 3, 9)), x=x)
    steps_for(contract("ak,skn->an", x, w(2, 6, 9)), x=x)
    steps_for(contract("ak,bn->abn", x, w(3, 9)), x=x)


def test_two_plain_tensors_keep_their_layout_under_a_transpose() -> None:
    """x + transpose(y) used to send the transpose back and forth without end."""
    x, y = graph_input("x", (4, 6), F32), graph_input("y", (6, 4), F32)
    (step,) = steps_for(elementwise("add", x, transpose(y, (1, 0))), x=x, y=y)
    assert step.kernel.anchor == "map"


def test_gather_below_pad_and_concat() -> None:
    x, i = graph_input("x", (4, 3), F32), graph_input("i", (5,), I64)
    taken = gather(x, i, 0)
    graph = Graph(
        "gathers",
        (("x", x), ("i", i)),
        (("p", pad(taken, (2, 0), (1, 0))), ("c", concat([x, taken], 0))),
    )
    values = {"x": np.arange(12, dtype="f4").reshape(4, 3), "i": np.array([3, 0, 1, 1, 2])}
    packed, steps = compiled(graph)
    got = run_steps(packed, steps, values, interpreted(default_of))
    for found, want in zip(got, results(graph, values), strict=True):
        np.testing.assert_array_equal(found, want)


# ---- empty tensors -------------------------------------------------------------------------------


def test_what_is_made_of_nothing_is_known() -> None:
    """And what has no elements is: neither needs a kernel."""
    x, none = graph_input("x", (3, 2), F32), graph_input("none", (3, 0), F32)
    ids = graph_input("ids", (0,), I64)
    known = [
        reduce("sum", none, [1]), pad(none, (0, 0), (0, 2), 7.0), contract("ab,cb->ac", none, none),
        slice_(x, (0, 0), (0, 2)), gather(x, ids, 0), constant(np.zeros((0, 2)), F32),
        elementwise("add", none, slice_(x, (0, 0), (3, 0))),
    ]  # fmt: skip
    assert all(n.constant for n in known)
    graph = Graph(
        "empty",
        (("x", x), ("none", none), ("ids", ids)),
        (*((f"y{i}", n) for i, n in enumerate(known)), ("z", x), ("none", none)),
    )
    values = {"x": np.ones((3, 2), "f4"), "none": np.ones((3, 0), "f4"), "ids": np.zeros(0, "i8")}
    packed, steps = compiled(graph)
    assert steps == ()
    for found, want in zip(run_steps(packed, steps, values), results(graph, values), strict=True):
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("fn", ["max", "min"])
def test_an_extreme_of_nothing_and_a_pick_from_nothing_are_errors(fn: str) -> None:
    none = graph_input("none", (3, 0), F32)
    with pytest.raises(ShapeError, match="without elements") as caught:
        reduce(fn, none, [1])
    assert caught.value.facts["shape"] == [(3, 0)]
    assert reduce(fn, slice_(none, (0, 0), (0, 0)), [1]).shape == (0, 1)
    with pytest.raises(ShapeError, match="without elements"):
        gather(none, constant([0], I64), 1)


def test_empty_constants_fold_away() -> None:
    """Exporters put empty shapes and optional empty operands into graphs."""
    x = graph_input("x", (2, 3), F32)
    shape = concat([constant([], I64), constant([2, 3], I64)], 0)
    assert shape.value is not None
    joined = concat([constant(np.zeros((0, 3)), F32), x], 0)
    (step,) = steps_for(elementwise("neg", joined), x=x)
    assert step.kernel.buffers[0].size == 6
    assert reduce("sum", constant(np.zeros((0, 2)), F32), [0]).value is not None
    assert cast(constant([], I64), F32).shape == (0,)
    assert node(ops.Transpose((1, 0)), constant(np.zeros((0, 2)), F32)).shape == (2, 0)
