"""Quantised models against exact arithmetic, in the code for relaxed and for plain SIMD.

Input: small models, quantised by onnxruntime's own tools in every format that they write.  Output:
results beside those of helpers/quantised.py; onnxruntime's depend on the processor.  QLinear and
integer operators agree exactly; QDQ, whose meaning is float, to one quantum of the result; weights
of 4 and 8 bits to the rounding of f32 sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from helpers.quantised import evaluate
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from tilewright.bundle import write
from tilewright.compiler import compile_model
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import FEATURES, WasmtimeHost

Array = np.ndarray[Any, np.dtype[Any]]
MICROSOFT = helper.make_opsetid("com.microsoft", 1)


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def saved(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, ...]],
    weights: dict[str, Array],
    kind: int = TensorProto.FLOAT,
) -> Path:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(v, n) for n, v in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), MICROSOFT]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def convolutions(path: Path, channels: int = 16) -> Path:
    """A strided 3x3, a depthwise 3x3, a 1x1 with shortcut, a pool and a matrix product."""
    c = channels
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["a"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["a1"]),
        helper.make_node("Conv", ["a1", "w1", "b1"], ["d"], pads=[1] * 4, group=c),
        helper.make_node("Relu", ["d"], ["d1"]),
        helper.make_node("Conv", ["d1", "w2", "b2"], ["p"]),
        helper.make_node("Add", ["p", "a1"], ["s"]),
        helper.make_node("MaxPool", ["s"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["m"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
    ]
    weights = {
        "w0": normal(1, c, 3, 3, 3), "w1": normal(2, c, 1, 3, 3), "w2": normal(3, c, c, 1, 1),
        "w3": normal(4, 10, c), "b0": normal(5, c), "b1": normal(6, c), "b2": normal(7, c),
        "b3": normal(8, 10),
    }  # fmt: skip
    return saved(path, nodes, {"x": (1, 3, 13, 13)}, weights)


def products(path: Path) -> Path:
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"]),
        helper.make_node("Add", ["a", "b0"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("MatMul", ["c", "w1"], ["y"]),
    ]
    weights = {"w0": normal(1, 30, 21), "b0": normal(2, 21), "w1": normal(3, 21, 9)}
    return saved(path, nodes, {"x": (7, 30)}, weights)


def shape_of(info: onnx.ValueInfoProto) -> list[int]:
    return [d.dim_value for d in info.type.tensor_type.shape.dim]


class Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, model: Path) -> None:
        info = onnx.load(model).graph.input[0]
        made = [{info.name: normal(9 + i, *shape_of(info))} for i in range(3)]
        self.samples: Iterator[Any] = iter(made)

    def get_next(self) -> Any:
        return next(self.samples, None)


def outputs(path: Path, folder: Path) -> tuple[Array, list[Array]]:
    """(the exact result, ours: specification, relaxed SIMD, plain SIMD)"""
    inputs = {i.name: normal(20, *shape_of(i)) for i in onnx.load(path).graph.input}
    wanted = evaluate(path, inputs)
    bundle = folder / "bundle"
    write(compile_model(path).contents, bundle)
    hosts = (
        ReferenceHost(bundle), WasmtimeHost(bundle, FEATURES), WasmtimeHost(bundle, frozenset())
    )  # fmt: skip
    return wanted, [next(iter(host.run(inputs).outputs.values())) for host in hosts]


def quantum(path: Path) -> float:
    """The scale of the DequantizeLinear that gives the result."""
    graph = onnx.load(path).graph
    (last,) = (n for n in graph.node if graph.output[0].name in n.output)
    assert last.op_type == "DequantizeLinear"
    (scale,) = (t for t in graph.initializer if t.name == last.input[1])
    return float(numpy_helper.to_array(scale))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("reduce_range", [False, True])
@pytest.mark.parametrize(
    ("activations", "weights"),
    [
        (QuantType.QUInt8, QuantType.QInt8),
        (QuantType.QUInt8, QuantType.QUInt8),
        (QuantType.QInt8, QuantType.QInt8),
    ],
)
@pytest.mark.parametrize("build", [convolutions, products])
def test_qdq(
    tmp_path: Path, build: Any, activations: Any, weights: Any, reduce_range: bool
) -> None:
    source, path = build(tmp_path / "f32.onnx"), tmp_path / "int8.onnx"
    quantize_static(
        source, path, Samples(source), quant_format=QuantFormat.QDQ, activation_type=activations,
        weight_type=weights, reduce_range=reduce_range, per_channel=weights == QuantType.QInt8,
    )  # fmt: skip
    wanted, ours = outputs(path, tmp_path)
    for found in ours:
        # one quantum of an inner tensor may become another few at the end
        assert np.abs(found - wanted).max() <= 3.01 * quantum(path)
    np.testing.assert_array_equal(ours[1], ours[2])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("reduce_range", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("build", [convolutions, products])
def test_qlinear_operators(
    tmp_path: Path, build: Any, per_channel: bool, reduce_range: bool
) -> None:
    source, path = build(tmp_path / "f32.onnx"), tmp_path / "int8.onnx"
    quantize_static(
        source, path, Samples(source), quant_format=QuantFormat.QOperator,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, per_channel=per_channel,
        reduce_range=reduce_range,
    )  # fmt: skip
    wanted, ours = outputs(path, tmp_path)
    unit = quantum(path)
    for found in ours:
        # a real sum before it is rounded, of QLinearAdd or pooling, has the error of f32
        allowed = 1 if build is convolutions else 0
        assert np.abs(np.rint(found / unit) - np.rint(wanted / unit)).max() <= allowed


@pytest.mark.parametrize(
    ("build", "kind"),
    [
        (convolutions, QuantType.QUInt8),  # onnxruntime has no ConvInteger of signed weights
        (products, QuantType.QUInt8),
        (products, QuantType.QInt8),
    ],
)
def test_dynamic(tmp_path: Path, build: Any, kind: Any) -> None:
    source, path = build(tmp_path / "f32.onnx"), tmp_path / "int8.onnx"
    quantize_dynamic(source, path, weight_type=kind)
    wanted, ours = outputs(path, tmp_path)
    for found in ours:
        np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=2e-2 * np.abs(wanted).max())
    np.testing.assert_allclose(ours[1], ours[2], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize(
    ("kind", "axis", "block"),
    [("INT4", 0, 16), ("UINT4", 0, 32), ("INT4", 1, 0), ("INT8", 1, 0), ("UINT8", 0, 32)],
)
def test_weights_that_a_node_dequantises(
    tmp_path: Path, kind: str, axis: int, block: int, external: bool
) -> None:
    """DequantizeLinear before a product: integers in the file, as in the model."""
    depth, columns, data_type = 96, 56, getattr(TensorProto, kind)
    source = np.random.default_rng(block)
    low, high = {"INT4": (-8, 8), "UINT4": (0, 16), "INT8": (-128, 128), "UINT8": (0, 256)}[kind]
    whole = source.integers(low, high, (depth, columns))
    shape = (depth // block, columns) if block else (columns,)
    scale = source.random(shape).astype(np.float32) + 0.1
    zero = source.integers(low, high, shape)

    def integers(name: str, value: Array) -> onnx.TensorProto:
        return helper.make_tensor(name, data_type, value.shape, value.ravel().tolist())

    blocks = {"block_size": block} if block else {}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=axis, **blocks),
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Mul", ["p", "gain"], ["y"]),
    ]
    gain = np.linspace(1, 2, columns, dtype=np.float32)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "dequantised",
        [info("x", TensorProto.FLOAT, [5, depth])], [info("y", TensorProto.FLOAT, [5, columns])],
        [integers("q", whole), numpy_helper.from_array(scale, "s"), integers("z", zero),
         numpy_helper.from_array(gain, "gain")],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    for tensor in made.graph.initializer if external else ():
        if tensor.data_type == data_type:
            tensor.raw_data = _packed(numpy_helper.to_array(tensor), kind)
            tensor.ClearField("int32_data")
    path = tmp_path / "m.onnx"
    onnx.save(made, path, save_as_external_data=external, size_threshold=0)
    compiled = compile_model(path)
    write(compiled.contents, tmp_path / "bundle")
    bits = 4 if kind.endswith("4") else 8
    assert compiled.manifest.weights.bytes <= depth * columns * bits // 8 + 5 * scale.size + 1024
    x = normal(20, 5, depth)
    along = [np.repeat(p, block, 0) if block else p for p in (scale.astype(np.float64), zero)]
    wanted = x @ ((whole - along[1]) * along[0]) * gain
    for host in (ReferenceHost(tmp_path / "bundle"), WasmtimeHost(tmp_path / "bundle")):
        found = host.run({"x": x}).outputs["y"]
        assert np.linalg.norm(found - wanted) <= 1e-5 * np.linalg.norm(wanted)


def _packed(value: Array, kind: str) -> bytes:
    """Integers as a file has them: two of 4 bits in a byte, the first in its lower bits."""
    flat = value.astype(np.int16).ravel()
    if not kind.endswith("4"):
        return flat.astype(np.uint8).tobytes()
    return (flat[::2] & 15 | (flat[1::2] & 15) << 4).astype(np.uint8).tobytes()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rows", [1, 3, 128])
@pytest.mark.parametrize("zeros", ["none", "packed"])
@pytest.mark.parametrize(
    ("bits", "block", "depth"),
    [(4, 32, 96), (4, 32, 80), (4, 128, 256), (4, 16, 48), (8, 32, 80), (8, 64, 64)],
)
def test_few_bits(tmp_path: Path, bits: int, block: int, depth: int, zeros: str, rows: int) -> None:
    source = np.random.default_rng(depth + block)
    columns, blocks = 22, -(-depth // block)
    weights = {
        "b": source.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8),
        "s": source.random(columns * blocks).astype(np.float32) + 0.1,
    }
    if zeros == "packed":
        shape = columns * -(-blocks * bits // 8)
        weights["z"] = source.integers(0, 256, shape).astype(np.uint8)
    node = helper.make_node(
        "MatMulNBits", ["x", *weights], ["y"], domain="com.microsoft",
        K=depth, N=columns, bits=bits, block_size=block,
    )  # fmt: skip
    path = saved(tmp_path / "m.onnx", [node], {"x": (rows, depth)}, weights)
    wanted, ours = outputs(path, tmp_path)
    x = {"x": normal(20, rows, depth)}
    (theirs,) = onnxruntime.InferenceSession(path).run(None, x)
    for found in (theirs, *ours):
        assert np.linalg.norm(found - wanted) <= 1e-5 * np.linalg.norm(wanted)
