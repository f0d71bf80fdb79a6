"""Casts to f16 and bf16, and what tells that a computed tensor is f16, on every host.

Judged by NumPy's f16 and by ml_dtypes' bf16, exactly: each result is one operation, rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from conftest import TARGETS, options_for
from onnx import TensorProto, helper, numpy_helper

from tilewright.bundle import write
from tilewright.compiler import compile_model

F16, BF16, F32, I64, BOOL = (
    TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT, TensorProto.INT64,
    TensorProto.BOOL,
)  # fmt: skip
BF = ml_dtypes.bfloat16
INF, NAN = np.inf, np.nan

#: Beyond f16, ties and their neighbours, its smallest numbers; nothing that is subnormal in f32.
X = np.array(
    [70000, -65520, 65519, 2049, 2051, 1 / 3, -0.0, 2.0**-25, 3 * 2.0**-26, -1e-9, INF, NAN],
    np.float32,
)
H = np.array([60000, -40000, 2047, 300, 0.1, 1e-4, -0.0, 3.7, 1, -2.5, INF, NAN], np.float16)
W = np.array([65536, 1e-8, 2049, 0.1] * 3, np.float32)
WHOLE = np.array([2049, -2051, 65519, 65520, 10**9, -(10**12), 1, 0, 255, 257, 7, -3])

#: By output: its type, its nodes (operator, operands, result, attributes), what is right.
Nodes = list[tuple[str, list[str], str, dict[str, Any]]]
CASES: dict[str, tuple[int, Nodes, Callable[[], Any]]] = {
    "trip": (
        F32,
        [("Cast", ["x"], "t", {"to": F16}), ("Cast", ["t"], "trip", {"to": F32})],
        lambda: X.astype(np.float16).astype(np.float32),
    ),
    "brief": (
        F32,
        [("Cast", ["x"], "u", {"to": BF16}), ("Cast", ["u"], "brief", {"to": F32})],
        lambda: X.astype(BF).astype(np.float32),
    ),
    "like": (F16, [("CastLike", ["x", "h"], "like", {})], lambda: X.astype(np.float16)),
    "endless": (
        BOOL,
        [("CastLike", ["x", "h"], "v", {}), ("IsInf", ["v"], "endless", {})],
        lambda: np.isinf(X.astype(np.float16)),
    ),
    "weight": (F16, [("Cast", ["w"], "weight", {"to": F16})], lambda: W.astype(np.float16)),
    "whole": (F16, [("Cast", ["i"], "whole", {"to": F16})], lambda: WHOLE.astype(np.float16)),
    "square": (F16, [("Mul", ["h", "h"], "square", {})], lambda: H * H),
    "square is infinite": (
        BOOL,
        [("Mul", ["h", "h"], "a", {}), ("IsInf", ["a"], "square is infinite", {})],
        lambda: np.isinf(H * H),
    ),
    "square widened": (
        F32,
        [("Mul", ["h", "h"], "b", {}), ("Cast", ["b"], "square widened", {"to": F32})],
        lambda: (H * H).astype(np.float32),
    ),
    "less": (
        BOOL,
        [("Mul", ["h", "h"], "c", {}), ("Less", ["c", "h"], "less", {})],
        lambda: H * H < H,
    ),
    "floor": (
        F16,
        [("Mul", ["h", "h"], "d", {}), ("Floor", ["d"], "floor", {})],
        lambda: np.floor(H * H),
    ),
    "short": (
        BF16,
        [("Cast", ["h"], "e", {"to": BF16}), ("Add", ["e", "e"], "short", {})],
        lambda: H.astype(BF) + H.astype(BF),
    ),
}


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    inputs = [("x", F32, X), ("h", F16, H), ("i", I64, WHOLE)]
    graph = helper.make_graph(
        [
            helper.make_node(op, names, [result], **attributes)
            for _, nodes, _ in CASES.values()
            for op, names, result, attributes in nodes
        ],
        "halves",
        [info(name, kind, value.shape) for name, kind, value in inputs],
        [info(name, kind, X.shape) for name, (kind, _, _) in CASES.items()],
        [numpy_helper.from_array(W, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def test_halves_round_and_overflow(
    model: onnx.ModelProto, host_name: str, open_host: Callable[[Path], Any], tmp_path: Path
) -> None:
    options = options_for(TARGETS[host_name])
    write(compile_model(model, replace(options, targets=(TARGETS[host_name],))).contents, tmp_path)
    outputs = open_host(tmp_path).run({"x": X, "h": H, "i": WHOLE}).outputs
    with np.errstate(all="ignore"):
        right = {name: made() for name, (_, _, made) in CASES.items()}
    for name, wanted in right.items():
        found = outputs[name]
        assert found.dtype == wanted.dtype, name
        np.testing.assert_array_equal(found.astype(float), wanted.astype(float), err_msg=name)
        known = ~np.isnan(wanted.astype(float))
        signs = np.signbit(found.astype(float)) == np.signbit(wanted.astype(float))
        assert signs[known].all(), name
