"""Models whose tensors and dimensions have names that every object of JavaScript inherits.

Input: a rotation of the names.  Output: the model, who has which name, and what it computes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

NAMES = (
    "toString", "constructor", "__proto__", "valueOf", "hasOwnProperty", "isPrototypeOf",
    "__defineGetter__", "toLocaleString",
)  # fmt: skip
#: Buckets of the dimension, and elements of the state.
BUCKETS = (4, 8)
STATE = 3


@dataclass(frozen=True)
class Roles:
    """By rotation; so each name has each part in turn."""

    left: str
    right: str
    total: str
    product: str
    size: str
    state: str
    after: str
    node: str

    @property
    def inputs(self) -> list[str]:
        return [self.left, self.right]


def roles(rotation: int) -> Roles:
    return Roles(*NAMES[rotation:], *NAMES[:rotation])


def model(names: Roles) -> onnx.ModelProto:
    """total = left + right; product = left * right; the state grows by 1."""

    def info(name: str, size: str | int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [size])

    one = helper.make_tensor("one", TensorProto.FLOAT, [STATE], np.ones(STATE, np.float32))
    nodes = [
        helper.make_node("Add", [names.left, names.right], [names.total], name=names.node),
        helper.make_node("Mul", [names.left, names.right], [names.product]),
        helper.make_node("Add", [names.state, "one"], [names.after]),
    ]
    inputs = [*(info(name, names.size) for name in names.inputs), info(names.state, STATE)]
    outputs = [info(name, names.size) for name in (names.total, names.product)]
    graph = helper.make_graph(nodes, "names", inputs, [*outputs, info(names.after, STATE)], [one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
