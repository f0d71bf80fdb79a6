"""Names and the order of nodes: unsorted models run, and what nothing makes is refused.

Input: models in ONNX's own text.  Output: values, or the same typed error from report and importer.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from frontend_factory import MODELS, run_model
from onnx import NodeProto, parser

from tilewright.base.errors import InvalidModel
from tilewright.frontend import check, import_model, load

X = np.array([-2.0, 3.0], np.float32)


def of(text: str, functions: str = "", outputs: str = "float[2] y") -> onnx.ModelProto:
    head = '<ir_version: 10, opset_import: ["" : 21, "my" : 1]>'
    return parser.parse_model(f"{head} g (float[2] x) => ({outputs}) {{ {text} }} {functions}")


BRANCH = (
    "y = If (c) <then_branch = p () => (q) { q = Add(r, z) r = Neg(x) },"
    " else_branch = p () => (q) { q = Neg(z) }> z = Abs(x) k = Constant<value_int: int = 1>()"
    " c = Cast<to: int = 9>(k)"
)
FUNCTION = '<domain: "my", opset_import: ["" : 21]> F (a) => (r) { r = Neg(t) t = Abs(a) }'


@pytest.mark.parametrize(
    ("text", "functions", "want"),
    [
        pytest.param("y = Neg(b) b = Abs(a) a = Neg(x)", "", [-2, -3], id="reversed"),
        pytest.param(BRANCH, "", [4, 0], id="subgraph and what it reads"),
        pytest.param("y = my.F(t) t = Neg(x)", FUNCTION, [-2, -3], id="function"),
    ],
)
def test_unsorted_nodes_run(text: str, functions: str, want: list[float]) -> None:
    proto = of(text, functions)
    (y,) = run_model(proto, {"x": X})
    assert y.tolist() == want
    assert check(proto).ok


def test_a_sorted_model_keeps_its_order() -> None:
    for path in (MODELS / "resnet-tiny-dynamo.onnx", MODELS / "lstm-tiny-dynamo.onnx"):
        before = [n.output[0] for n in onnx.load(path, load_external_data=False).graph.node]
        assert [n.output[0] for n in load(path).nodes] == before


def test_of_two_nodes_that_could_go_next_the_earlier_one_goes() -> None:
    nodes = load(of("y = Add(b, a) a = Neg(x) b = Abs(x)")).nodes
    assert [n.op_type for n in nodes] == ["Neg", "Abs", "Add"]


def test_a_long_chain_in_reverse() -> None:
    """Sorting takes no step per pair of nodes, and no recursion."""
    count = 20_000
    proto = of("y = Neg(x)")
    del proto.graph.node[:]
    names = ["x", *(f"t{i}" for i in range(count - 1)), "y"]
    proto.graph.node.extend(
        NodeProto(op_type="Neg", input=[names[i]], output=[names[i + 1]])
        for i in reversed(range(count))
    )
    assert [n.output[0] for n in load(proto).nodes] == names[1:]


@pytest.mark.parametrize(
    ("text", "outputs", "says"),
    [
        ("y = Neg(x)", "float[2] z", "no node makes the output 'z'"),
        ("y = Neg(nothing)", "float[2] y", "nothing makes the tensor 'nothing'"),
        ("y = Add(x, t) t = Neg(y)", "float[2] y", "in a cycle"),
        ("y = Add(x, y)", "float[2] y", "in a cycle"),
        ("y = Neg(x) y = Abs(x)", "float[2] y", "'y' is the result of two nodes"),
        ("x = Neg(x) y = Abs(x)", "float[2] y", "'x' is the result of two nodes"),
        (BRANCH.replace("z = Abs(x)", ""), "float[2] y", "nothing makes the tensor 'z'"),
        (BRANCH.replace("r = Neg(x)", "r = Neg(q)"), "float[2] y", "in a cycle"),
        (BRANCH.replace("q = Neg(z)", "w = Neg(z)"), "float[2] y", "no node makes the output 'q'"),
    ],
)
def test_names_that_do_not_fit(text: str, outputs: str, says: str) -> None:
    proto = of(text, outputs=outputs)
    for read in (check, import_model):
        with pytest.raises(InvalidModel, match=says) as caught:
            read(proto)
        assert caught.value.hint


def test_a_subgraph_may_use_a_name_again() -> None:
    """What it makes hides the tensor of the same name outside."""
    text = BRANCH.replace("q = Add(r, z) r = Neg(x)", "q = Neg(z) z = Neg(x)")
    assert run_model(of(text), {"x": X})[0].tolist() == [-2, 3]
