"""Inception-v3 as ONNX (Szegedy and others, 2015), without the auxiliary classifier.

Input: the size of the image (at least 75 pixels), and a divisor of the widths (for tests).  Output:
a model of one input `image`, f32[1, 3, size, size].  Batch normalizations are folded.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto

from lab.workloads.models.network import Activation, Network, Pair
from lab.workloads.models.vision import CLASSES

#: Channels, size and stride of a convolution; with stride 2 there is no padding.
Layer = tuple[int, int | Pair, int]


def _of(channels: int, size: int | Pair, stride: int = 1) -> Layer:
    return channels, size, stride


def _around(inside: int, outside: int, count: int) -> tuple[Layer, ...]:
    """The layers of a factored 7x7 convolution: `count` pairs of 1x7 and 7x1."""
    sizes = ((1, 7), (7, 1)) if count == 1 else ((7, 1), (1, 7))
    last = 2 * count - 1
    return tuple(
        _of(outside if n == last else inside, sizes[n % 2]) for n in range(2 * count)
    )  # fmt: skip


class _Blocks:
    """The blocks of the paper's figures 5 to 7 and 10, at divided widths."""

    def __init__(self, net: Network, shrink: int) -> None:
        self.net, self.shrink = net, shrink

    def conv(self, x: Activation, layer: Layer) -> Activation:
        channels, size, stride = layer
        pad = 0 if stride == 2 else None
        return self.net.relu(self.net.conv(x, channels // self.shrink, size, stride, pad))

    def branch(self, x: Activation, layers: Sequence[Layer]) -> Activation:
        for layer in layers:
            x = self.conv(x, layer)
        return x

    def averaged(self, x: Activation, channels: int) -> Activation:
        return self.conv(self.net.pool(x, 3, 1, "Average", pad=1), _of(channels, 1))

    def block(self, x: Activation, pooled: int, *branches: Sequence[Layer]) -> Activation:
        """A block of branches and a pool, joined.  pooled: channels after the average pool; 0: a
        max pool with stride 2 instead"""
        last = self.averaged(x, pooled) if pooled else self.net.pool(x, 3, 2)
        return self.net.join(*(self.branch(x, b) for b in branches), last)

    def widest(self, x: Activation) -> Activation:
        """The widest block, with branches that end in a 1x3 and a 3x1 convolution side by side."""

        def split(x: Activation) -> list[Activation]:
            return [self.conv(x, _of(384, size)) for size in ((1, 3), (3, 1))]

        one = split(self.conv(x, _of(384, 1)))
        two = split(self.branch(x, (_of(448, 1), _of(384, 3))))
        return self.net.join(self.conv(x, _of(320, 1)), *one, *two, self.averaged(x, 192))


def inception(size: int = 299, shrink: int = 1) -> ModelProto:
    net = Network("Inception-v3")
    blocks = _Blocks(net, shrink)
    x = blocks.conv(net.image(size), _of(32, 3, 2))
    x = net.relu(net.conv(x, 32 // shrink, 3, pad=0))
    x = net.pool(blocks.conv(x, _of(64, 3)), 3, 2)
    x = blocks.conv(x, _of(80, 1))
    x = net.pool(net.relu(net.conv(x, 192 // shrink, 3, pad=0)), 3, 2)
    for pooled in (32, 64, 64):
        five, threes = (_of(48, 1), _of(64, 5)), (_of(64, 1), _of(96, 3), _of(96, 3))
        x = blocks.block(x, pooled, (_of(64, 1),), five, threes)
    x = blocks.block(x, 0, (_of(384, 3, 2),), (_of(64, 1), _of(96, 3), _of(96, 3, 2)))
    for inside in (128, 160, 160, 192):
        first = _of(inside, 1)
        once, twice = _around(inside, 192, 1), _around(inside, 192, 2)
        x = blocks.block(x, 192, (_of(192, 1),), (first, *once), (first, *twice))
    seven = (_of(192, 1), *_around(192, 192, 1), _of(192, 3, 2))
    x = blocks.block(x, 0, (_of(192, 1), _of(320, 3, 2)), seven)
    for _ in range(2):
        x = blocks.widest(x)
    return net.model(net.dense(net.mean(x), CLASSES))
