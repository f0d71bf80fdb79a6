"""The layouts that a bundle's table of tensors names are those in which its bytes lie.

Input: one model per layout.  Output: the weight, read back from the shards by the formulas of
kernel/layout.py alone; kernels and their index algebra take no part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.bundle import Bundle, TensorEntry, open_bundle, write
from tilewright.compiler import compile_model
from tilewright.frontend import load

Array = np.ndarray[Any, np.dtype[Any]]

RNG = np.random.default_rng(0)
FLOATS = RNG.standard_normal((16, 20)).astype(np.float32)
BYTES = RNG.integers(-128, 128, (16, 20)).astype(np.int8)
TAPS = RNG.integers(-128, 128, (24, 1, 3, 3)).astype(np.int8)
NIBBLES = RNG.integers(-8, 8, (64, 24)).astype(np.int8)


def model(
    nodes: list[onnx.NodeProto], kind: int, shape: list[int], *weights: onnx.TensorProto
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", kind, shape)
    y = helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def model_of(name: str) -> onnx.ModelProto:
    make, array = helper.make_node, numpy_helper.from_array
    if name == "rows":
        nodes = [make("Gather", ["w", "x"], ["y"])]
        return model(nodes, TensorProto.INT64, [4], array(FLOATS, "w"))
    if name == "panels":
        nodes = [make("MatMul", ["x", "w"], ["y"])]
        return model(nodes, TensorProto.FLOAT, [4, 16], array(FLOATS, "w"))
    if name == "groups":
        nodes = [make("MatMulInteger", ["x", "w"], ["y"])]
        return model(nodes, TensorProto.UINT8, [4, 16], array(BYTES, "w"))
    if name == "taps":  # of an image whose channels are innermost
        nodes = [
            make("Transpose", ["x"], ["i"], perm=[0, 3, 1, 2]),
            make("ConvInteger", ["i", "w"], ["o"], group=24),
            make("Transpose", ["o"], ["y"], perm=[0, 2, 3, 1]),
        ]
        return model(nodes, TensorProto.UINT8, [1, 8, 8, 24], array(TAPS, "w"))
    integers = helper.make_tensor("q", TensorProto.INT4, NIBBLES.shape, NIBBLES.ravel().tolist())
    scales = array(RNG.random((2, 24), np.float32) + 0.5, "s")
    nodes = [
        make("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=32),
        make("MatMul", ["x", "w"], ["y"]),
    ]
    return model(nodes, TensorProto.FLOAT, [1, 64], integers, scales)


def element(data: Array, layout: tuple[str | int, ...], at: tuple[int, ...]) -> Any:
    """The element of a weight at [k, n], or at [channel, 0, row, column]."""
    match layout:
        case ("rows",):
            return data[at]
        case ("panels", int(width)):
            k, n = at
            return data[n // width, k, n % width]
        case ("groups", int(size), int(width)):
            k, n = at
            return data[n // width, k // size, n % width, k % size]
        case ("taps", int(size)):
            channel, _, row, column = at
            return data[column, row // size, channel, row % size]
        case ("blocks", int(width), 4, int(size)):
            k, n = at
            word = int(data[n // width, k // size, k % size // 8, n % width])
            return (word >> 4 * (k % 8) & 15) - 8  # signed ones are stored plus 8
    raise AssertionError(layout)


def read(bundle: Bundle, entry: TensorEntry) -> Array:
    kinds = {"f32": np.float32, "i8": np.int8, "i32": np.int32}
    stored = b"".join(bundle.weights())[entry.offset : entry.offset + entry.bytes]
    return np.frombuffer(stored, kinds[entry.dtype]).reshape(entry.shape)


LAYOUTS: dict[tuple[str | int, ...], Array] = {
    ("rows",): FLOATS,
    ("panels", 8): FLOATS,
    ("groups", 4, 8): BYTES,
    ("taps", 4): TAPS,
    ("blocks", 8, 4, 32): NIBBLES,
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout[0])
def test_weights_lie_as_the_table_says(layout: tuple[str | int, ...], tmp_path: Path) -> None:
    weight = LAYOUTS[layout]
    write(compile_model(load(model_of(str(layout[0])))).contents, tmp_path)
    bundle = open_bundle(tmp_path)
    entry = bundle.tensors()[0]
    assert entry.layout == layout
    data = read(bundle, entry)
    found = [element(data, entry.layout, at) for at in np.ndindex(weight.shape)]
    np.testing.assert_array_equal(np.reshape(found, weight.shape), weight)
