"""A model whose weights are halves: tiles, thin products, a convolution, a table, odd sizes.

Input: nothing.  Output: the model, inputs, and what it computes in f64 on the same weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]

ROWS, DEPTH, WIDTH, TABLE = 33, 75, 130, 51


def weights() -> dict[str, Array]:
    """wide: a product's; odd: of 37 columns; bias: of odd length; table: rows that ids choose."""
    rng = np.random.default_rng(5)
    shapes = {"wide": (DEPTH, WIDTH), "odd": (WIDTH, 37), "bias": (37,), "table": (TABLE, DEPTH)}
    shapes["kernel"] = (6, 3, 3, 3)
    return {n: (rng.standard_normal(s) / 4).astype(np.float16) for n, s in shapes.items()}


def model() -> onnx.ModelProto:
    """f16 in the file; activations are f32, so that hosts can be judged in f32."""
    given = weights()
    nodes = [helper.make_node("Cast", [n], [f"{n}_"], to=TensorProto.FLOAT) for n in given]
    nodes += [
        helper.make_node("MatMul", ["x", "wide_"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MatMul", ["r", "odd_"], ["b"]),
        helper.make_node("Add", ["b", "bias_"], ["tiled"]),
        helper.make_node("Cast", ["ids"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table_", "whole"], ["row"]),
        helper.make_node("MatMul", ["row", "wide_"], ["thin"]),
        helper.make_node("Conv", ["image", "kernel_"], ["convolved"]),
    ]
    info = helper.make_tensor_value_info
    floats = TensorProto.FLOAT
    inputs = [("x", [ROWS, DEPTH]), ("image", [1, 3, 9, 11]), ("ids", [1])]
    graph = helper.make_graph(
        nodes, "halves",
        [info(n, floats, s) for n, s in inputs],
        [info(n, floats, None) for n in ("tiled", "thin", "convolved")],
        [numpy_helper.from_array(v, n) for n, v in given.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def inputs() -> dict[str, Array]:
    rng = np.random.default_rng(6)
    return {
        "x": rng.standard_normal((ROWS, DEPTH)).astype(np.float32),
        "image": rng.standard_normal((1, 3, 9, 11)).astype(np.float32),
        "ids": np.array([TABLE - 1], np.float32),
    }


def wanted() -> dict[str, Array]:
    w = {n: v.astype(np.float64) for n, v in weights().items()}
    x = inputs()
    tiled = np.maximum(x["x"] @ w["wide"], 0) @ w["odd"] + w["bias"]
    image = np.lib.stride_tricks.sliding_window_view(x["image"][0], (3, 3), (1, 2))
    convolved = np.einsum("chwij,ocij->ohw", image, w["kernel"])[None]
    return {"tiled": tiled, "thin": w["table"][[TABLE - 1]] @ w["wide"], "convolved": convolved}
