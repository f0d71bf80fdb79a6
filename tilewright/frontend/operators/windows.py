"""The arithmetic of sliding windows, shared by convolution and pooling.

Input: ONNX attributes and spatial extents.  Output: one `Span` per spatial axis, and unfolded nodes
in channels-last order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.base.errors import InvalidModel, ShapeError
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operators.movement import pad_or_crop
from tilewright.graph.node import Node, unfold


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
        """Elements from a window's first to its last, both included."""
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
