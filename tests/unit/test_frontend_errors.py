"""Bad input to the frontend: each kind gets a typed error with its facts and a way out.

Input: damaged files, models with missing parts, shapes that do not fit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from frontend_factory import MODELS, model, relu, run
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.errors import (
    CompilerBug,
    InvalidModel,
    ShapeError,
    TilewrightError,
    UnsupportedDType,
    UnsupportedOp,
    UsageError,
)
from tilewright.frontend import (
    check,
    import_model,
    load,
    operator_table,
    parse_buckets,
    parse_shapes,
)
from tilewright.frontend.operator_table import find

GOOD = MODELS / "resnet-tiny-dynamo.onnx"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no graph with outputs"),
        (b"hello, I am text\n", "not an ONNX model"),
        (bytes(range(255, 0, -1)) * 9, "not an ONNX model"),
        (b"<!DOCTYPE html><title>404</title>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
        (GOOD.read_bytes()[:50_000], "truncated"),
        (relu().SerializeToString()[:-9], "truncated"),
    ],
)
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(InvalidModel, match=says) as caught:
        load(path)
    assert caught.value.hint


def test_every_cut_of_a_model_is_refused(tmp_path: Path) -> None:
    whole = relu().SerializeToString()
    path = tmp_path / "m.onnx"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(TilewrightError):
            import_model(path, {"n": 4})


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.onnx", tmp_path):
        with pytest.raises(InvalidModel, match="cannot read") as caught:
            load(path)
        assert caught.value.facts["path"] == str(path)


def external(folder: Path) -> Path:
    """y = x * w with w in a file of its own."""
    weight = np.arange(600, dtype=np.float32)
    proto = model([helper.make_node("Mul", ["x", "w"], ["y"])], {"x": [600]}, ["y"], {"w": weight})
    path = folder / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return path


def test_external_data_is_read_when_it_is_needed(tmp_path: Path) -> None:
    path = external(tmp_path)
    graph = import_model(path)
    (y,) = run(graph, {"x": np.ones(600, np.float32)})
    np.testing.assert_array_equal(y, np.arange(600, dtype=np.float32))


def test_external_data_that_is_missing(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(InvalidModel, match="is missing") as caught:
        load(path)
    assert "w.bin" in str(caught.value.facts["path"])


def test_external_data_that_is_cut_short(tmp_path: Path) -> None:
    path = external(tmp_path)
    data = tmp_path / "w.bin"
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(InvalidModel, match="truncated") as caught:
        load(path)
    assert caught.value.facts["wanted_bytes"] == 2400
    assert caught.value.facts["found_bytes"] == 100


@pytest.mark.parametrize(("key", "value"), [("offset", "-4"), ("offset", "x"), ("length", "")])
def test_external_data_without_a_valid_place(tmp_path: Path, key: str, value: str) -> None:
    path = external(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    entries = proto.graph.initializer[0].external_data
    kept = [e for e in entries if e.key != key]
    del entries[:]
    entries.extend([*kept, onnx.StringStringEntryProto(key=key, value=value)])
    onnx.save(proto, path)
    with pytest.raises(InvalidModel, match="invalid offset"):
        load(path)


def test_external_data_may_not_leave_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    path = external(folder)
    (folder / "w.bin").rename(tmp_path / "w.bin")
    proto = onnx.load(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../w.bin"
    onnx.save(proto, path)
    with pytest.raises(InvalidModel, match="outside"):
        load(path)


def test_external_data_without_a_folder(tmp_path: Path) -> None:
    proto = onnx.load(external(tmp_path), load_external_data=False)
    with pytest.raises(InvalidModel, match="has no folder"):
        load(proto)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"dims": [9], "raw_data": b"1234"}, "fewer elements"),
        ({"dims": [9], "raw_data": bytes(35)}, "fewer elements"),
        ({"dims": [9], "raw_data": bytes(37)}, "fewer elements"),
        ({"dims": [9], "float_data": [1.0] * 8}, "fewer elements"),
        ({"dims": [-9], "raw_data": bytes(36)}, "negative dimension"),
    ],
)
def test_a_weight_that_does_not_fill_its_shape(fields: dict[str, Any], says: str) -> None:
    proto = model([helper.make_node("Mul", ["x", "w"], ["y"])], {"x": [9]}, ["y"])
    proto.graph.initializer.append(TensorProto(name="w", data_type=1, **fields))
    with pytest.raises(InvalidModel, match=says):
        load(proto)


@pytest.mark.parametrize(
    ("kind", "says"), [(TensorProto.INT4, "INT4"), (TensorProto.STRING, "STRING"), (0, "UNDEF")]
)
def test_a_weight_of_an_unsupported_element_type(kind: int, says: str) -> None:
    proto = model([helper.make_node("Mul", ["x", "w"], ["y"])], {"x": [2]}, ["y"])
    proto.graph.initializer.append(TensorProto(name="w", dims=[2], data_type=kind, raw_data=b"1"))
    with pytest.raises(UnsupportedDType, match=says):
        import_model(proto)
    (row,) = check(proto).rows
    assert (row.status, row.code) == ("unsupported", "unsupported-dtype")


def test_an_unknown_operator_names_the_node() -> None:
    proto = model([helper.make_node("Det", ["x"], ["y"], name="d")], {"x": [2, 2]}, ["y"])
    with pytest.raises(UnsupportedOp, match="Det") as caught:
        import_model(proto)
    facts = caught.value.facts
    assert (facts["node"], facts["op"], facts["opset"]) == ("d", "Det", 17)
    assert (facts["dtype"], facts["shape"]) == (["f32"], [[2, 2]])


def test_an_unknown_domain_names_it() -> None:
    node = helper.make_node("Magic", ["x"], ["y"], domain="com.example")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    proto = model([node], {"x": [2]}, ["y"], opset_imports=opsets)
    with pytest.raises(UnsupportedOp, match="Magic") as caught:
        import_model(proto)
    assert caught.value.facts["domain"] == "com.example"


@pytest.mark.parametrize("opset", [1, 6, 99])
def test_an_opset_out_of_range(opset: int) -> None:
    with pytest.raises(UnsupportedOp, match=f"opset {opset}") as caught:
        import_model(relu(opset=opset), {"n": 4})
    assert "Supported are 7 to" in caught.value.hint


def test_an_operator_newer_than_the_models_opset() -> None:
    proto = model([helper.make_node("Gelu", ["x"], ["y"])], {"x": [2]}, ["y"], opset=17)
    with pytest.raises(UnsupportedOp, match="Gelu"):
        import_model(proto)


def test_an_unsupported_element_type() -> None:
    proto = relu({"x": [2]})
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT16
    with pytest.raises(UnsupportedDType, match="UINT16") as caught:
        import_model(proto)
    assert caught.value.facts["input"] == "x"


def test_operands_of_different_dtypes() -> None:
    weight = np.arange(2, dtype=np.int64)
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [2]}, ["y"], {"w": weight})
    with pytest.raises(InvalidModel, match="different dtypes") as caught:
        import_model(proto)
    assert caught.value.facts["dtype"] == ["f32", "i64"]


@pytest.mark.parametrize("axis", [3, -3])
def test_an_axis_that_flatten_does_not_have(axis: int) -> None:
    proto = model([helper.make_node("Flatten", ["x"], ["y"], axis=axis)], {"x": [2, 3]}, ["y"])
    with pytest.raises(ShapeError, match=f"axis {axis} does not exist"):
        import_model(proto)


def test_shapes_that_do_not_fit() -> None:
    proto = model([helper.make_node("Add", ["x", "z"], ["y"])], {"x": [2], "z": [3]}, ["y"])
    with pytest.raises(ShapeError, match="broadcast") as caught:
        import_model(proto)
    assert caught.value.facts["op"] == "Add"


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (helper.make_node("Relu", ["nothing"], ["y"]), "nothing makes the tensor 'nothing'"),
        (helper.make_node("Relu", [], ["y"]), "wrong number of operands"),
        (helper.make_node("Relu", ["x", "x"], ["y"]), "wrong number of operands"),
        (helper.make_node("Conv", ["x", ""], ["y"]), "wrong number of operands"),
        (helper.make_node("Concat", ["x"], ["y"]), "no attribute axis"),
        (helper.make_node("Gelu", ["x"], ["y"], approximate="other"), "no approximation"),
    ],
)
def test_a_malformed_node(node: onnx.NodeProto, says: str) -> None:
    with pytest.raises(InvalidModel, match=says):
        import_model(model([node], {"x": [2]}, ["y"], opset=20))


TENSOR = helper.make_tensor("t", TensorProto.FLOAT, [1], [3.0])
SPARSE = helper.make_sparse_tensor(
    TENSOR, helper.make_tensor("i", TensorProto.INT64, [1], [1]), [2]
)


@pytest.mark.parametrize(
    ("attributes", "error", "says"),
    [
        ({"value": 3}, InvalidModel, "attribute value of Constant must be a tensor"),
        ({"value": "text"}, InvalidModel, "attribute value of Constant must be a tensor"),
        ({"value": [1, 2]}, InvalidModel, "attribute value of Constant must be a tensor"),
        ({"value": SPARSE}, InvalidModel, "attribute value of Constant must be a tensor"),
        ({"value_float": 1}, None, ""),
        ({"value_int": 1.5}, InvalidModel, "attribute value_int of Constant must be a whole"),
        ({"value_ints": [1.5]}, InvalidModel, "attribute value_ints of Constant must be a list"),
        ({"value_floats": "x"}, InvalidModel, "attribute value_floats of Constant must be a list"),
        ({"value_string": "text"}, UnsupportedDType, "strings"),
        ({"value_strings": ["a", "b"]}, UnsupportedDType, "strings"),
        ({"sparse_value": SPARSE}, UnsupportedOp, "sparse_value"),
        ({"value": TENSOR, "value_int": 3}, InvalidModel, "exactly one value"),
        ({"value_int": 3, "value_ints": [3]}, InvalidModel, "exactly one value"),
        ({}, InvalidModel, "exactly one value"),
        ({"value": TENSOR}, None, ""),
    ],
)
def test_forms_of_a_constant(
    attributes: dict[str, Any], error: type[TilewrightError] | None, says: str
) -> None:
    """Report and importer agree on each."""
    proto = model([helper.make_node("Constant", [], ["y"], **attributes)], {"x": [2]}, ["y"])
    (row,) = check(proto).rows
    if error is None:
        assert row.status == "supported"
        import_model(proto)
        return
    assert (row.status, row.code) == ("unsupported", error.code)
    with pytest.raises(error, match=says) as caught:
        import_model(proto)
    assert caught.value.facts["node"] == "y"


@pytest.mark.parametrize(
    "op",
    ["Exp", "Sigmoid", "Softmax", "LogSoftmax", "Gelu", "ReduceL2", "ReduceLogSum", "Softplus"],
)
def test_an_operator_of_floats_says_where_a_cast_goes(op: str) -> None:
    proto = model([helper.make_node(op, ["x"], ["y"])], {"x": [2, 3]}, ["y"], opset=20)
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    (row,) = check(proto).rows
    assert (row.op, row.code) == (op, "unsupported-dtype")
    assert "i64" in row.message
    assert "Cast" in row.hint
    with pytest.raises(UnsupportedDType, match="i64") as caught:
        import_model(proto)
    assert (caught.value.facts["node"], caught.value.facts["op"]) == ("y", op)


@pytest.mark.parametrize(("op", "index"), [
    ("Gather", [3]), ("Gather", -4), ("GatherElements", [[0, -4]]), ("GatherND", [[1, 3]]),
])  # fmt: skip
def test_a_known_index_out_of_range_is_found_before_a_run(op: str, index: Any) -> None:
    axis = {} if op == "GatherND" else {"axis": 1}
    known = numpy_helper.from_array(np.array(index), "i")
    nodes = [helper.make_node(op, ["x", "i"], ["y"], name="pick", **axis)]
    proto = model(nodes, {"x": [2, 3]}, ["y"], opset=20)
    proto.graph.initializer.append(known)
    (row,) = check(proto).rows
    assert (row.status, row.code) == ("unsupported", "invalid-model")
    with pytest.raises(InvalidModel, match="axis 1 has 3 elements") as caught:
        import_model(proto)
    facts, wrong = caught.value.facts, 3 if np.max(index) == 3 else -4
    assert (facts["node"], facts["op"], facts["index"]) == ("pick", op, wrong)


@pytest.mark.parametrize(
    "kind",
    [
        TypeError,
        AttributeError,
        KeyError,
        IndexError,
        AssertionError,
        ValueError,
        ZeroDivisionError,
        NameError,
        RecursionError,
    ],
)
def test_a_fault_of_a_rule_is_ours(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise kind("our own")

    rule = replace(find("", "Relu", 17), function=broken)  # type: ignore[type-var]
    monkeypatch.setitem(operator_table._TABLE, ("", "Relu"), [rule])
    proto = relu({"x": [2]})
    (row,) = check(proto).rows
    assert row.code == "compiler-bug"
    with pytest.raises(CompilerBug, match=kind.__name__) as caught:
        import_model(proto)
    assert (caught.value.facts["node"], caught.value.facts["op"]) == ("the_relu", "Relu")


@pytest.mark.parametrize(
    ("op", "attributes", "says"),
    [
        (
            "Softmax",
            {"axis": "first"},
            "attribute axis of Softmax must be a whole number, but is text",
        ),
        (
            "Softmax",
            {"axis": [0]},
            "attribute axis of Softmax must be a whole number, but is a list of",
        ),
        ("Elu", {"alpha": "much"}, "attribute alpha of Elu must be a number, but is text"),
        ("Transpose", {"perm": 0}, "attribute perm of Transpose must be a list of whole"),
        ("DepthToSpace", {}, "has no attribute blocksize"),
        ("Gelu", {"approximate": 1}, "attribute approximate of Gelu must be text"),
    ],
)
def test_an_attribute_of_another_type(op: str, attributes: dict[str, Any], says: str) -> None:
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    with pytest.raises(InvalidModel, match=says):
        import_model(model([node], {"x": [2, 4, 2, 2]}, ["y"], opset=20))


def test_an_attribute_that_is_given_twice() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=0)
    node.attribute.append(helper.make_attribute("axis", 1))
    with pytest.raises(InvalidModel, match="twice"):
        import_model(model([node], {"x": [2, 2]}, ["y"]))


@pytest.mark.parametrize("op", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_roots_and_logarithms_of_integers(op: str) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT32),
        helper.make_node(op, ["i"], ["y"]),
    ]
    with pytest.raises(UnsupportedDType, match=f"{op} of integers") as caught:
        import_model(model(nodes, {"x": [2, 2]}, ["y"]))
    assert "Cast to float" in caught.value.hint


def test_a_power_of_integers_with_an_exponent_of_run_time() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        helper.make_node("Pow", ["i", "i"], ["y"]),
    ]
    with pytest.raises(UnsupportedDType, match="exponent that is known") as caught:
        import_model(model(nodes, {"x": [2]}, ["y"]))
    assert "f32" not in caught.value.hint


def test_an_unknown_attribute_is_never_ignored() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], secret=1)
    with pytest.raises(UnsupportedOp, match="attribute secret"):
        import_model(model([node], {"x": [2]}, ["y"]))


def test_a_shape_that_depends_on_data() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["s"], to=TensorProto.INT64),
        helper.make_node("ConstantOfShape", ["s"], ["y"]),
    ]
    with pytest.raises(UnsupportedOp, match="at run time") as caught:
        import_model(model(nodes, {"x": [2]}, ["y"]))
    assert caught.value.facts["op"] == "ConstantOfShape"


@pytest.mark.parametrize("name", ["If", "Loop"])
def test_control_flow_on_data(name: str) -> None:
    inner = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["b"])],
        "inner",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
    )
    branches = {"then_branch": inner, "else_branch": inner} if name == "If" else {"body": inner}
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=TensorProto.BOOL),
        helper.make_node(name, ["c"], ["y"], **branches),
    ]
    with pytest.raises(UnsupportedOp):
        import_model(model(nodes, {"x": [1]}, ["y"]))


@pytest.mark.parametrize("taken", [True, False])
def test_control_flow_on_a_constant_is_resolved(taken: bool) -> None:
    def branch(op: str) -> onnx.GraphProto:
        out = [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)]
        return helper.make_graph([helper.make_node(op, ["x"], ["b"])], op, [], out)

    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg")
    )
    proto = model([node], {"x": [2]}, ["y"], {"c": np.array(taken)})
    (y,) = run(import_model(proto), {"x": np.array([-1.0, 2.0], np.float32)})
    assert y.tolist() == ([0.0, 2.0] if taken else [1.0, -2.0])


def test_a_dynamic_dimension_without_a_value_names_the_way_out() -> None:
    with pytest.raises(ShapeError, match="dimension 1 'n' of input 'x'") as caught:
        import_model(relu())
    assert caught.value.facts == {"input": "x", "dim": "n"}
    assert "--shape x=1xN" in caught.value.hint
    assert "--buckets n=" in caught.value.hint


@pytest.mark.parametrize("size", [None, -1, "?"])
def test_a_dynamic_dimension_without_a_name(size: int | str | None) -> None:
    with pytest.raises(ShapeError, match="dimension 0 of input 'x'") as caught:
        import_model(relu({"x": [size, 4]}))
    assert "--shape x=Nx4" in caught.value.hint


@pytest.mark.parametrize(
    ("dims", "shapes", "says"),
    [
        ({"m": 3}, {}, "no dynamic dimension 'm'"),
        ({"n": 0}, {}, "at least 1"),
        ({}, {"z": (1, 2)}, "no input 'z'"),
        ({}, {"x": (2, 2)}, "does not fit the model"),
        ({}, {"x": (1, 2, 3)}, "does not fit the model"),
        ({"n": 5}, {"x": (1, 4)}, "at once"),
    ],
)
def test_values_that_do_not_fit_the_model(
    dims: dict[str, int], shapes: dict[str, tuple[int, ...]], says: str
) -> None:
    with pytest.raises(ShapeError, match=says):
        import_model(relu(), dims, shapes)


@pytest.mark.parametrize("text", ["x", "=1x2", "x=1xx2", "x=1x"])
def test_a_shape_option_that_cannot_be_read(text: str) -> None:
    with pytest.raises(UsageError, match="--shape"):
        parse_shapes([text])


@pytest.mark.parametrize("text", ["n", "n=", "n=1,x", "=4", "n=0", "n=²"])
def test_a_bucket_option_that_cannot_be_read(text: str) -> None:
    with pytest.raises(UsageError, match="--buckets"):
        parse_buckets([text])


def test_an_option_that_names_something_twice() -> None:
    with pytest.raises(UsageError, match="'x' twice"):
        parse_shapes(["x=1x2", "x=1x3"])
    with pytest.raises(UsageError, match="'n' twice"):
        parse_buckets(["n=16", "n=32"])


def test_bad_files_fail_the_report_too(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"not a model")
    with pytest.raises(InvalidModel):
        check(tmp_path / "m.onnx")


def test_a_weight_that_is_listed_as_an_input_keeps_its_value() -> None:
    weight = np.array([2.0, 3.0], np.float32)
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    proto = model(nodes, {"x": [2], "w": [2]}, ["y"], {"w": weight})
    (y,) = run(import_model(proto), {"x": weight})
    assert y.tolist() == [4, 9]
    with pytest.raises(ShapeError, match="'w' is a weight") as caught:
        import_model(proto, shapes={"w": (2,)})
    assert "initializer" in caught.value.hint
    assert any("'w' has a value in the file" in note for note in check(proto).notes)
    proto.ir_version = 3  # there every weight is listed so
    assert not check(proto).notes


@pytest.mark.parametrize(
    ("equation", "says"),
    [
        ("ij->k", "'k' in its result and in no operand"),
        ("i...j->...q", "'q' in its result"),
        ("ij->ii", "'i' in its result twice"),
    ],
)
def test_an_equation_whose_result_no_operand_gives(equation: str, says: str) -> None:
    node = helper.make_node("Einsum", ["x"], ["y"], name="sum", equation=equation)
    with pytest.raises(InvalidModel, match=says) as caught:
        import_model(model([node], {"x": [2, 3]}, ["y"]))
    assert caught.value.facts["node"] == "sum"
    assert caught.value.hint
