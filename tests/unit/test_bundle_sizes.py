"""Bundles of small models with large shapes: no table in them grows with an area.

A table may be as long as an axis.  So a model of some hundred bytes gives a bundle of kilobytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.frontend import load

#: Four neighbours of 1,440 rows, their weights, and the edges along 2,560 columns: 95 kB.
MOST = 128_000
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Small:
    """A model of a few nodes: inputs `x` (and `i`, of i64), result `y`, and constants."""

    nodes: Sequence[NodeProto]
    x: Shape
    i: Shape = ()
    constants: dict[str, Any] = field(default_factory=dict)
    opset: int = 19
    result: int = FLOAT


def _node(op: str, operands: str, result: str = "y", **attributes: Any) -> NodeProto:
    names = ["" if n == "-" else n for n in operands.split()]
    return helper.make_node(op, names, [result], **attributes)


def _resize(x: Shape, scales: Sequence[float], opset: int = 19, **more: Any) -> Small:
    s = {"s": np.array(scales, np.float32)}
    if opset < 10:
        return Small([_node("Upsample", "x s", **more)], x, constants=s, opset=opset)
    return Small([_node("Resize", "x - s", **more)], x, constants=s, opset=opset)


def _pad(mode: str) -> Small:
    return Small(
        [_node("Pad", "x p", mode=mode)], (1, 1_000_000), constants={"p": np.array([0, 5, 0, 5])}
    )


PICTURE = (1, 3, 1080, 1920)
TWICE = (1, 1, 2, 2)
SQUARE = (1024, 1024)
MODELS = {
    "linear": _resize((1, 3, 540, 960), TWICE, mode="linear"),
    "linear-720": _resize((1, 3, 720, 1280), TWICE, mode="linear"),
    "linear-broken": _resize((1, 3, 720, 1280), (1, 1, 1.4, 1.4), mode="linear"),
    "cubic": _resize((1, 3, 720, 1280), TWICE, mode="cubic"),
    "nearest": _resize((1, 3, 720, 1280), TWICE),
    "antialias": _resize((1, 3, 540, 960), (1, 1, 0.4, 0.4), mode="linear", antialias=1),
    "line": _resize((1, 1, 200_000), (1, 1, 2), mode="linear"),
    "nearest-line": _resize((1, 1, 200_000), (1, 1, 2)),
    "upsample": _resize((1, 3, 540, 960), TWICE, 9, mode="linear"),
    "average": Small([_node("AveragePool", "x", kernel_shape=[3, 3], pads=[1] * 4)], PICTURE),
    "average-ceiled": Small(
        [_node("AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4,
               ceil_mode=1, count_include_pad=1)], PICTURE,
    ),
    "average-line": Small(
        [_node("AveragePool", "x", kernel_shape=[3], pads=[2, 2], dilations=[2])], (1, 1, 2_000_000)
    ),
    "maximum": Small([_node("MaxPool", "x", kernel_shape=[3, 3], pads=[1] * 4)], PICTURE),
    "reflect": _pad("reflect"),
    "edge": _pad("edge"),
    "wrap": _pad("wrap"),
    "elements": Small([_node("GatherElements", "x i", axis=1)], (512, 512), (512, 512)),
    "tuples": Small([_node("GatherND", "x i", batch_dims=1)], (512, 512, 4), (512, 512, 1)),
    "one-hot": Small(
        [_node("OneHot", "i d v", "h"), _node("Add", "h x")], (1,), (512,),
        {"d": np.array(30_000), "v": np.array([0, 1], np.float32)},
    ),
    "triangle": Small([_node("Trilu", "x")], SQUARE),
    "causal": Small(
        [_node("ConstantOfShape", "s", "o"), _node("Trilu", "o k", "m"), _node("Add", "x m")],
        SQUARE, constants={"s": np.array(SQUARE), "k": np.array(1)},
    ),
    "attention": Small([_node("Attention", "x x x", is_causal=1)], (1, 2, 1024, 8), opset=23),
    "unit": Small([_node("EyeLike", "x")], SQUARE),
    "diagonal": Small([_node("Einsum", "x", equation="ii->i")], SQUARE),
    "range": Small(
        [_node("Range", "a b c", "r"), _node("Shape", "x", "s"), _node("Add", "r s")], (10,),
        constants={"a": np.array(0), "b": np.array(1_000_000), "c": np.array(1)}, result=INT64,
    ),
    "expanded": Small([_node("Expand", "x s")], (1,), constants={"s": np.array(SQUARE)}),
    "filled": Small([_node("ConstantOfShape", "s")], (1,), constants={"s": np.array(SQUARE)}),
    "hard-max": Small([_node("Hardmax", "x", axis=0)], SQUARE),
    "first-of": Small([_node("ArgMax", "x", axis=0)], SQUARE, result=INT64),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_no_table_grows_with_an_area(name: str, tmp_path: Path) -> None:
    small = MODELS[name]
    info = helper.make_tensor_value_info
    inputs = [info("x", FLOAT, small.x), *([info("i", INT64, small.i)] if small.i else [])]
    constants = [numpy_helper.from_array(v, n) for n, v in small.constants.items()]
    outputs = [info("y", small.result, None)]
    graph = helper.make_graph(list(small.nodes), name, inputs, outputs, constants)
    opsets = [helper.make_opsetid("", small.opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    assert model.ByteSize() < 1000
    write(compile_model(load(model), Options(targets=("wasm",))).contents, tmp_path)
    assert sum(f.stat().st_size for f in tmp_path.rglob("*") if f.is_file()) < MOST
