"""Models of any number of nodes, as ONNX: what real ones are made of, with weights of their own.

Input: how many nodes.  Output: an `onnx.ModelProto`: residual convolutions with batch norm, then
encoder layers (attention, layer norm and GELU written out) with gates between them; the width grows
with depth, so that kernels differ.  Weights are small random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from benchmarks.models.nets import Net

LENGTH, HEADS, CHANNELS, WIDTH = 64, 4, 8, 32


def mixed(nodes: int) -> onnx.ModelProto:
    """A model of about so many nodes, three tenths of them in convolutions."""
    b = _Builder()
    x, layers, width = "image", 0, WIDTH
    while len(b.nodes) < 0.3 * nodes:
        x = b.residual_convs(x, CHANNELS)
    tokens = b.op("Reshape", x, b.ints(CHANNELS, LENGTH))
    x = b.linear(b.op("Transpose", tokens, perm=(1, 0)), CHANNELS, width)
    while len(b.nodes) < nodes:
        x = b.gate(b.feed_forward(b.attention(x, width), width), width)
        layers += 1
        if layers % 24 == 0:
            x = b.linear(x, width, width + 8)
            width += 8
    return b.model({"image": (1, CHANNELS, 8, 8)}, {x: (LENGTH, width)})


class _Builder(Net):
    """The layers of such a model."""

    def norm(self, x: str, width: int) -> str:
        rest = {"axes": [-1], "keepdims": 1}
        centred = self.op("Sub", x, self.op("ReduceMean", x, **rest))
        variance = self.op("ReduceMean", self.op("Mul", centred, centred), **rest)
        deviation = self.op("Sqrt", self.op("Add", variance, self.number(1e-5)))
        made = self.op("Mul", self.op("Div", centred, deviation), self.weight(width))
        return self.op("Add", made, self.weight(width))

    def attention(self, x: str, width: int) -> str:
        split = self.ints(LENGTH, HEADS, width // HEADS)

        def heads(perm: Sequence[int]) -> str:
            made = self.op("Reshape", self.linear(x, width, width), split)
            return self.op("Transpose", made, perm=perm)

        scores = self.op("MatMul", heads((1, 0, 2)), heads((1, 2, 0)))
        scaled = self.op("Mul", scores, self.number((width // HEADS) ** -0.5))
        mixed = self.op("MatMul", self.op("Softmax", scaled, axis=-1), heads((1, 0, 2)))
        rows = self.op("Transpose", mixed, perm=(1, 0, 2))
        joined = self.op("Reshape", rows, self.ints(LENGTH, width))
        return self.norm(self.op("Add", self.linear(joined, width, width), x), width)

    def feed_forward(self, x: str, width: int) -> str:
        inner = self.linear(x, width, 2 * width)
        erf = self.op("Erf", self.op("Mul", inner, self.number(0.5**0.5)))
        half = self.op("Mul", inner, self.number(0.5))
        gelu = self.op("Mul", half, self.op("Add", erf, self.number(1.0)))
        return self.norm(self.op("Add", self.linear(gelu, 2 * width, width), x), width)

    def gate(self, x: str, width: int) -> str:
        opened = self.op("Sigmoid", self.op("Mul", x, self.weight(width)))
        passed = self.op("Tanh", self.op("Add", x, self.weight(width)))
        return self.op("Add", x, self.op("Mul", opened, passed))

    def residual_convs(self, x: str, channels: int) -> str:
        wide = self.weight(channels, channels, 3, 3)
        y = self.op("Conv", x, wide, self.weight(channels), pads=[1, 1, 1, 1])
        scale, bias, mean = (self.weight(channels) for _ in range(3))
        y = self.op("BatchNormalization", y, scale, bias, mean, self.ones(channels))
        narrow = self.weight(channels, channels, 1, 1)
        y = self.op("Conv", self.op("Relu", y), narrow, self.weight(channels))
        return self.op("Relu", self.op("Add", x, y))
