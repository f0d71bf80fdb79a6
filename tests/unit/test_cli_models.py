"""The commands around a model, from the ONNX file to arrays, on the hosts that need no browser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from cli_call import Called
from onnx import TensorProto, helper, numpy_helper

from tilewright.bundle import open_bundle

WEIGHT = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
Capture = pytest.CaptureFixture[str]
_SHAPES: dict[str, list[int]] = {"x": [3], "s": [], "y": [3]}


def save_model(path: Path, last: str = "Relu") -> Path:
    """max(x @ w, 0) with an open dimension n."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="mm"),
        helper.make_node(last, ["m"], ["y"], name="last"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(WEIGHT, "w")])
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_model(tmp_path / "tiny.onnx")


def save_inputs(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


def test_build(capsys: Capture, tmp_path: Path, model: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    asset = ("--asset", tmp_path / "tokenizer.json")
    buckets = ("--buckets", "n=16,4")
    called = Called(capsys, "build", model, "-o", tmp_path / "b", *buckets, *asset, "--json")
    assert called.code == 0
    assert called.err == ""
    said = called.json
    bundle = open_bundle(tmp_path / "b")
    bundle.verify()
    assert said["bundle"] == str(tmp_path / "b")
    assert said["name"] == "tiny"
    assert said["bytes"] == bundle.bytes
    assert [p["dims"] for p in said["plans"]] == [{"n": 4}, {"n": 16}]
    assert said["plans"][0]["flops"] >= 2 * 4 * 8 * 4
    assert set(said["code_bytes"]) == {"x86", "arm", "x86-simd", "arm-simd"}
    assert said["seconds"] > 0
    (found,) = bundle.manifest.assets
    assert (found.name, found.type) == ("tokenizer.json", "application/json")
    assert bundle.read(found) == b"{}"


def test_build_of_named_variants(capsys: Capture, tmp_path: Path, model: Path) -> None:
    """Those alone, and an unknown one beside them is an error."""
    build = ("build", model, "-o", tmp_path / "b", "--buckets", "n=4", "--json")
    wrong = Called(capsys, *build, "--variant", "x86", "--variant", "x87")
    assert wrong.code == 2
    assert "x87" in wrong.json["error"]["message"]
    assert not (tmp_path / "b").exists()
    made = Called(capsys, *build, "--variant", "x86-cranelift", "--variant", "x86")
    assert set(made.json["code_bytes"]) == {"x86", "x86-cranelift"}


def test_a_bank_without_webgpu_is_refused(capsys: Capture, tmp_path: Path, model: Path) -> None:
    build = ("build", model, "-o", tmp_path / "b", "--buckets", "n=4", "--bank", 2**27, "--json")
    wrong = Called(capsys, *build)
    assert wrong.code == 2
    assert "--bank" in wrong.json["error"]["message"]
    assert "--target wgsl" in wrong.json["error"]["hint"]
    assert not (tmp_path / "b").exists()
    assert Called(capsys, *build, "--target", "wgsl").code == 0


def test_build_twice_gives_equal_files(capsys: Capture, tmp_path: Path, model: Path) -> None:
    for name in ("a", "b"):
        Called(capsys, "build", model, "-o", tmp_path / name, "--buckets", "n=4")
    names = [sorted(p.name for p in (tmp_path / d).rglob("*")) for d in ("a", "b")]
    assert names[0] == names[1]
    pointers = [(tmp_path / d / "bundle.json").read_bytes() for d in ("a", "b")]
    assert pointers[0] == pointers[1]


def test_build_in_words(capsys: Capture, tmp_path: Path, model: Path) -> None:
    called = Called(capsys, "build", model, "-o", tmp_path / "b", "--shape", "x=3x8")
    assert called.code == 0
    assert "memory" in called.out
    assert "one (" in called.out


def test_a_bundle_takes_no_shapes(capsys: Capture, tmp_path: Path, model: Path) -> None:
    Called(capsys, "build", model, "-o", tmp_path / "b", "--buckets", "n=4")
    inputs = save_inputs(tmp_path / "in.npz", x=np.zeros((4, 8), np.float32))
    asked = ("run", tmp_path / "b", "--inputs", inputs, "--buckets", "n=8", "--json")
    called = Called(capsys, *asked)
    assert called.code == 2
    assert called.json["error"]["facts"]["bundle"] == str(tmp_path / "b")


@pytest.mark.parametrize("host", ["reference", "wasmtime"])
def test_inputs_of_rank_0_and_of_foreign_byte_order(
    capsys: Capture, tmp_path: Path, host: str
) -> None:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in _SHAPES.items()]
    node = helper.make_node("Mul", ["x", "s"], ["y"])
    graph = helper.make_graph([node], "g", infos[:2], infos[2:])
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    inputs = save_inputs(tmp_path / "in.npz", x=np.array([1, 2, 3], ">f4"), s=np.float32(2))
    files = ("--inputs", inputs, "--outputs", tmp_path / "out.npz")
    called = Called(capsys, "run", tmp_path / "m.onnx", "--host", host, *files)
    assert called.code == 0
    assert np.load(tmp_path / "out.npz")["y"].tolist() == [2, 4, 6]


@pytest.mark.parametrize("host", ["reference", "wasmtime"])
def test_an_index_out_of_range(capsys: Capture, tmp_path: Path, host: str) -> None:
    node = helper.make_node("Gather", ["w", "i"], ["y"], name="pick")
    index = helper.make_tensor_value_info("i", TensorProto.INT64, [2])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
    graph = helper.make_graph([node], "g", [index], [out], [numpy_helper.from_array(WEIGHT, "w")])
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    inputs = save_inputs(tmp_path / "in.npz", i=np.array([7, 8]))
    asked = ("run", tmp_path / "m.onnx", "--host", host, "--inputs", inputs, "--json")
    called = Called(capsys, *asked)
    assert called.code == 8
    error = called.json["error"]
    assert (error["code"], error["facts"]["node"]) == ("kernel-trap", "pick")
    assert error["hint"]
    facts = error["facts"]
    assert (facts["op"], facts["axis"], facts["length"], facts["index"]) == ("Gather", 0, 8, 8)


@pytest.mark.parametrize("host", ["reference", "wasmtime"])
def test_run_a_bundle(capsys: Capture, tmp_path: Path, model: Path, host: str) -> None:
    Called(capsys, "build", model, "-o", tmp_path / "b", "--buckets", "n=4,16")
    x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    inputs = save_inputs(tmp_path / "in.npz", x=x)
    files = ("--inputs", inputs, "--outputs", tmp_path / "out.npz")
    called = Called(capsys, "run", tmp_path / "b", "--host", host, *files, "--json")
    assert called.code == 0
    assert called.json["bucket"] == {"n": 16}
    assert called.json["outputs"] == [{"name": "y", "dtype": "float32", "shape": [5, 4]}]
    assert called.json["milliseconds"] > 0
    found = np.load(tmp_path / "out.npz")["y"]
    np.testing.assert_allclose(found, np.maximum(x @ WEIGHT, 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("host", ["reference", "wasmtime"])
def test_run_to_an_extent(capsys: Capture, tmp_path: Path, model: Path, host: str) -> None:
    """One plan, for the bundle and for the model itself."""
    built = Called(capsys, "build", model, "-o", tmp_path / "b", "--extent", "n=16", "--json")
    assert [p["dims"] for p in built.json["plans"]] == [{"n": 16}]
    x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    inputs = save_inputs(tmp_path / "in.npz", x=x)
    for asked in ((tmp_path / "b",), (model, "--extent", "n=16")):
        files = ("--inputs", inputs, "--outputs", tmp_path / "out.npz", "--force")
        called = Called(capsys, "run", *asked, "--host", host, *files, "--json")
        assert called.code == 0
        found = np.load(tmp_path / "out.npz")["y"]
        np.testing.assert_allclose(found, np.maximum(x @ WEIGHT, 0), rtol=1e-5, atol=1e-5)
    again = ("run", tmp_path / "b", "--extent", "n=8", "--inputs", inputs, "--json")
    assert "shapes already" in Called(capsys, *again).json["error"]["message"]


@pytest.mark.parametrize("host", ["reference", "wasmtime"])
def test_run_on_halves(capsys: Capture, tmp_path: Path, model: Path, host: str) -> None:
    """A file may have inputs in f16; outputs are f32.  The shapes are theirs, too."""
    x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float16)
    files = ("--inputs", save_inputs(tmp_path / "in.npz", x=x), "--outputs", tmp_path / "out.npz")
    called = Called(capsys, "run", model, "--host", host, *files, "--json")
    assert called.code == 0
    assert called.json["outputs"] == [{"name": "y", "dtype": "float32", "shape": [5, 4]}]
    found, want = np.load(tmp_path / "out.npz")["y"], np.maximum(x.astype(np.float32) @ WEIGHT, 0)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
    wide = save_inputs(tmp_path / "wide.npz", x=x.astype(np.float64))
    error = Called(capsys, "run", model, "--host", host, "--inputs", wide, "--json").json["error"]
    assert error["message"] == "Input 'x' has the wrong type: expected float32, found float64"
    assert error["hint"] == "Give float32 or float16, as of array.astype('float32')"


def test_run_looks_at_the_output_first(capsys: Capture, tmp_path: Path) -> None:
    asked = ("run", "m.onnx", "--inputs", "in.npz", "--outputs", tmp_path / "missing" / "out.npz")
    called = Called(capsys, *asked, "--json")
    assert called.code == 2
    assert "There is no folder" in called.json["error"]["message"]


def test_run_a_model_with_the_shapes_of_its_inputs(
    capsys: Capture, tmp_path: Path, model: Path
) -> None:
    inputs = save_inputs(tmp_path / "in.npz", x=np.ones((3, 8), np.float32))
    called = Called(capsys, "run", model, "--inputs", inputs, "--json")
    assert called.code == 0
    assert called.json["outputs"][0]["shape"] == [3, 4]
    words = Called(capsys, "run", model, "--inputs", inputs)
    assert "3x4" in words.out


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"x": np.ones((3, 8))},
        {"x": np.ones((3, 9), np.float32)},
        {"x": np.ones(8, np.float32)},
        {"x": np.ones((17, 8), np.float32)},
        {"x": np.ones((3, 8), np.float32), "z": np.ones(1)},
    ],
    ids=["missing", "dtype", "size", "rank", "too long", "unknown"],
)
def test_bad_inputs(
    capsys: Capture, tmp_path: Path, model: Path, arrays: dict[str, np.ndarray]
) -> None:
    Called(capsys, "build", model, "-o", tmp_path / "b", "--buckets", "n=4,16")
    inputs = save_inputs(tmp_path / "in.npz", **arrays)
    called = Called(capsys, "run", tmp_path / "b", "--inputs", inputs, "--json")
    assert called.code == 5
    assert called.json["error"]["code"] == "input"


def test_files_that_are_not_there(capsys: Capture, tmp_path: Path, model: Path) -> None:
    called = Called(capsys, "run", model, "--inputs", tmp_path / "no.npz", "--json")
    assert (called.code, called.json["error"]["code"]) == (5, "input")
    inputs = save_inputs(tmp_path / "in.npz", x=np.ones((3, 8), np.float32))
    (tmp_path / "folder").mkdir()
    called = Called(capsys, "run", tmp_path / "folder", "--inputs", inputs, "--json")
    assert (called.code, called.json["error"]["code"]) == (6, "bundle-corrupt")
    for command in (("build", "-o", tmp_path / "b"), ("check",), ("show",)):
        called = Called(capsys, command[0], tmp_path / "no.onnx", *command[1:], "--json")
        assert (called.code, called.json["error"]["code"]) == (3, "invalid-model")
    called = Called(
        capsys, "build", model, "-o", tmp_path / "b", "--asset", tmp_path / "no.json", "--json"
    )
    assert (called.code, called.json["error"]["code"]) == (5, "input")
    assert not (tmp_path / "b").exists()


def test_two_assets_of_one_name(capsys: Capture, tmp_path: Path, model: Path) -> None:
    assets: list[object] = []
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "words.txt").write_text(name)
        assets += ["--asset", tmp_path / name / "words.txt"]
    called = Called(capsys, "build", model, "-o", tmp_path / "out", *assets, "--json")
    assert (called.code, called.json["error"]["code"]) == (2, "usage")
    assert "words.txt" in called.json["error"]["message"]


def test_output_that_cannot_be_written(capsys: Capture, tmp_path: Path, model: Path) -> None:
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "bundle"
    called = Called(capsys, "build", model, "-o", place, "--shape", "x=3x8", "--json")
    assert called.code == 2
    assert called.json["error"]["facts"]["path"].startswith(str(tmp_path / "file"))


def test_no_model(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model at all")
    called = Called(capsys, "build", tmp_path / "m.onnx", "-o", tmp_path / "b", "--json")
    assert called.code == 3
    assert not (tmp_path / "b").exists()


def test_open_dimension(capsys: Capture, tmp_path: Path, model: Path) -> None:
    called = Called(capsys, "build", model, "-o", tmp_path / "b", "--json")
    assert called.code == 4
    assert called.json["error"]["code"] == "shape"
    for wrong in ("--shape=x", "--buckets=n", "--extent=n", "--extent=n=4,8", "--extent=n=3"):
        called = Called(capsys, "build", model, "-o", tmp_path / "b", wrong, "--json")
        assert (called.code, called.json["error"]["code"]) == (2, "usage")


def test_check(capsys: Capture, model: Path) -> None:
    called = Called(capsys, "check", model, "--buckets", "n=4,64", "--json")
    assert called.code == 0
    assert called.json["ok"]
    assert [(r["name"], r["status"]) for r in called.json["rows"]] == [
        ("mm", "supported"),
        ("last", "supported"),
    ]
    assert called.json["inputs"] == {"x": [64, 8]}
    assert called.json["memory_bytes"] >= WEIGHT.nbytes + 64 * 4 * 4
    assert "2 of 2 nodes" in Called(capsys, "check", model).out


def test_check_of_an_unsupported_model(capsys: Capture, tmp_path: Path) -> None:
    model = save_model(tmp_path / "m.onnx", last="Det")
    called = Called(capsys, "check", model, "--json")
    assert called.code == 4
    rows = {r["name"]: r for r in called.json["rows"]}
    assert rows["mm"]["status"] == "supported"
    assert rows["last"]["status"] == "unsupported"
    assert rows["last"]["message"]
    assert "1 of 2 nodes" in Called(capsys, "check", model).out
    built = Called(capsys, "build", model, "-o", tmp_path / "b", "--shape", "x=3x8", "--json")
    assert built.code == 4
    assert built.json["error"]["code"] == "unsupported-op"


@pytest.mark.parametrize(
    ("stage", "word"),
    [("graph", "contract"), ("kernels", "schedule"), ("loops", "for "), ("wasm", "f32x4.")],
)
def test_show(capsys: Capture, model: Path, stage: str, word: str) -> None:
    called = Called(capsys, "show", model, "--shape", "x=3x8", "--stage", stage)
    assert called.code == 0
    assert word in called.out
    plain = Called(capsys, "show", model, "--shape", "x=3x8", "--stage", stage, "--json")
    assert plain.json["stage"] == stage
    assert plain.json["text"].strip() == called.out.strip()
