"""What the crafted models are made of: the registry, and short names for ONNX's helpers.

Output: `HOSTILE`: by name, a function that writes a file into a folder and returns its path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Make = Callable[[Path], Path]
HOSTILE: dict[str, Make] = {}


def hostile(make: Callable[[], ModelProto | bytes]) -> Callable[[], ModelProto | bytes]:
    """Registers a model that needs no other file."""

    def write(folder: Path) -> Path:
        made, path = make(), folder / "model.onnx"
        path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
        return path

    HOSTILE[make.__name__] = write
    return make


def info(name: str, dims: Sequence[int | str | None] | None = (2,), kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def ints(name: str, *values: int) -> TensorProto:
    return helper.make_tensor(name, INT64, [len(values)], values)


def number(name: str, value: int) -> TensorProto:
    return helper.make_tensor(name, INT64, [], [value])


def whole(
    nodes: Iterable[NodeProto],
    weights: Sequence[TensorProto] = (),
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> ModelProto:
    given = [info("x")] if inputs is None else inputs
    results = [info(o, None) for o in outputs]
    graph = helper.make_graph(list(nodes), "hostile", given, results, list(weights))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=list(functions))


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def body(nodes: Sequence[NodeProto], inputs: Sequence[Any], outputs: Sequence[Any]) -> GraphProto:
    return helper.make_graph(list(nodes), "body", list(inputs), list(outputs))
