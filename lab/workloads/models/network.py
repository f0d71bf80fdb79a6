"""A neural network as ONNX, layer by layer, with random weights from a seed.

Input: calls that add layers in order.  Output: a `ModelProto` of opset 17.  Shapes are known at
once, so a layer takes its number of inputs from the previous layer.  Weights are scaled so that
activations stay near 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, prod

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

OPSET, IR_VERSION = 17, 8

Pair = tuple[int, int]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Activation:
    """A tensor of the network; images are (batch, channels, height, width)."""

    name: str
    shape: tuple[int, ...]


def pair(size: int | Pair) -> Pair:
    return (size, size) if isinstance(size, int) else size


class Network:
    """An ONNX graph under construction."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        self._rng = np.random.default_rng(seed)
        self._inputs: list[ValueInfoProto] = []
        self._nodes: list[NodeProto] = []
        self._weights: list[TensorProto] = []

    # ---- parts --------------------------------------------------------------------------------

    def input(self, name: str, shape: Sequence[int], kind: int = TensorProto.FLOAT) -> Activation:
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return Activation(name, tuple(shape))

    def image(self, size: int) -> Activation:
        """An input f32[1, 3, size, size]."""
        return self.input("image", (1, 3, size, size))

    def constant(self, value: NDArray[np.generic]) -> str:
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(value, name))
        return name

    def normal(self, shape: Sequence[int], deviation: float) -> str:
        """Random f32 weights around 0 with this standard deviation; returns their name."""
        drawn = self._rng.standard_normal(tuple(shape), dtype=np.float32)
        return self.constant(drawn * np.float32(deviation))

    def between(self, low: float, high: float, size: int) -> str:
        return self.constant(self._rng.uniform(low, high, size).astype(np.float32))

    def op(
        self, kind: str, shape: Sequence[int], *inputs: Activation | str, **attributes: object
    ) -> Activation:
        """Adds an ONNX node with one output of this shape."""
        name = f"v{len(self._nodes)}"
        names = [i.name if isinstance(i, Activation) else i for i in inputs]
        node = helper.make_node(kind, names, [name])
        node.attribute.extend(helper.make_attribute(*each) for each in sorted(attributes.items()))
        self._nodes.append(node)
        return Activation(name, tuple(shape))

    def model(self, output: Activation) -> ModelProto:
        out = helper.make_tensor_value_info(output.name, TensorProto.FLOAT, output.shape)
        graph = helper.make_graph(self._nodes, self.name, self._inputs, [out], self._weights)
        opsets = [helper.make_opsetid("", OPSET)]
        made: ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        return made

    # ---- layers -------------------------------------------------------------------------------

    def conv(
        self,
        x: Activation,
        channels: int,
        size: int | Pair,
        stride: int = 1,
        pad: int | Pair | None = None,
        groups: int = 1,
        gain: float = 1.0,
    ) -> Activation:
        """A convolution with bias.  Without `pad` the output's extent is the input's divided by the
        stride.

        gain: factor of the weights; below 1 if the result is added to others
        """
        kernel = pair(size)
        pads = pair(pad) if pad is not None else (kernel[0] // 2, kernel[1] // 2)
        inside = x.shape[1] // groups
        fan = inside * prod(kernel)
        weight = self.normal((channels, inside, *kernel), gain * (2 / fan) ** 0.5)
        bias = self.between(-0.1, 0.1, channels)
        spatial = [
            (n + 2 * p - k) // stride + 1 for n, p, k in zip(x.shape[2:], pads, kernel, strict=True)
        ]
        return self.op(
            "Conv", (x.shape[0], channels, *spatial), x, weight, bias,
            kernel_shape=kernel, strides=(stride, stride), pads=pads * 2, group=groups,
        )  # fmt: skip

    def relu(self, x: Activation) -> Activation:
        return self.op("Relu", x.shape, x)

    def clipped(self, x: Activation) -> Activation:
        """min(max(x, 0), 6)"""
        low, high = (self.constant(np.array(n, np.float32)) for n in (0, 6))
        return self.op("Clip", x.shape, x, low, high)

    def norm(self, x: Activation) -> Activation:
        """Batch normalization with stored statistics."""
        n = x.shape[1]
        scale, bias = self.between(0.5, 1.5, n), self.between(-0.2, 0.2, n)
        mean, variance = self.between(-0.2, 0.2, n), self.between(0.5, 1.5, n)
        return self.op("BatchNormalization", x.shape, x, scale, bias, mean, variance)

    def pool(
        self,
        x: Activation,
        size: int,
        stride: int,
        kind: str = "Max",
        pad: int = 0,
        up: bool = False,
    ) -> Activation:
        """A pool.  up: whether a window that ends outside is used.  Averages are over elements
        inside."""
        rounded = ceil if up else floor
        spatial = [rounded((n + 2 * pad - size) / stride) + 1 for n in x.shape[2:]]
        return self.op(
            f"{kind}Pool", (*x.shape[:2], *spatial), x,
            kernel_shape=pair(size), strides=pair(stride), pads=(pad,) * 4, ceil_mode=int(up),
        )  # fmt: skip

    def mean(self, x: Activation) -> Activation:
        """The mean over all positions of an image: [batch, channels]."""
        return self.flat(self.op("GlobalAveragePool", (*x.shape[:2], 1, 1), x))

    def flat(self, x: Activation) -> Activation:
        return self.op("Flatten", (x.shape[0], prod(x.shape[1:])), x, axis=1)

    def dense(self, x: Activation, outputs: int) -> Activation:
        """A dense layer of an activation [batch, inputs]: [batch, outputs]."""
        weight = self.normal((x.shape[1], outputs), x.shape[1] ** -0.5)
        bias = self.between(-0.1, 0.1, outputs)
        return self.op("Gemm", (x.shape[0], outputs), x, weight, bias)

    def add(self, a: Activation, b: Activation) -> Activation:
        return self.op("Add", a.shape, a, b)

    def join(self, *parts: Activation) -> Activation:
        """Several images joined along their channels."""
        first = parts[0].shape
        channels = sum(p.shape[1] for p in parts)
        return self.op("Concat", (first[0], channels, *first[2:]), *parts, axis=1)
