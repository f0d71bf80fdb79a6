"""ONNX convolutions: pad, unfold the windows, contract, all in channels-last order.

Input: operand nodes and attributes.  Output: nodes.  Between the transposes at both ends
channels are innermost; the graph rewriter sinks the transposes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tilewright.base.errors import InvalidModel, ShapeError
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operator_table import operator
from tilewright.frontend.operators.elementwise import one_dtype
from tilewright.frontend.operators.windows import Span, padded, spans, unfolded, window_axes
from tilewright.graph.node import Node, cast, contract, flip, pad, reshape, transpose
from tilewright.graph.rules import sum_dtype

_SPATIAL, _TAPS = "hwd", "ijl"


@operator("Conv", ignore=("kernel_shape",))
def conv(
    x: Node,
    w: Node,
    bias: Node | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Node:
    one_dtype(x, w)
    _check(x, w, group)
    if x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        raise ShapeError("channels and groups do not match the weights", shape=[x.shape, w.shape])
    axes = spans(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    return _finish(convolve(padded(al.channels_last(x), axes), w, axes, group), bias)


@operator("ConvTranspose", ignore=("kernel_shape",))
def conv_transpose(
    x: Node,
    w: Node,
    bias: Node | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Node:
    """A convolution of the operand, dilated by the strides, with flipped weights."""
    one_dtype(x, w)
    _check(x, w, group)
    if x.shape[1] != w.shape[0] or w.shape[0] % group:
        raise ShapeError("channels and groups do not match the weights", shape=[x.shape, w.shape])
    rank = x.rank - 2
    extra = tuple(output_padding or (0,) * rank)
    if len(extra) != rank or (output_shape and len(output_shape) < rank):
        raise InvalidModel("output_padding and output_shape must have an entry for each axis")
    free = "VALID" if auto_pad != "NOTSET" else auto_pad
    forward = spans(x.shape[2:], w.shape[2:], strides, dilations, pads, free)
    wanted = tuple(output_shape)[-rank:] if output_shape else None
    if wanted is None and auto_pad.startswith("SAME"):
        wanted = tuple(s.extent * s.stride for s in forward)
    axes = tuple(
        _backward(s, extra[i], wanted[i] if wanted else None, auto_pad)
        for i, s in enumerate(forward)
    )
    spread = al.channels_last(x)
    for i, span in enumerate(forward):
        spread = _spread(spread, i + 1, span.stride)
    return _finish(convolve(padded(spread, axes), _mirrored(w, group), axes, group), bias)


def _backward(span: Span, extra: int, wanted: int | None, auto_pad: str) -> Span:
    """The window of stride 1 over the dilated operand that gives the transposed convolution."""
    spread = (span.extent - 1) * span.stride + 1
    before, after = span.before, span.after
    if wanted is not None:
        over = spread - 1 + span.reach + extra - wanted
        small, large = over // 2, over - over // 2
        before, after = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
    edge = span.reach - 1
    return replace(span, extent=spread, stride=1, before=edge - before, after=edge - after + extra)


def _spread(x: Node, axis: int, stride: int) -> Node:
    """Inserts stride - 1 zeros between neighbours along the axis."""
    if stride == 1:
        return x
    after = [0] * (x.rank + 1)
    after[axis + 1] = stride - 1
    holes = pad(al.unsqueeze(x, (axis + 1,)), [0] * (x.rank + 1), after)
    count = x.shape[axis] * stride
    joined = reshape(holes, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
    return al.take(joined, axis, 0, count - stride + 1)


def _mirrored(w: Node, group: int) -> Node:
    """(C, O/g, taps..) of a transposed convolution as (O, C/g, taps..) of a plain one."""
    c, o, *taps = w.shape
    split = reshape(flip(w, range(2, w.rank)), (group, c // group, o, *taps))
    swapped = transpose(split, (0, 2, 1, *range(3, split.rank)))
    return reshape(swapped, (group * o, c // group, *taps))


def convolve(x: Node, w: Node, axes: Sequence[Span], group: int) -> Node:
    """Padded x (N, spatial.., C) with w (O, C/g, taps..) -> (N, spatial.., O)."""
    o, c = w.shape[:2]
    w = reshape(w, (o, c, *(n for n in w.shape[2:] if n > 1)))
    if group == x.shape[-1] == o and group > 1:
        return _depthwise(x, w, axes)
    s, t = _SPATIAL[: len(axes)], _TAPS[: window_axes(axes)]
    taps = range(x.rank, x.rank + len(t))
    if group == 1:
        windows = transpose(unfolded(x, axes), (*range(x.rank - 1), *taps, x.rank - 1))
        weights = transpose(w, (0, *range(2, w.rank), 1))
        return contract(f"n{s}{t}c,o{t}c->n{s}o", windows, weights)
    grouped = reshape(x, (*x.shape[:-1], group, c))
    last = x.rank
    windows = transpose(
        unfolded(grouped, axes), (*range(last), *range(last + 1, last + 1 + len(t)), last)
    )
    blocks = reshape(w, (group, o // group, *w.shape[1:]))
    weights = transpose(blocks, (0, 1, *range(3, blocks.rank), 2))
    made = contract(f"n{s}g{t}c,go{t}c->n{s}go", windows, weights)
    return reshape(made, (*made.shape[:-2], o))


def _depthwise(x: Node, w: Node, axes: Sequence[Span]) -> Node:
    """Depthwise convolution: an elementwise product and a sum over the taps."""
    count = window_axes(axes)
    taps = tuple(range(x.rank, x.rank + count))
    kernel = reshape(w, (w.shape[0], *w.shape[2:]))
    wide = sum_dtype(x.dtype)
    products = al.mul(cast(unfolded(x, axes), wide), cast(kernel, wide))
    return al.squeeze(al.total(products, taps), taps)


def _check(x: Node, w: Node, group: int) -> None:
    al.positive("groups", group)
    if x.rank != w.rank or not 3 <= x.rank <= 2 + len(_SPATIAL) or not prod(w.shape):
        raise ShapeError(
            "a convolution needs 1 to 3 spatial axes and weights of the same rank",
            shape=[x.shape, w.shape],
        )


def _finish(made: Node, bias: Node | None) -> Node:
    return al.channels_first(made if bias is None else al.add(made, bias))
