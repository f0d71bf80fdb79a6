"""Convolutions for the conformance suite, of every class, alone and behind others.

Input: nothing.  Output: `CONVOLUTIONS` by name, and `joined`, two of them that store side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from making import Case, case, given, weight

from tilewright.graph.node import (
    Node,
    broadcast,
    concat,
    contract,
    elementwise,
    pad,
    reduce,
    reshape,
    scalar_like,
    transpose,
    unfold,
)


@dataclass(frozen=True)
class Conv:
    """A convolution with ReLU; `pads`: before and after, the same on both axes."""

    sides: tuple[int, int]
    size: int
    channels: int
    out: int
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    pads: tuple[int, int] = (0, 0)
    batch: int = 1

    def of(self, x: Node, seed: int = 9) -> Node:
        """N, C, H, W -> the same, in channels-last order between two transposes."""
        before, after = self.pads
        rows = transpose(x, (0, 2, 3, 1))
        rows = pad(rows, (0, before, before, 0), (0, after, after, 0))
        steps = (self.size, self.stride, self.dilation)
        windows = unfold(unfold(rows, 1, *steps), 2, *steps)
        y = self._depthwise(windows, seed) if self.is_depthwise else self._grouped(windows, seed)
        y = elementwise("max", y, scalar_like(0.0, y))
        return transpose(y, (0, 3, 1, 2))

    @property
    def is_depthwise(self) -> bool:
        return self.groups == self.channels == self.out > 1

    def _grouped(self, windows: Node, seed: int) -> Node:
        g, c, o, k = self.groups, self.channels // self.groups, self.out // self.groups, self.size
        split = reshape(windows, (*windows.shape[:3], g, c, k, k))
        y = contract("nhwgcij,gocij->nhwgo", split, weight(g, o, c, k, k, seed=seed))
        return reshape(y, (*y.shape[:3], self.out))

    def _depthwise(self, windows: Node, seed: int) -> Node:
        w = weight(self.channels, self.size, self.size, seed=seed)
        wide = broadcast(reshape(w, (1, 1, 1, *w.shape)), windows.shape)
        y = reduce("sum", elementwise("mul", windows, wide), [4, 5])
        return reshape(y, y.shape[:4])

    def case(self) -> Case:
        (x,), values = given((self.batch, self.channels, *self.sides))
        return case([x], values, self.of(x), relative=1e-6)

    def between(self) -> Case:
        """Behind a pointwise convolution: padding is then a place in memory, not a copy."""
        first = Conv(self.sides, 1, 5, self.channels, batch=self.batch)
        (x,), values = given((self.batch, 5, *self.sides))
        middle = first.of(x, seed=4)
        last = Conv(self.sides, 1, self.out, 6)
        return case([x], values, last.of(self.of(middle), seed=5), relative=1e-6)


#: Every class of convolution; images smaller than the window, and widths that fill no tile.
CONVOLUTIONS = {
    "3x3": Conv((9, 9), 3, 4, 10, pads=(1, 1)),
    "3x3-stride-2": Conv((9, 9), 3, 3, 8, stride=2, pads=(1, 1)),
    "3x3-dilated": Conv((11, 13), 3, 4, 8, dilation=2, pads=(2, 2)),
    "1x1": Conv((5, 5), 1, 6, 12),
    "1x1-stride-2": Conv((7, 9), 1, 8, 8, stride=2),
    "5x5-asymmetric": Conv((8, 6), 5, 4, 9, pads=(1, 3)),
    "stem": Conv((17, 17), 7, 3, 16, stride=2, pads=(3, 3)),
    "grouped": Conv((8, 8), 3, 8, 16, groups=4, pads=(1, 1)),
    "many-groups": Conv((7, 7), 3, 16, 16, groups=8, pads=(1, 1)),
    "batch-2": Conv((6, 7), 3, 4, 8, pads=(1, 1), batch=2),
    "tiny-image": Conv((2, 1), 3, 4, 8, pads=(1, 1)),
    "depthwise": Conv((9, 13), 3, 12, 12, groups=12, pads=(1, 1)),
    "depthwise-stride-2": Conv((10, 9), 3, 8, 8, stride=2, groups=8, pads=(0, 1)),
    "depthwise-5x5": Conv((14, 14), 5, 8, 8, groups=8, pads=(2, 2)),
    "depthwise-dilated": Conv((9, 9), 3, 8, 8, dilation=2, groups=8, pads=(2, 2)),
    "depthwise-odd": Conv((7, 7), 3, 7, 7, groups=7, pads=(1, 1), batch=2),
    "depthwise-tiny": Conv((1, 2), 5, 8, 8, groups=8, pads=(2, 2)),
}


def joined() -> Case:
    """Two convolutions of one tensor store side by side; the join is padded and pooled."""
    (x,), values = given((1, 8, 9, 9))
    squeezed = Conv((9, 9), 1, 8, 4).of(x, seed=1)
    one = Conv((9, 9), 1, 4, 8).of(squeezed, seed=2)
    three = Conv((9, 9), 3, 4, 8, pads=(1, 1)).of(squeezed, seed=3)
    both = concat([one, three], 1)
    pooled = reduce("max", unfold(unfold(pad(both, (0, 0, 1, 1), (0, 0, 1, 1), -np.inf), 2, 3, 2),
                                  3, 3, 2), [-2, -1])  # fmt: skip
    y = Conv((5, 5), 3, 16, 8, pads=(1, 1)).of(reshape(pooled, pooled.shape[:4]), seed=5)
    return case([x], values, y, relative=1e-6)
