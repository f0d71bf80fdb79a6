"""Block-quantised weights at the edges: zeros outside a byte, two differences, casts that wrap.

ONNX's reference judges, since onnxruntime rounds activations to bytes here; f64 judges long sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from frontend_factory import Array, distance, model
from onnx import TensorProto
from onnx.helper import make_node
from onnx.reference import ReferenceEvaluator

from tilewright.bundle import write
from tilewright.compiler import compile_model
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import WasmtimeHost

K, N = 64, 24
RNG = np.random.default_rng(0)
SCALE = RNG.random((1, N)).astype(np.float32)
ONE = np.array(1, np.float32)

CASES: dict[str, tuple[list[onnx.NodeProto], Mapping[str, Array]]] = {
    "zeros far below": (
        [make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=1)],
        {"q": RNG.integers(-8, 8, (K, N)).astype(np.int8), "s": SCALE[0],
         "z": np.where(RNG.random(N) < 0.5, -100, 125).astype(np.int8)},
    ),
    "two differences": (
        [make_node("DequantizeLinear", ["q", "one", "z"], ["f"]),
         make_node("Sub", ["f", "more"], ["g"]), make_node("Mul", ["g", "s"], ["w"])],
        {"q": RNG.integers(0, 200, (K, N)).astype(np.uint8), "one": ONE, "s": SCALE,
         "z": np.array(100, np.uint8), "more": np.arange(N, dtype=np.float32)[None] + 5},
    ),
    "a cast that wraps": (
        [make_node("Cast", ["q"], ["u"], to=TensorProto.UINT8),
         make_node("DequantizeLinear", ["u", "one"], ["w"])],
        {"q": RNG.integers(-8, 8, (K, N)).astype(np.int32), "one": ONE},
    ),
}  # fmt: skip


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("name", CASES)
def test_every_integer_counts_as_what_it_is(name: str, rows: int, tmp_path: Path) -> None:
    nodes, weights = CASES[name]
    made = model(
        [*nodes, make_node("MatMul", ["x", "w"], ["y"])], {"x": [rows, K]}, ["y"], weights, opset=21
    )
    onnx.save(made, tmp_path / "m.onnx")
    x = {"x": RNG.standard_normal((rows, K)).astype(np.float32)}
    (want,) = ReferenceEvaluator(made).run(None, x)
    write(compile_model(tmp_path / "m.onnx").contents, tmp_path / "b")
    for host in (ReferenceHost(tmp_path / "b"), WasmtimeHost(tmp_path / "b")):
        assert distance(host.run(x).outputs["y"], want) < 1e-5


def test_one_row_of_eight_bits_keeps_its_digits(tmp_path: Path) -> None:
    """Zeros near 128 and activations that are all positive."""
    depth = 4096
    q = RNG.integers(126, 131, (depth, N)).astype(np.uint8)
    weights = {"q": q, "s": np.full(N, 0.01, np.float32), "z": np.full(N, 128, np.uint8)}
    nodes = [
        make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=1),
        make_node("MatMul", ["x", "w"], ["y"]),
    ]
    onnx.save(model(nodes, {"x": [1, depth]}, ["y"], weights), tmp_path / "m.onnx")
    x = (RNG.random((1, depth)) * 10 + 100).astype(np.float32)
    write(compile_model(tmp_path / "m.onnx").contents, tmp_path / "b")
    got = WasmtimeHost(tmp_path / "b").run({"x": x}).outputs["y"]
    exact = x.astype(np.float64) @ ((q.astype(np.float64) - 128) * np.float64(np.float32(0.01)))
    assert np.abs(got - exact).max() < 1e-5 * np.abs(exact).max()
