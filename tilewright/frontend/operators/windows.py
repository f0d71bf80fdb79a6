"""ONNX operators on sliding windows, convolutions and pooling: pad, unfold, contract or reduce.

Input: operand nodes and attributes.  Output: nodes.  They compute with channels innermost: a
transpose before and one after convert from and to ONNX's order.  The graph rewriter moves these
transposes towards the outputs, where they cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce as fold
from math import prod

from tilewright.base.dtypes import I32
from tilewright.base.errors import InvalidModel, ShapeError
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operator_table import operator
from tilewright.frontend.operators.elementwise import one_dtype
from tilewright.frontend.operators.movement import pad_or_crop
from tilewright.graph.node import (
    Node,
    cast,
    contract,
    flip,
    iota,
    pad,
    reduce,
    reshape,
    transpose,
    unfold,
)
from tilewright.graph.op_semantics import sum_dtype


@dataclass(frozen=True)
class Span:
    """The windows along one axis of `extent` elements, padded `before` and `after`."""

    extent: int
    size: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def reach(self) -> int:
        """The number of elements from a window's first to its last."""
        return (self.size - 1) * self.dilation + 1

    @property
    def count(self) -> int:
        room = self.before + self.extent + self.after - self.reach
        if room < 0:
            raise ShapeError(
                f"a window over {self.reach} elements is larger than the padded axis",
                shape=[self.extent],
            )
        return room // self.stride + 1


def spans(
    extents: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
) -> tuple[Span, ...]:
    """The windows of every spatial axis from ONNX attributes."""
    rank = len(extents)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    ends = pads or (0,) * (2 * rank)
    if not len(sizes) == len(strides) == len(dilations) == rank or len(ends) != 2 * rank:
        raise ShapeError("kernel, strides, dilations and pads do not match the operand's rank")
    if min((*sizes, *strides, *dilations), default=1) < 1:
        raise InvalidModel(
            "kernel, strides and dilations must be at least 1",
            kernel=list(sizes), strides=list(strides), dilations=list(dilations),
        )  # fmt: skip
    made = [
        Span(extents[i], sizes[i], strides[i], dilations[i], ends[i], ends[i + rank])
        for i in range(rank)
    ]
    return tuple(_auto_pad(span, auto_pad) for span in made)


def _auto_pad(span: Span, mode: str) -> Span:
    if mode == "NOTSET":
        return span
    if mode == "VALID":
        return replace(span, before=0, after=0)
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise InvalidModel(f"auto_pad {mode!r} is unknown")
    wanted = -(-span.extent // span.stride)
    missing = max((wanted - 1) * span.stride + span.reach - span.extent, 0)
    small, large = missing // 2, missing - missing // 2
    upper = mode == "SAME_UPPER"
    return replace(span, before=small if upper else large, after=large if upper else small)


def padded(x: Node, axes: Sequence[Span], value: al.Number = 0) -> Node:
    """Pads the spatial axes of x (N, spatial.., C..); negative padding crops."""
    rest = x.rank - len(axes) - 1
    before = [0, *(a.before for a in axes), *[0] * rest]
    after = [0, *(a.after for a in axes), *[0] * rest]
    return pad_or_crop(x, before, after, value)


def unfolded(x: Node, axes: Sequence[Span]) -> Node:
    """Padded x (N, spatial.., C..) with its windows: a last axis for each of more than one tap."""
    for i, span in enumerate(axes):
        if span.size == 1:
            x = al.take(x, i + 1, 0, (x.shape[i + 1] - 1) // span.stride + 1, span.stride)
        else:
            x = unfold(x, i + 1, span.size, span.stride, span.dilation)
    return x


def window_axes(axes: Sequence[Span]) -> int:
    """How many axes `unfolded` appends."""
    return sum(span.size > 1 for span in axes)


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


def _ceiled(span: Span, ceil_mode: int) -> tuple[Span, Span]:
    """The windows as given, and with padding that completes the last window."""
    if not ceil_mode:
        return span, span
    room = span.before + span.extent + span.after - span.reach
    count = -(-room // span.stride) + 1
    if (count - 1) * span.stride >= span.extent + span.before:
        count -= 1  # a window must not begin in the padding after the operand
    missing = max((count - 1) * span.stride - room, 0)
    return span, replace(span, after=span.after + missing)


def _pooled(x: Node, axes: Sequence[Span], fn: str, outside: al.Number) -> Node:
    """Channels-last reduction of every window."""
    windows = unfolded(padded(al.channels_last(x), axes, outside), axes)
    taps = range(x.rank, x.rank + window_axes(axes))
    return al.squeeze(reduce(fn, windows, taps), taps)


@operator("MaxPool", ignore=("storage_order",))
def max_pool(
    x: Node,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Node:
    axes = [
        _ceiled(s, ceil_mode)[1]
        for s in spans(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    ]
    return al.channels_first(_pooled(x, axes, "max", al.lowest(x.dtype)))


@operator("AveragePool")
def average_pool(
    x: Node,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Node:
    given = spans(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    both = [_ceiled(s, ceil_mode) for s in given]
    sums = _pooled(x, [grown for _, grown in both], "sum", 0)
    include = bool(count_include_pad)
    counts = [_counts(*b, include) for b in both]
    same = prod(n for n in counts if isinstance(n, int))
    over = [(i, n) for i, n in enumerate(counts) if not isinstance(n, int)]
    if not over:
        return al.channels_first(al.share(sums, same))
    lines = [reshape(cast(n, x.dtype), (-1, *[1] * (len(counts) - i))) for i, n in over]
    several = al.mul(lines[0], same) if same > 1 else lines[0]
    return al.channels_first(al.div(sums, fold(al.mul, lines[1:], several)))


def _counts(span: Span, grown: Span, include: bool) -> Node | int:
    """The number of elements in each window, or one number if all are equal.  Padding that only
    completes the last window does not count."""
    first, last = (-span.before, span.extent + span.after) if include else (0, span.extent)
    starts = al.sub(al.mul(cast(iota((grown.count,), 0), I32), grown.stride), grown.before)
    made = al.sub(_taps_before(last, starts, grown), _taps_before(first, starts, grown))
    if made.value is not None:
        return made if made.value.min() < made.value.max() else int(made.value[0])
    end = (grown.count - 1) * grown.stride - grown.before + grown.reach
    return grown.size if first <= -grown.before and end <= last else made


def _taps_before(place: int, starts: Node, span: Span) -> Node:
    """The number of taps of each window that lie before position `place` of the axis."""
    room = al.apply("max", al.sub(place, starts), 0)
    if span.dilation > 1:
        room = al.div(al.add(room, span.dilation - 1), span.dilation)
    return al.apply("min", room, span.size)


@operator("LpPool")
def lp_pool(
    x: Node,
    *,
    kernel_shape: Sequence[int],
    p: int = 2,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Node:
    given = spans(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    axes = [_ceiled(s, ceil_mode)[1] for s in given]
    return al.channels_first(al.norm_of_terms(_pooled(al.norm_terms(x, p), axes, "sum", 0), p))


def _spatial(x: Node) -> tuple[int, ...]:
    return tuple(range(1, x.rank - 1))


@operator("GlobalAveragePool")
def global_average_pool(x: Node) -> Node:
    return al.channels_first(al.mean(al.channels_last(x), _spatial(x)))


@operator("GlobalMaxPool")
def global_max_pool(x: Node) -> Node:
    return al.channels_first(reduce("max", al.channels_last(x), _spatial(x)))


@operator("GlobalLpPool")
def global_lp_pool(x: Node, *, p: int = 2) -> Node:
    sums = al.total(al.channels_last(al.norm_terms(x, p)), _spatial(x))
    return al.channels_first(al.norm_of_terms(sums, p))
