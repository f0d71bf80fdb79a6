"""The pipeline as a whole: which axes are named, what is refused, same input gives same bytes.

Input: small ONNX models made here.  Output: manifests and bundles; nothing is run but by wasmtime.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tilewright.base.abi import MEMORY_LIMIT
from tilewright.base.errors import HostError, MemoryLimit, ShapeError
from tilewright.bundle import write
from tilewright.bundle.linear_memory import facts_of, places_of
from tilewright.compiler import Options, compile_model
from tilewright.hosts.wasmtime import VARIANTS, WasmtimeHost
from tilewright.targets import TARGETS


def model(folder: Path, nodes: list[onnx.NodeProto], *shape: int | str) -> Path:
    """x → y by `nodes`, with x of the given shape."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y])
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


RELU = [helper.make_node("Relu", ["x"], ["y"])]


@pytest.mark.parametrize("buckets", [(8,), (4, 8), (1,)])
def test_named_axes_are_padded_and_cropped(buckets: tuple[int, ...], tmp_path: Path) -> None:
    """Also with a single bucket: shorter inputs fit, and the output has their length."""
    path = model(tmp_path, RELU, 1, "n")
    compiled = compile_model(path, Options(buckets={"n": buckets}))
    assert compiled.manifest.inputs[0].shape == (1, "n")
    assert compiled.manifest.outputs[0].shape == (1, "n")
    write(compiled.contents, tmp_path / "bundle")
    x = np.linspace(-1, 1, max(1, max(buckets) - 1), dtype=np.float32)[None]
    run = WasmtimeHost(tmp_path / "bundle").run({"x": x})
    np.testing.assert_array_equal(run.outputs["y"], np.maximum(x, 0))


@pytest.mark.parametrize("buckets", [(8,), (4, 8)])
def test_an_axis_that_only_depends_on_a_named_one_is_refused(
    buckets: tuple[int, ...], tmp_path: Path
) -> None:
    """Padding inside it could not be cropped, so the values would be wrong."""
    twice = [helper.make_node("Concat", ["x", "x"], ["y"], axis=1)]
    path = model(tmp_path, twice, 1, "n")
    with pytest.raises(ShapeError, match="'y'"):
        compile_model(path, Options(buckets={"n": buckets}))
    compiled = compile_model(path, Options(shapes={"x": (1, 8)}))
    assert compiled.manifest.outputs[0].shape == (1, 16)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (Options(buckets={"n": (8,), "m": (2, 4)}), "instead of --buckets"),
        (Options(extents={"n": 8, "m": 4}), "instead of --extent"),
        (Options(buckets={"m": (4,)}, extents={"n": 8}), "instead of --buckets and --extent"),
    ],
)
def test_the_way_out_names_the_option_that_was_given(
    options: Options, named: str, tmp_path: Path
) -> None:
    merged = [
        helper.make_node("Constant", [], ["to"], value_ints=[0, -1]),
        helper.make_node("Relu", ["x"], ["z"]),
        helper.make_node("Reshape", ["z", "to"], ["y"]),
    ]
    with pytest.raises(ShapeError, match="'y'") as caught:
        compile_model(model(tmp_path, merged, "m", "n", 6), options)
    assert caught.value.hint.endswith(named)


@pytest.mark.parametrize("buckets", [(8,), (4, 8)])
def test_an_axis_that_equals_a_named_one_at_every_bucket_is_refused(
    buckets: tuple[int, ...], tmp_path: Path
) -> None:
    """Here it is n rounded up to a multiple of 4, so an input of 6 has an output of 8."""
    padded = [
        helper.make_node("Constant", [], ["four"], value_int=4),
        helper.make_node("Constant", [], ["left"], value_ints=[0, 0, 0]),
        helper.make_node("Shape", ["x"], ["length"], start=1),
        helper.make_node("Neg", ["length"], ["below"]),
        helper.make_node("Mod", ["below", "four"], ["missing"]),
        helper.make_node("Concat", ["left", "missing"], ["pads"], axis=0),
        helper.make_node("Pad", ["x", "pads"], ["y"]),
    ]
    path = model(tmp_path, padded, 1, "n")
    with pytest.raises(ShapeError, match="'y'"):
        compile_model(path, Options(buckets={"n": buckets}))
    compiled = compile_model(path, Options(shapes={"x": (1, 6)}))
    assert compiled.manifest.outputs[0].shape == (1, 8)


def test_an_error_names_the_bucket(tmp_path: Path) -> None:
    """A model with a table of 6 positions cannot have a bucket of 8."""
    table = helper.make_tensor("t", TensorProto.FLOAT, (1, 6), [0.0] * 6)
    sliced = [
        helper.make_node("Constant", [], ["t"], value=table),
        helper.make_node("Add", ["x", "t"], ["y"]),
    ]
    path = model(tmp_path, sliced, 1, "n")
    with pytest.raises(ShapeError) as caught:
        compile_model(path, Options(buckets={"n": (6, 8)}))
    assert caught.value.facts["bucket"] == {"n": 8}
    assert caught.value.hint


def test_a_model_beyond_wasm32_is_refused_with_the_numbers(tmp_path: Path) -> None:
    path = model(tmp_path, RELU, 1 << 15, 1 << 15)
    with pytest.raises(MemoryLimit) as caught:
        compile_model(path)
    assert caught.value.facts["limit"] == MEMORY_LIMIT
    assert caught.value.facts["arena"] == 2 * 4 * 2**30


@pytest.mark.parametrize("over", [0, 1])
def test_memory_has_room_for_every_worker(
    over: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker has a scratch area, and a bundle promises to run on up to 32 of them."""
    path = model(tmp_path, [helper.make_node("MatMul", ["x", "x"], ["y"])], 256, 256)
    section = compile_model(path).manifest.section("wasm")
    memory = facts_of(section).memory
    assert memory.scratch_bytes
    needed = memory.bytes + 31 * memory.scratch_bytes
    monkeypatch.setattr("tilewright.targets.wasm.memory_map.MEMORY_LIMIT", needed - over)
    if not over:
        assert compile_model(path).manifest.section("wasm") == section
        return
    with pytest.raises(MemoryLimit, match="32 workers") as caught:
        compile_model(path)
    assert caught.value.facts["bytes"] == needed


def test_same_input_same_bytes(tmp_path: Path) -> None:
    path = model(tmp_path, RELU, 1, "n")
    options = Options(buckets={"n": (4, 8)})
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        write(compile_model(path, options).contents, folder)
    files = [{p.name: p.read_bytes() for p in f.rglob("*") if p.is_file()} for f in folders]
    assert files[0] == files[1]


def test_variants_agree(tmp_path: Path) -> None:
    """Each variant gives the same values, by schedules and plan images of its own machine."""
    weights = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)
    table = helper.make_tensor("w", TensorProto.FLOAT, weights.shape, weights.ravel())
    nodes = [
        helper.make_node("Constant", [], ["w"], value=table),
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    variants = TARGETS["wasm"].variants
    options = Options(buckets={"n": (16, 300)}, variants=tuple(variants))
    compiled = compile_model(model(tmp_path, nodes, "n", 64), options)
    builds = {b.variant: b for b in compiled.manifest.section("wasm").builds}
    assert list(builds) == list(variants)
    assert {b.facts["registers"] for b in builds.values()} == {15, 32}
    assert len({b.code.file for b in builds.values()}) == len(builds)
    write(compiled.contents, tmp_path / "bundle")
    x = np.random.default_rng(1).standard_normal((200, 64)).astype(np.float32)
    product = x.astype(np.float64) @ weights
    want = np.exp(product - product.max(1, keepdims=True))
    want /= want.sum(1, keepdims=True)
    for name in builds:
        found = WasmtimeHost(tmp_path / "bundle", variant=name).run({"x": x}).outputs["y"]
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=1e-7)
    with pytest.raises(HostError, match="fits this host"):
        WasmtimeHost(tmp_path / "bundle", frozenset(), variant="x86")
    if VARIANTS:  # made for wasmtime's compiler, on x86
        assert (WasmtimeHost(tmp_path / "bundle").build.variant,) == VARIANTS


def test_variants_for_one_engine_are_built_only_by_name(tmp_path: Path) -> None:
    """Its sums are chained: register tiles leave room for the vectors of two steps."""
    path = model(tmp_path, [helper.make_node("MatMul", ["x", "x"], ["y"])], 64, 64)
    plain = compile_model(path)
    builds = [b.variant for b in plain.manifest.section("wasm").builds]
    assert builds == [v.name for v in TARGETS["wasm"].variants.values() if v.is_default]
    (kernel,) = plain.program.kernels
    found = {name: TARGETS["wasm"].default(kernel, name) for name in ("x86", "x86-cranelift")}
    assert {n: (s.x0, s.y0, s.r0) for n, s in found.items()} == {
        "x86": (6, 8, 8), "x86-cranelift": (4, 8, 2),
    }  # fmt: skip


def test_nothing_lies_over_inputs(tmp_path: Path) -> None:
    """A run leaves its inputs as they were: they can be used again where they are."""
    chain = [helper.make_node("Softmax", [f"{a}"], [f"{b}"], axis=-1) for a, b in ("xs", "sy")]
    manifest = compile_model(model(tmp_path, chain, 64, 64), Options()).manifest
    (place,) = places_of(manifest.section("wasm"))
    x, y = (range(at, at + 4 * 64 * 64) for at in (*place.inputs, *place.outputs))
    assert x.stop <= y.start or y.stop <= x.start
