"""Models of opset 7 to 12 give onnxruntime's results at their own opset, or are refused by name.

Input: one-node models in the words of each old opset.  The list of operators to cover comes from
ONNX's own history of definitions: one that is missing here fails.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from frontend_factory import distance, model, reference, run
from onnx import TensorProto, helper
from opset_cases import CASES, Array, Case, changed

from tilewright.base.errors import ShapeError, TilewrightError, UnsupportedOp
from tilewright.frontend import check, import_model, operator_table, opsets
from tilewright.frontend.opsets import OLDEST, RULES, differing
from tilewright.graph import ops

#: Old definitions that are always refused.
REFUSED = {("Scan", 8)}

RUNS = [(case, opset) for case in CASES for opset in range(case.since, case.until + 1)]


def test_attributes_of_rules_are_of_known_kinds_and_not_ignored() -> None:
    rules = [rule for rows in operator_table._TABLE.values() for rule in rows]
    wrong = [r for r in rules if not set(r.attributes.values()) <= operator_table.KINDS.keys()]
    assert rules
    assert not wrong
    assert not [r for r in rules if r.attributes.keys() & r.ignored]


def test_every_definition_that_changed_has_a_case() -> None:
    covered = {(case.op, opset) for case, opset in RUNS}
    missing = {
        (op, since, opset)
        for (op, since), opsets in changed().items()
        for opset in opsets
        if (op, opset) not in covered and (op, since) not in REFUSED
    }
    assert missing == set()


@pytest.mark.parametrize(("case", "opset"), RUNS, ids=str)
def test_agrees_with_onnxruntime_at_its_own_opset(case: Case, opset: int) -> None:
    proto = case.model(opset)
    inputs = {f"x{k}": x for k, x in enumerate(case.inputs)}
    ours, theirs = run(import_model(proto), inputs), reference(proto.SerializeToString(), inputs)
    assert len(ours) == case.outputs
    for a, b in zip(ours, theirs, strict=True):
        agree(a, b)


def agree(ours: Array, theirs: Array) -> None:
    """Sums and exponentials to a few units in the last place, all that only moves exactly."""
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    if theirs.dtype.kind == "f" and np.isfinite(theirs).all():
        assert distance(ours.astype(np.float64), theirs.astype(np.float64)) < 2e-6
    else:
        np.testing.assert_array_equal(ours, theirs)


def node(op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> onnx.NodeProto:
    """Reads x and `inputs`, makes y, y1, ..."""
    made = ["y", *(f"y{k}" for k in range(1, outputs))]
    return helper.make_node(op, ["x", *inputs], made, name=f"the {op}", **attributes)


CHANNELS = {k: np.ones(3, np.float32) for k in "abcd"}
BODY = helper.make_graph(
    [helper.make_node("Add", ["s", "e"], ["t"])],
    "body",
    [helper.make_tensor_value_info(k, TensorProto.FLOAT, None) for k in "se"],
    [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
)


@pytest.mark.parametrize(
    ("opset", "old", "says"),
    [
        (7, node("BatchNormalization", *"abcd", spatial=0), "spatial must have value 1"),
        (8, helper.make_node("Scan", ["", "x", "x"], ["y"], name="the Scan", num_scan_inputs=1,
                             body=BODY), "batch axis"),
        (7, node("Celu"), "opset 7 has no operator Celu"),
        (10, node("Upsample", "a"), "opset 10 has no operator Upsample"),
        (9, node("ATen", operator="layer_norm"), "opset 9 has no operator ATen"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_converted_is_refused_by_name(
    opset: int, old: onnx.NodeProto, says: str
) -> None:
    proto = model([old], {"x": [2, 3, 4]}, ["y"], CHANNELS, opset=opset)
    with pytest.raises(UnsupportedOp, match=says) as caught:
        import_model(proto)
    facts = caught.value.facts
    assert (facts["node"], facts["op"]) == (old.name, old.op_type)
    assert (facts["opset"], facts["dtype"][0]) == (opset, "f32")
    assert "export the model" in caught.value.hint.lower()
    (row,) = check(proto).rows
    assert (row.status, row.code, row.message) == (
        "unsupported",
        "unsupported-op",
        caught.value.message,
    )


def test_a_refusal_names_the_opset_that_would_do() -> None:
    proto = model(
        [node("BatchNormalization", *"abcd", spatial=0)], {"x": [2, 3]}, ["y"], CHANNELS, opset=7
    )
    with pytest.raises(UnsupportedOp) as caught:
        import_model(proto)
    assert caught.value.facts["rules_from"] == RULES
    assert f"opset {RULES} or newer" in caught.value.hint


@pytest.mark.parametrize("opset", range(OLDEST, 12))
def test_the_mask_of_an_old_dropout_may_be_named_but_not_read(opset: int) -> None:
    dropout = node("Dropout", outputs=2)
    named = import_model(model([dropout], {"x": [2, 3]}, ["y"], opset=opset))
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(run(named, {"x": x})[0], x)
    with pytest.raises(UnsupportedOp, match="mask is read"):
        import_model(model([dropout], {"x": [2, 3]}, ["y1"], opset=opset))


def test_outputs_that_nothing_reads_need_no_rule() -> None:
    """Old exporters name every statistic of batch norm, as in training."""
    norm = node("BatchNormalization", *"abcd", outputs=5)
    proto = model([norm], {"x": [2, 3]}, ["y"], CHANNELS, opset=9)
    assert check(proto).ok
    read = model([norm], {"x": [2, 3]}, ["y", "y1"], CHANNELS, opset=9)
    assert not check(read).ok


def test_the_parts_of_a_split_count_even_if_nothing_reads_them() -> None:
    proto = model([node("Split", outputs=3)], {"x": [6, 2]}, ["y"], opset=9)
    assert import_model(proto).outputs[0][1].shape == (2, 2)


def test_the_report_says_that_the_model_was_converted() -> None:
    old, new = (model([node("Relu")], {"x": [2]}, ["y"], opset=opset) for opset in (9, 13))
    assert check(old).notes == ("opset 9, converted to 13",)
    assert check(old).opsets == {"": 9}
    assert check(new).notes == ()


def test_the_report_goes_on_after_a_node_that_cannot_be_converted() -> None:
    nodes = [
        helper.make_node("ATen", ["x"], ["a"], name="private"),
        helper.make_node("Softmax", ["x"], ["y"], name="fine"),
    ]
    report = check(model(nodes, {"x": [2, 3]}, ["a", "y"], opset=9))
    assert [(r.name, r.status) for r in report.rows] == [
        ("private", "unsupported"), ("fine", "supported"),
    ]  # fmt: skip


@pytest.mark.parametrize("op", sorted({op for op, _ in differing(op for op, _ in changed())}))
def test_malformed_old_nodes_get_typed_errors(op: str) -> None:
    for opset, count, outputs in product(range(OLDEST, RULES), range(4), (1, 3)):
        names = (["", "a", "a"] if outputs > 1 else ["x", "", "a"])[:count]
        bad = helper.make_node(op, names, [f"y{k}" for k in range(outputs)])
        proto = model([bad], {"x": [2, 3]}, ["y0"], {"a": np.ones(3, np.float32)}, opset=opset)
        with suppress(TilewrightError):  # any other error fails
            import_model(proto)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax", "Flatten"])
@pytest.mark.parametrize("axis", [3, -3])
def test_an_axis_that_does_not_exist(op: str, axis: int) -> None:
    for opset in (7, 12):
        with pytest.raises(ShapeError, match=f"axis {axis} does not exist"):
            import_model(model([node(op, axis=axis)], {"x": [2, 3]}, ["y"], opset=opset))


def test_the_converter_sees_no_weight(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Weights in another file stay there, and one that two nodes share stays one."""
    seen = []

    def convert(proto: onnx.ModelProto, target: int) -> onnx.ModelProto:
        seen.append(proto)
        return original(proto, target)

    original = opsets.convert_version
    monkeypatch.setattr(opsets, "convert_version", convert)
    opsets._converted.cache_clear()
    nodes = [
        helper.make_node("Squeeze", ["w"], ["s"], axes=[0]),
        helper.make_node("MatMul", ["x", "s"], ["p"]),
        helper.make_node("ReduceSum", ["p"], ["q"], axes=[0]),
        helper.make_node("Squeeze", ["w"], ["t"], axes=[0]),
        helper.make_node("MatMul", ["q", "t"], ["y"]),
    ]
    weight = np.random.default_rng(0).standard_normal((1, 40, 40)).astype(np.float32)
    proto = model(nodes, {"x": [3, 40]}, ["y"], {"w": weight}, opset=11)
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    graph = import_model(path)
    assert [p.graph.node[0].op_type for p in seen] == ["Squeeze", "ReduceSum"]
    assert all(not p.graph.initializer and p.ByteSize() < 500 for p in seen)
    weights = [n for n in graph.nodes() if isinstance(n.op, ops.Weight)]
    assert [n.op.name for n in weights] == ["w"]
    x = np.ones((3, 40), np.float32)
    agree(run(graph, {"x": x})[0], reference(path, {"x": x})[0])
