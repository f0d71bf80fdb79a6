"""What fusion must achieve around convolutions: layout, padding, scales and residuals.

Input: small hand-built layers.  A copy that appears here costs time in every model.
"""

from __future__ import annotations

from math import prod

import numpy as np
from helpers.graphs import Weights, batch_norm, conv, relu
from helpers.steps import copies, fns, kinds, steps_for

from tilewright.base.dtypes import F32
from tilewright.graph import ops
from tilewright.graph.node import (
    Node,
    broadcast,
    concat,
    constant,
    contract,
    elementwise,
    graph_input,
    pad,
    reduce,
    reshape,
    transpose,
    unfold,
)
from tilewright.kernel.expr import Guard
from tilewright.kernel.form import product


def image(channels: int = 3, side: int = 9) -> Node:
    return graph_input("x", (1, channels, side, side), F32)


def test_conv_with_batch_norm_and_relu_is_one_kernel() -> None:
    w = Weights()
    x = image(8)
    y = relu(batch_norm(conv(x, w(16, 8, 3, 3)), w))
    steps = steps_for(y, x=x)
    assert kinds(steps) == {"contract": 1, "copy": 2}, "the layout of input and output"
    assert fns(steps[1]) == {"add", "max"}, "the scale is in the weights"
    last = copies(steps)[-1]
    assert isinstance(last.output.op, ops.Transpose)


def test_a_scale_stays_outside_weights_that_something_else_reads() -> None:
    w = Weights()
    x = image(8)
    made = conv(x, w(16, 8, 1, 1))
    steps = steps_for(batch_norm(made, w), made, x=x)
    assert kinds(steps)["contract"] == 1


def test_a_scale_of_two_axes_is_in_weights_that_have_them_in_another_order() -> None:
    x, w = graph_input("x", (4, 5), F32), Weights()
    scale = constant(np.arange(1, 7, dtype=np.float32).reshape(1, 3, 2))
    made = contract("mk,hnk->mnh", x, w(2, 3, 5))
    steps = steps_for(elementwise("mul", made, broadcast(scale, made.shape)), x=x)
    assert kinds(steps) == {"contract": 1}
    assert fns(steps[0]) == set()


def test_padding_of_the_input_is_in_its_change_of_layout() -> None:
    w = Weights()
    x = image(8)
    steps = steps_for(relu(batch_norm(conv(x, w(16, 8, 3, 3), padding=1), w)), x=x)
    assert kinds(steps) == {"contract": 1, "copy": 2, "border": 2}
    inside, *border = (s for s in steps if s.output is steps[0].output)
    assert not any(isinstance(s.kernel.value, Guard) for s in (inside, *border))
    filled = sum(prod(v.extent for v in s.kernel.axes) for s in (inside, *border))
    assert filled == inside.output.size, "every element once"


def test_padding_between_convs_costs_its_border_only() -> None:
    w = Weights()
    x = image(8)
    y = relu(conv(relu(conv(x, w(16, 8, 1, 1))), w(16, 16, 3, 3), padding=1))
    steps = steps_for(conv(y, w(4, 16, 1, 1)), x=x)
    assert kinds(steps) == {"contract": 3, "copy": 1, "border": 2}
    assert isinstance(steps[0].output.op, ops.Pad)


def test_concatenation_of_convs_costs_nothing() -> None:
    """As in SqueezeNet: both expansions store into the joined tensor."""
    w = Weights()
    x = image(8)
    squeezed = relu(conv(x, w(4, 8, 1, 1)))
    one, three = conv(squeezed, w(8, 4, 1, 1)), conv(squeezed, w(8, 4, 3, 3), padding=1)
    y = relu(conv(relu(concat([one, three], 1)), w(4, 16, 1, 1)))
    z = relu(conv(concat([relu(one), relu(three)], 1), w(4, 16, 1, 1)))
    steps = steps_for(z, x=x)
    assert kinds(steps) == {"contract": 4, "copy": 1, "border": 2}
    steps_for(y, x=x)
    steps_for(y, z, x=x)


def test_pool_between_convs_stores_into_the_padding() -> None:
    w = Weights()
    x = image(8)
    y = transpose(relu(conv(x, w(8, 8, 1, 1))), (0, 2, 3, 1))
    padded = pad(y, (0, 1, 1, 0), (0, 1, 1, 0), -np.inf)
    pooled = reduce("max", unfold(unfold(padded, 1, 3, 2), 2, 3, 2), [4, 5])
    pooled = transpose(reshape(pooled, pooled.shape[:4]), (0, 3, 1, 2))
    steps = steps_for(conv(pooled, w(4, 8, 3, 3), padding=1), x=x)
    assert kinds(steps) == {"contract": 2, "reduce": 1, "copy": 1, "border": 4}
    (pool,) = (s for s in steps if s.kernel.anchor == "reduce")
    assert isinstance(pool.output.op, ops.Pad)


def test_a_flat_view_forbids_a_place_in_padding() -> None:
    """Read as one long row, a tensor must lie in one piece."""
    w = Weights()
    x = image(8)
    y = relu(conv(x, w(8, 8, 1, 1)))
    flat = elementwise("neg", reshape(transpose(y, (0, 2, 3, 1)), (1, 648)))
    steps = steps_for(conv(y, w(4, 8, 3, 3), padding=1), flat, x=x)
    assert not isinstance(steps[0].output.op, ops.Pad)


def test_convs_in_a_chain_stay_channels_last() -> None:
    w = Weights()
    x = image()
    y = x
    for channels in (8, 8, 16):
        y = relu(batch_norm(conv(y, w(channels, y.shape[1], 3, 3)), w))
    steps = steps_for(y, x=x)
    assert kinds(steps) == {"contract": 3, "copy": 2}, "transposes of input and output only"
    assert isinstance(copies(steps)[-1].output.op, ops.Transpose)
    for step in steps[1:4]:
        roles = product(step.kernel)
        assert roles is not None
        # taps of one row and channels lie side by side and make one loop
        depth = step.kernel.stages[0].axes
        assert roles.row.index.coefficient(depth[-1]) == 1
        assert len(depth) == 2


def test_reduction_runs_as_the_row_operand_lies_in_memory() -> None:
    w = Weights()
    x = image(8)
    last = transpose(x, (0, 2, 3, 1))
    middle = relu(conv(relu(transpose(last, (0, 3, 1, 2))), w(8, 8, 1, 1)))
    steps = steps_for(conv(middle, w(8, 8, 3, 3)), x=x)
    for step in steps:
        roles = product(step.kernel)
        if roles is None:
            continue
        strides = [roles.row.index.coefficient(v) for v in step.kernel.stages[0].axes]
        assert strides == sorted(strides, reverse=True)


def test_residual_add_is_in_a_conv() -> None:
    w = Weights()
    x = image(8)
    y = relu(batch_norm(conv(x, w(8, 8, 3, 3), padding=1), w))
    z = relu(elementwise("add", batch_norm(conv(y, w(8, 8, 3, 3), padding=1), w), y))
    q = conv(z, w(8, 8, 1, 1))
    steps = steps_for(q, x=x)
    # the transposes of input and output are copies; the sum has no kernel of its own
    assert kinds(steps) == {"contract": 3, "copy": 2, "border": 4}


def test_downsampling_residual_is_in_one_of_the_two_convs() -> None:
    w = Weights()
    x = image(8, 8)
    main = conv(x, w(16, 8, 2, 2), stride=2)
    side = conv(x, w(16, 8, 1, 1), stride=2)
    y = conv(relu(elementwise("add", main, side)), w(4, 16, 1, 1))
    steps = steps_for(y, x=x)
    assert kinds(steps) == {"contract": 3, "copy": 1}, "the layout of the output"
