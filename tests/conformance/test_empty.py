"""Models whose results or operands are empty, and others that small extents make special, on hosts.

Input: models of one node or two.  Output: what onnxruntime or NumPy gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from conftest import BundleOf, RunBundle
from onnx import helper, numpy_helper

from tilewright.compiler import compile_model
from tilewright.frontend import load

Array = np.ndarray[Any, np.dtype[Any]]
F, L = np.float32, np.int64


def whole(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Array],
    outputs: str = "y",
    **weights: Array,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "small",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
         for n, x in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs.split()],
        [numpy_helper.from_array(x, n) for n, x in weights.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def node(op: str, operands: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, operands.split(), ["y"], **attributes)


def zeros(*shape: int, dtype: Any = F) -> Array:
    return np.zeros(shape, dtype)


X = np.arange(6, dtype=F).reshape(2, 3)
#: By name the nodes, inputs, weights, and the result.
Case = tuple[list[onnx.NodeProto], dict[str, Array], dict[str, Array], Array]
EMPTY: dict[str, Case] = {
    "relu": ([node("Relu", "x")], {"x": zeros(0, 3)}, {}, zeros(0, 3)),
    "add": ([node("Add", "x w")], {"x": zeros(0, 3)}, {"w": zeros(1, 3)}, zeros(0, 3)),
    "compare": ([node("Less", "x x")], {"x": zeros(0)}, {}, zeros(0, dtype=np.bool_)),
    "cast": ([node("Cast", "x", to=7)], {"x": zeros(2, 0)}, {}, zeros(2, 0, dtype=L)),
    "integers": ([node("Neg", "x")], {"x": zeros(0, dtype=L)}, {}, zeros(0, dtype=L)),
    "slice": ([node("Slice", "x a a")], {"x": X}, {"a": np.array([0])}, zeros(0, 3)),
    "concat": ([node("Concat", "x x", axis=0)], {"x": zeros(0, 3)}, {}, zeros(0, 3)),
    "transpose": ([node("Transpose", "x")], {"x": zeros(0, 3)}, {}, zeros(3, 0)),
    "reshape": ([node("Reshape", "x s", allowzero=1)], {"x": zeros(0, 3)},
                {"s": np.array([3, 0])}, zeros(3, 0)),
    "gather": ([node("Gather", "x i")], {"x": X}, {"i": zeros(0, dtype=L)}, zeros(0, 3)),
    "tile": ([node("Tile", "x r")], {"x": X}, {"r": np.array([0, 2])}, zeros(0, 6)),
    "expand": ([node("Expand", "x s")], {"x": X[:, :1]}, {"s": np.array([0, 2, 1])},
               zeros(0, 2, 1)),
    "kept mean": ([node("ReduceMean", "x a")], {"x": zeros(0, 3)}, {"a": np.array([1])},
                  zeros(0, 1)),
    "softmax": ([node("Softmax", "x")], {"x": zeros(0, 3)}, {}, zeros(0, 3)),
    "softmax of nothing": ([node("Softmax", "x")], {"x": zeros(2, 0)}, {}, zeros(2, 0)),
    "logarithms of shares of nothing": ([node("LogSoftmax", "x", axis=0)], {"x": zeros(0, 3)}, {},
                                        zeros(0, 3)),
    "no best values": ([helper.make_node("TopK", ["x", "k"], ["y", "i"])], {"x": X},
                       {"k": np.array([0])}, zeros(2, 0)),
    "no best places": ([helper.make_node("TopK", ["x", "k"], ["v", "y"])], {"x": X},
                       {"k": np.array([0])}, zeros(2, 0, dtype=L)),
    "no best of nothing": ([helper.make_node("TopK", ["x", "k"], ["y", "i"])], {"x": zeros(2, 0)},
                           {"k": np.array([0])}, zeros(2, 0)),
    "no steps": ([node("LSTM", "x w r", hidden_size=2)], {"x": zeros(0, 1, 3)},
                 {"w": zeros(1, 8, 3), "r": zeros(1, 8, 2)}, zeros(0, 1, 1, 2)),
    "product": ([node("MatMul", "x w")], {"x": zeros(0, 3)}, {"w": zeros(3, 2)}, zeros(0, 2)),
    "batches": ([node("MatMul", "x w")], {"x": zeros(0, 1, 2)}, {"w": zeros(1, 2, 1)},
                zeros(0, 1, 1)),
    "batches of the other": ([node("MatMul", "x w")], {"x": zeros(1, 2, 3)},
                             {"w": zeros(0, 3, 2)}, zeros(0, 2, 2)),
    "two axes of batches": ([node("MatMul", "x w")], {"x": zeros(0, 1, 1, 2)},
                            {"w": zeros(1, 4, 2, 1)}, zeros(0, 4, 1, 1)),
    "einsum": ([node("Einsum", "x w", equation="bij,bjk->bik")], {"x": zeros(0, 1, 2)},
               {"w": zeros(1, 2, 3)}, zeros(0, 1, 3)),
    "convolution": ([node("Conv", "x w")], {"x": zeros(0, 1, 4, 4)}, {"w": zeros(2, 1, 3, 3)},
                    zeros(0, 2, 2, 2)),
    "pooling": ([node("MaxPool", "x", kernel_shape=[2])], {"x": zeros(0, 1, 4)}, {},
                zeros(0, 1, 3)),
    "norm": ([node("LayerNormalization", "x w")], {"x": zeros(0, 3)}, {"w": zeros(3)},
             zeros(0, 3)),
}  # fmt: skip
TABLE = np.arange(32, dtype=np.uint8).reshape(2, 16)
SMALL: dict[str, Case] = {
    "sum of nothing": ([node("ReduceSum", "x a")], {"x": zeros(0, 3)}, {"a": np.array([0])},
                       zeros(1, 3)),
    "the state after no steps": (
        [helper.make_node("GRU", ["x", "w", "r", "", "", "h"], ["", "y"], hidden_size=2)],
        {"x": zeros(0, 1, 3)},
        {"w": zeros(1, 6, 3), "r": zeros(1, 6, 2), "h": np.array([[[1, 2]]], F)},
        np.array([[[1, 2]]], F),
    ),
    "product over nothing": ([node("MatMul", "x w")], {"x": zeros(2, 0)}, {"w": zeros(0, 3)},
                             zeros(2, 3)),
    "rows of a table from its end": (
        [node("GatherBlockQuantized", "t x s", domain="com.microsoft", bits=8, block_size=16)],
        {"x": np.array([-1, 0, -2])}, {"t": TABLE, "s": np.ones((2, 1), F)},
        TABLE[[-1, 0, -2]].astype(F) - 128,
    ),
    "wrap after a crop": ([node("Pad", "x p", mode="wrap")], {"x": X[0] + 1},
                          {"p": np.array([1, -1])}, np.array([2, 1, 2], F)),
    "reflect after a crop": ([node("Pad", "x p", mode="reflect")], {"x": np.arange(5, dtype=F)},
                             {"p": np.array([-2, 2])}, np.array([2, 3, 4, 3, 2], F)),
    "edge after a crop": ([node("Pad", "x p", mode="edge")], {"x": X[0]},
                          {"p": np.array([2, -1])}, np.array([0, 0, 0, 1], F)),
    "half of a product": ([node("Gemm", "x w c", alpha=0.5, beta=1.5)],
                          {"x": np.array([[2, -3]], np.int32)},
                          {"w": np.array([[3], [1]], np.int32), "c": np.array([[3]], np.int32)},
                          np.array([[6]], np.int32)),
    "part of a product, to zero": ([node("Gemm", "x w", alpha=0.3)],
                                   {"x": np.array([[-5]], np.int32)},
                                   {"w": np.array([[1]], np.int32)}, np.array([[-1]], np.int32)),
    "a whole multiple": ([node("Gemm", "x w", alpha=3.0)],
                         {"x": np.array([[50_000_001]], np.int32)},
                         {"w": np.array([[7]], np.int32)}, np.array([[1_050_000_021]], np.int32)),
}  # fmt: skip


@pytest.mark.by_turns
@pytest.mark.one_in(4, "cuda-cpu", "chromium-webgpu", "dawn", but=["relu"])
@pytest.mark.parametrize("name", [*EMPTY, *SMALL])
def test_small_extents(name: str, bundle_of: BundleOf, run_bundle: RunBundle) -> None:
    nodes, inputs, weights, want = {**EMPTY, **SMALL}[name]
    proto = whole(nodes, inputs, **weights)
    path = bundle_of(f"empty-{name}", lambda options: compile_model(load(proto), options).contents)
    found = run_bundle(path, inputs)["y"]
    assert (found.shape, found.dtype) == (want.shape, want.dtype)
    np.testing.assert_array_equal(found, want)
