"""Shapes, buckets, weights and the coverage report.

Input: small models.  The report never compiles, and goes on after what it cannot do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from frontend_factory import MODELS, model, relu, run
from onnx import TensorProto, helper

from tilewright.base.dtypes import F32
from tilewright.frontend import (
    check,
    combinations,
    import_model,
    initializers,
    load,
    parse_buckets,
    parse_shapes,
    resolve,
)
from tilewright.frontend.shape_inference import ShapeInference
from tilewright.graph import ops


def test_a_model_tells_its_inputs_and_dimensions() -> None:
    loaded = load(MODELS / "bert-tiny-sdpa-torchscript.onnx")
    assert [i.name for i in loaded.inputs] == ["input_ids", "attention_mask"]
    assert loaded.inputs[0].dims == (1, "n")
    assert loaded.dim_names == ("n",)
    assert loaded.outputs == ("last_hidden_state",)


def test_options_become_shapes() -> None:
    assert parse_shapes(["x=1x128", "y=2xn", "z="]) == {"x": (1, 128), "y": (2, "n"), "z": ()}
    assert parse_buckets(["n=32,16,16"]) == {"n": (16, 32)}
    assert combinations({"n": (16, 32), "b": (1,)}) == [{"n": 16, "b": 1}, {"n": 32, "b": 1}]
    assert combinations({}) == [{}]


def test_a_shape_binds_the_name_for_the_other_inputs() -> None:
    loaded = load(MODELS / "bert-tiny-sdpa-torchscript.onnx")
    assert resolve(loaded, shapes={"input_ids": (1, 24)})["attention_mask"] == (1, 24)


def test_a_shape_may_name_a_dimension() -> None:
    loaded = load(relu({"x": [None, None]}))
    assert resolve(loaded, {"n": 7}, {"x": (1, "n")}) == {"x": (1, 7)}


def test_every_bucket_is_one_graph() -> None:
    loaded = load(MODELS / "bert-tiny-eager-dynamo.onnx")
    graphs = [import_model(loaded, dims) for dims in combinations({"n": (16, 32, 48)})]
    assert [g.inputs[0][1].shape for g in graphs] == [(1, 16), (1, 32), (1, 48)]


def two_failures() -> object:
    """x → Det (unsupported) → Relu; x → Relu → a known shape through an unsupported node."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Det", ["a"], ["b"], name="det"),
        helper.make_node("Relu", ["b"], ["c"], name="after_det"),
        helper.make_node("NonZero", ["a"], ["d"], name="nonzero"),
        helper.make_node("Cast", ["d"], ["e"], name="after_nonzero", to=TensorProto.FLOAT),
        helper.make_node("Relu", ["x"], ["f"], name="last"),
    ]
    return model(nodes, {"x": [2, 2]}, ["c", "e", "f"])


def test_the_report_goes_on_after_a_failure() -> None:
    report = check(two_failures())  # type: ignore[arg-type]
    status = {row.name: row.status for row in report.rows}
    assert status == {
        "first": "supported",
        "det": "unsupported",
        "after_det": "supported",  # ONNX infers the determinant's shape
        "nonzero": "unsupported",
        "after_nonzero": "not reached",  # and cannot infer how many are not zero
        "last": "supported",
    }
    assert not report.ok
    assert report.unsupported_ops == {"Det": 1, "NonZero": 1}
    assert report.counts == {"supported": 3, "unsupported": 2, "not reached": 1}
    rows = {row.name: row for row in report.rows}
    assert rows["det"].code == "unsupported-op"
    assert "nonzero" in rows["after_nonzero"].message


def test_the_report_is_json() -> None:
    report = check(two_failures())  # type: ignore[arg-type]
    plain = json.loads(json.dumps(report.to_json()))
    assert plain["ok"] is False
    assert plain["rows"][1]["op"] == "Det"


def test_the_report_assumes_dimensions_and_says_so() -> None:
    report = check(MODELS / "bert-tiny-sdpa-dynamo.onnx")
    assert report.inputs["input_ids"] == (1, 16)
    assert any("'n'" in note and "16" in note for note in report.notes)
    assert check(MODELS / "bert-tiny-sdpa-dynamo.onnx", {"n": 8}).notes == ()


def test_the_memory_estimate_follows_the_shapes() -> None:
    path = MODELS / "bert-tiny-sdpa-dynamo.onnx"
    small, large = check(path, {"n": 16}), check(path, {"n": 64})
    assert small.weight_bytes == large.weight_bytes
    assert 70_000 < small.weight_bytes < path.stat().st_size
    assert 3 * small.activation_bytes < large.activation_bytes
    # The hidden state of the feed-forward layer, its operand and its result live at once.
    assert small.activation_bytes >= 16 * (32 + 64) * 4


def test_the_report_reads_no_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    read = initializers.read_tensor

    def guarded(tensor: TensorProto, folder: Path | None, dtype: object) -> object:
        assert np.prod(tensor.dims) <= 4096
        assert dtype is not F32 or np.prod(tensor.dims) <= initializers.SMALL, tensor.name
        return read(tensor, folder, dtype)  # type: ignore[arg-type]

    monkeypatch.setattr(initializers, "read_tensor", guarded)
    assert check(MODELS / "roberta-tiny-sdpa-torchscript.onnx").ok


def test_half_precision_is_widened_and_noted() -> None:
    weight = np.linspace(0, 1, 40).astype(np.float16)
    proto = model([helper.make_node("Mul", ["x", "w"], ["y"])], {"x": [40]}, ["y"], {"w": weight})
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    graph = import_model(proto)
    assert graph.outputs[0][1].dtype == F32
    (y,) = run(graph, {"x": np.ones(40, np.float32)})
    np.testing.assert_array_equal(y, weight.astype(np.float32))
    report = check(proto)
    assert report.notes == ("f16 tensors are computed in f32 and rounded where they leave it",)
    assert report.weight_bytes == 160


def test_batch_norm_stays_a_graph_over_the_weights() -> None:
    graph = import_model(MODELS / "resnet-tiny-dynamo-plain.onnx")
    constants = [n for n in graph.nodes() if isinstance(n.op, ops.Constant)]
    assert max(n.size for n in constants) <= initializers.SMALL


def aborting() -> onnx.NodeProto:
    """ONNX's shape inference aborts its process for it."""
    return helper.make_node("Split", ["x"], ["a", "b", "c", "d"], name="split", num_outputs=2)


def test_onnx_may_abort_where_it_infers_shapes() -> None:
    """What follows such a node is not reached; the report goes on, and ONNX is asked again."""
    nodes = [
        aborting(),
        helper.make_node("HannWindow", ["i"], ["w"], name="window", periodic=0),
        helper.make_node("Relu", ["b"], ["after"], name="after"),
        helper.make_node("Det", ["x"], ["det"], name="det"),
        helper.make_node("Relu", ["det"], ["last"], name="last"),
    ]
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2]),
        helper.make_tensor_value_info("i", TensorProto.INT32, [1]),
    ]
    ends = [helper.make_empty_tensor_value_info(name) for name in ("after", "w", "last")]
    graph = helper.make_graph(nodes, "g", infos, ends)
    opsets = [helper.make_opsetid("", 18)]
    report = check(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    assert {row.name: row.status for row in report.rows} == {
        "split": "unsupported",
        "window": "unsupported",
        "after": "not reached",
        "det": "unsupported",
        "last": "supported",
    }


def test_a_process_that_hangs_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed, and nothing more is asked: there may be many such nodes."""
    started = []
    start = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(a) or start(*a, **k))
    never = (sys.executable, "-c", "import sys; sys.stdin.buffer.read()")
    known = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [7])]
    relu = helper.make_node("Relu", ["x"], ["y"])
    alone = helper.make_model(helper.make_graph([relu], "g", known, []))
    with ShapeInference(never, limit=0) as inference:
        assert [inference(alone), inference(alone)] == [None, None]
    assert len(started) == 1


def test_a_process_that_dies_is_an_answer() -> None:
    known = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [7])]
    relu = helper.make_node("Relu", ["x"], ["y"])
    with ShapeInference() as inference:
        for node, found in ((aborting(), False), (relu, True), (aborting(), False)):
            alone = helper.make_model(helper.make_graph([node], "g", known, []))
            assert (inference(alone) is not None) is found
