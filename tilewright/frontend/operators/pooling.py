"""ONNX pooling: pad, unfold the windows, reduce, all in channels-last order.

Input: operand nodes and attributes.  Output: nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce as fold
from math import prod

from tilewright.base.dtypes import I32
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operator_table import operator
from tilewright.frontend.operators.windows import Span, padded, spans, unfolded, window_axes
from tilewright.graph.node import Node, cast, iota, reduce, reshape


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
    """Elements of each window, or of any; padding that only completes the last window is none."""
    first, last = (-span.before, span.extent + span.after) if include else (0, span.extent)
    starts = al.sub(al.mul(cast(iota((grown.count,), 0), I32), grown.stride), grown.before)
    made = al.sub(_taps_before(last, starts, grown), _taps_before(first, starts, grown))
    if made.value is not None:
        return made if made.value.min() < made.value.max() else int(made.value[0])
    end = (grown.count - 1) * grown.stride - grown.before + grown.reach
    return grown.size if first <= -grown.before and end <= last else made


def _taps_before(place: int, starts: Node, span: Span) -> Node:
    """How many taps of each window lie before a place along the axis."""
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
    return al.channels_first(al.rooted(_pooled(al.powered(x, p), axes, "sum", 0), p))


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
    sums = al.total(al.channels_last(al.powered(x, p)), _spatial(x))
    return al.channels_first(al.rooted(sums, p))
