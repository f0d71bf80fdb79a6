"""What benchmarks write models with: nodes and random weights, as ONNX.

Input: operators, shapes.  Output: an `onnx.ModelProto`.  Models are built of it in long_models.py
and peers/models.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shapes = Mapping[str, tuple[int, ...]]
OPSET, IR_VERSION = 17, 8


#: Of a U-Net: channels at each size, from the largest image to the smallest, and groups of a norm.
WIDTHS, GROUPS = (64, 128, 256), 8


class Net:
    """Collects nodes and weights; every method returns the name of the tensor that it makes."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        out = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=out, **attributes))
        return out

    def split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        names = [f"split_{len(self.nodes)}_{n}" for n in range(len(sizes))]
        self.nodes.append(helper.make_node("Split", [x, self.ints(*sizes)], names, axis=axis))
        return names

    def weight(self, *shape: int, scale: float = 0.05) -> str:
        """Normally distributed numbers."""
        return self.store(self._random.standard_normal(shape, np.float32) * np.float32(scale))

    def ones(self, count: int) -> str:
        return self.store(np.ones(count, np.float32))

    def number(self, value: float) -> str:
        return self.store(np.array(value, np.float32))

    def ints(self, *values: int) -> str:
        return self.store(np.array(values, np.int64))

    def store(self, value: np.ndarray[Any, Any]) -> str:
        name = f"w{len(self.stored)}"
        self.stored.append(numpy_helper.from_array(value, name))
        return name

    def linear(self, x: str, inside: int, outside: int, scale: float = 0.05) -> str:
        made = self.op("MatMul", x, self.weight(inside, outside, scale=scale))
        return self.op("Add", made, self.weight(outside))

    def conv(self, x: str, inside: int, outside: int, size: int, stride: int = 1,
             groups: int = 1) -> str:  # fmt: skip
        scale = sqrt(2 / (inside // groups * size**2))
        filters = self.weight(outside, inside // groups, size, size, scale=scale)
        sizes = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [size // 2] * 4}
        return self.op("Conv", x, filters, self.weight(outside), group=groups, **sizes)

    def group_norm(self, x: str, shape: tuple[int, ...], groups: int) -> str:
        """As PyTorch's exporter writes it."""
        split = self.op("Reshape", x, self.ints(0, groups, -1))
        nothing = self.store(np.zeros(groups, np.float32))
        made = self.op("InstanceNormalization", split, self.ones(groups), nothing, epsilon=1e-5)
        channels = (shape[1], 1, 1)
        whole = self.op("Mul", self.op("Reshape", made, self.ints(*shape)), self.weight(*channels))
        return self.op("Add", whole, self.weight(*channels))

    def blocks(self, x: str, inside: int, outside: int, block: int = 32) -> str:
        """A product whose weights have 4 bits and a scale per block; bytes may do for `x`."""
        shape = (outside, inside // block)
        bits = self._random.integers(0, 256, (*shape, block // 2), np.uint8)
        scales = (0.5 + self._random.random(shape, np.float32)) * np.float32(0.2 * inside**-0.5)
        sizes = {"K": inside, "N": outside, "bits": 4, "block_size": block, "accuracy_level": 4}
        operands = (x, self.store(bits), self.store(scales))
        return self.op("MatMulNBits", *operands, domain="com.microsoft", **sizes)

    def model(
        self, inputs: Shapes, outputs: Shapes, name: str = "mixed", kind: int = TensorProto.FLOAT,
        made: int = TensorProto.FLOAT,
    ) -> onnx.ModelProto:  # fmt: skip
        """The whole; `kind` is the inputs' element type, `made` the outputs'."""
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(n, kind, s) for n, s in inputs.items()],
            [helper.make_tensor_value_info(n, made, s) for n, s in outputs.items()],
            self.stored,
        )
        domains = sorted({node.domain for node in self.nodes} | {""})
        opsets = [helper.make_opsetid(d, 1 if d else OPSET) for d in domains]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def unet(size: int = 256, widths: Sequence[int] = WIDTHS, groups: int = GROUPS) -> onnx.ModelProto:
    """A U-Net with group norms and SiLU on an image: as PyTorch's exporter writes that of
    cuda.pytorch."""
    b = Net()

    def half(x: str, inside: int, outside: int, size: int) -> str:
        made = b.conv(x, inside, outside, 3)
        made = b.group_norm(made, (1, outside, size, size), groups)
        return b.op("Mul", made, b.op("Sigmoid", made))

    def block(x: str, inside: int, outside: int, size: int) -> str:
        return half(half(x, inside, outside, size), outside, outside, size)

    x, inside, skips = "x", 3, list[str]()
    for level, width in enumerate(widths):
        if level:
            x = b.conv(x, inside, inside, 3, 2)
        x = block(x, inside, width, size >> level)
        skips.append(x)
        inside = width
    for level in reversed(range(len(widths) - 1)):
        sizes = b.store(np.array([1, 1, 2, 2], np.float32))
        how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        x = b.op("Resize", x, "", sizes, mode="nearest", **how)
        x = b.op("Concat", b.conv(x, inside, widths[level], 3), skips[level], axis=1)
        x = block(x, 2 * widths[level], widths[level], size >> level)
        inside = widths[level]
    y = b.conv(x, inside, 3, 1)
    shape = (1, 3, size, size)
    return b.model({"x": shape}, {y: shape}, "unet")
