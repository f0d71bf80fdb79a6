"""What benchmarks write models with: nodes and random weights, as ONNX.

Input: operators, shapes.  Output: an `onnx.ModelProto`.  Models are built of it in long_models.py
and peers/models.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shapes = Mapping[str, tuple[int, ...]]
OPSET, IR_VERSION = 17, 8


class Net:
    """Collects nodes and weights; every method returns the name of the tensor that it makes."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
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
