"""A model with every kind of output that no kernel makes, and one that a kernel makes.

Input: a length of the named dimension n, and the bucket that holds it.  Output: the model, its
input, and what every host must give.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]

BUCKETS = (4, 8)

#: Constants of every element type, a large and an empty one among them.
KNOWN: dict[str, Array] = {
    "table": np.random.default_rng(1).standard_normal((70, 61)).astype(np.float32),
    "few": np.array([1.5, -0.0, np.inf], np.float32),
    "one": np.array(7, np.int64),
    "double": np.linspace(-1, 1, 30),
    "bytes": np.arange(20, dtype=np.uint8),
    "signed": np.arange(-10, 10, dtype=np.int8),
    "whole": np.arange(5, dtype=np.int32),
    "flags": np.array([True, False, True]),
    "nothing": np.zeros((0, 3), np.int64),
}

TYPES = {
    **{name: helper.np_dtype_to_tensor_dtype(v.dtype) for name, v in KNOWN.items()},
    "x": TensorProto.FLOAT, "same": TensorProto.FLOAT,
    "shape": TensorProto.INT64, "size": TensorProto.INT64,
    "line": TensorProto.INT64, "rows": TensorProto.FLOAT, "zeros": TensorProto.FLOAT,
    "doubled": TensorProto.FLOAT, "again": TensorProto.FLOAT,
    "none": TensorProto.FLOAT, "sum": TensorProto.FLOAT,
}  # fmt: skip


def known(doubles: bool = True) -> dict[str, Array]:
    """The constants; `doubles`: those of f64 too."""
    return {name: v for name, v in KNOWN.items() if doubles or v.dtype != np.float64}


def model(doubles: bool = True) -> onnx.ModelProto:
    kept, left = known(doubles), KNOWN.keys() - known(doubles)
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Size", ["x"], ["size"]),
        helper.make_node("Gather", ["shape", "second"], ["n"]),
        helper.make_node("Range", ["zero", "n", "step"], ["line"]),
        helper.make_node("Shape", ["x"], ["length"], start=1),
        helper.make_node("Concat", ["length", "three"], ["tall"], axis=0),
        helper.make_node("Expand", ["few", "tall"], ["rows"]),
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("Add", ["x", "x"], ["doubled"]),
        helper.make_node("Identity", ["doubled"], ["again"]),
        helper.make_node("Slice", ["x", "start", "start", "axis"], ["none"]),
        helper.make_node("ReduceSum", ["none", "axis"], ["sum"], keepdims=0),
    ]
    more = {
        "second": np.array(1), "zero": np.array(0), "step": np.array(1),
        "three": np.array([3]), "start": np.array([0]), "axis": np.array([1]),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "outputs",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "n"])],
        [
            helper.make_tensor_value_info(n, kind, None)
            for n, kind in TYPES.items()
            if n not in left
        ],
        [numpy_helper.from_array(v, name) for name, v in (kept | more).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def given(length: int) -> Array:
    """x: [1, length]"""
    return np.linspace(1, 2, length, dtype=np.float32)[None]


def wanted(length: int, bucket: int, doubles: bool = True) -> dict[str, Array]:
    """Axes of n are cropped; a number that counts n counts the bucket."""
    x = given(length)
    return {
        **known(doubles),
        "x": x,
        "same": x,
        "shape": np.array([1, bucket]),
        "size": np.array(bucket),
        "line": np.arange(length),
        "rows": np.tile(KNOWN["few"], (length, 1)),
        "zeros": np.zeros((1, length), np.float32),
        "doubled": 2 * x,
        "again": 2 * x,
        "none": np.zeros((1, 0), np.float32),
        "sum": np.zeros(1, np.float32),
    }
