"""Weights of 16 and 8 bits stay so in files; every host makes the same f32 numbers of them.

Input: a model with weights of f16, bf16, i8 and f32 side by side, in more than one shard, and one
of convolutions whose weights are integers with scales.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import SLOW, BundleOf, RunBundle
from helpers import halves
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tilewright.bundle import open_bundle
from tilewright.compiler import compile_model
from tilewright.frontend import load

pytestmark = [pytest.mark.by_turns, pytest.mark.one_in(3, *SLOW)]

ROWS, WIDTH = 3000, 1024


def tensors() -> dict[str, onnx.TensorProto]:
    rng = np.random.default_rng(0)
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    table = rng.standard_normal((ROWS, WIDTH)).astype(np.float16)
    bytes_ = rng.integers(-100, 100, WIDTH).astype(np.int8)
    bias = rng.standard_normal(40).astype(np.float32)
    product = (rng.standard_normal((WIDTH, 40)) / 32).astype(np.float32)
    exact = [numpy_helper.from_array(v, n) for n, v in (("every", every), ("table", table))]
    brief = onnx.TensorProto(name="w", data_type=TensorProto.BFLOAT16, dims=product.shape)
    brief.raw_data = (product.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    rest = [numpy_helper.from_array(v, n) for n, v in (("bytes", bytes_), ("bias", bias))]
    return {t.name: t for t in (*exact, brief, *rest)}


def model(path: Path) -> Path:
    given = tensors()
    nodes = [
        helper.make_node("Cast", ["every"], ["e"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["e", "one"], ["numbers"]),
        helper.make_node("Cast", ["table"], ["t"], to=TensorProto.FLOAT),
        helper.make_node("Gather", ["t", "ids"], ["row"]),
        helper.make_node("Cast", ["bytes"], ["b"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["row", "b"], ["a"]),
        helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["a", "wide"], ["p"]),
        helper.make_node("Add", ["p", "bias"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "narrow",
        [info("one", TensorProto.FLOAT, [1]), info("ids", TensorProto.INT64, [3])],
        [info("numbers", TensorProto.FLOAT, [65536]), info("y", TensorProto.FLOAT, [3, 40])],
        list(given.values()),
    )
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model(tmp_path_factory.mktemp("narrow") / "narrow.onnx")


def test_every_host_reads_the_same_numbers(
    source: Path, run_bundle: RunBundle, bundle_of: BundleOf
) -> None:
    path = bundle_of("narrow", lambda o: compile_model(source, o).contents)
    ids = np.array([0, 1701, ROWS - 1])
    found = run_bundle(path, {"one": np.ones(1, np.float32), "ids": ids})
    given = {name: numpy_helper.to_array(t).astype(np.float64) for name, t in tensors().items()}
    with np.errstate(invalid="ignore"):  # NaN is among them
        np.testing.assert_array_equal(found["numbers"], given["every"].astype(np.float32))
    wanted = (given["table"][ids] + given["bytes"]) @ given["w"] + given["bias"]
    assert np.linalg.norm(found["y"] - wanted) <= 1e-5 * np.linalg.norm(wanted)


def test_files_hold_them_as_the_model_does(source: Path, bundle_of: BundleOf) -> None:
    bundle = open_bundle(bundle_of("narrow", lambda o: compile_model(source, o).contents))
    stored = {t.stored: t for t in sorted(bundle.tensors(), key=lambda t: t.bytes)}
    assert stored["f16"].bytes == 2 * ROWS * WIDTH  # the larger of the two
    assert stored["bf16"].bytes == 2 * WIDTH * 40
    narrow = 2 * (65536 + ROWS * WIDTH + WIDTH * 40)
    weights = bundle.manifest.weights
    assert narrow < weights.bytes < narrow + 8192
    assert weights.memory - weights.bytes == narrow
    assert len(weights.shards) > 1


CHANNELS, SIDE = 40, 12


def convolutions() -> onnx.ModelProto:
    """Two of all channels around one of each, with scales per channel and for all."""
    rng = np.random.default_rng(1)
    shapes = {"a": (CHANNELS, 16, 3, 3), "b": (CHANNELS, 1, 7, 7), "c": (36, CHANNELS, 3, 3)}
    kinds, groups = {"a": np.int8, "b": np.uint8, "c": np.uint8}, {"b": CHANNELS}
    nodes, weights, x = [], {}, "x"
    for name, shape in shapes.items():
        info, many = np.iinfo(kinds[name]), () if name == "c" else (shape[0],)
        weights[f"q{name}"] = rng.integers(info.min, info.max + 1, shape).astype(info.dtype)
        weights[f"s{name}"] = (rng.random(many) / 1000).astype(np.float32)
        weights[f"z{name}"] = rng.integers(info.min, info.max + 1, many).astype(info.dtype)
        parts = [f"{part}{name}" for part in "qsz"]
        nodes += [
            helper.make_node("DequantizeLinear", parts, [f"w{name}"], axis=0),
            helper.make_node("Conv", [x, f"w{name}"], [f"y{name}"], group=groups.get(name, 1)),
        ]
        x = f"y{name}"
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "convolutions",
        [info("x", TensorProto.FLOAT, [1, 16, SIDE, SIDE])],
        [info(x, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_integers_of_convolutions(run_bundle: RunBundle, bundle_of: BundleOf) -> None:
    made = convolutions()
    path = bundle_of("convolutions8", lambda o: compile_model(load(made), o).contents)
    stored = [t for t in open_bundle(path).tensors() if t.scale is not None]
    assert sorted({t.stored for t in stored}) == ["i8", "u8"]
    assert sum(t.bytes for t in stored) >= CHANNELS * (16 * 9 + 49 + 36 * 9)
    x = np.random.default_rng(2).standard_normal((1, 16, SIDE, SIDE)).astype(np.float32)
    found = run_bundle(path, {"x": x})["yc"]
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
    assert np.linalg.norm(found - wanted) <= 1e-5 * np.linalg.norm(wanted)


def test_weights_in_halves(run_bundle: RunBundle, bundle_of: BundleOf) -> None:
    """Hosts of WebGPU keep them so in the GPU's memory; the numbers are the same everywhere."""
    path = bundle_of("halves", lambda o: compile_model(load(halves.model()), o).contents)
    found = run_bundle(path, halves.inputs())
    for name, wanted in halves.wanted().items():
        assert np.linalg.norm(found[name] - wanted) <= 1e-6 * np.linalg.norm(wanted), name
