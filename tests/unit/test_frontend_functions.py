"""Functions: of the model's own file, and operators that ONNX defines by others.

Input: models made here, and ONNX's node cases with operands as weights.  Output: their values, or
a typed error.  onnxruntime or ONNX's expected values judge.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from frontend_factory import Array, reference, run, run_model
from helpers.node_cases import cases, wrong_outputs
from onnx import TensorProto, helper, numpy_helper, parser

from tilewright.base.dtypes import DECLARED
from tilewright.base.errors import InvalidModel, TilewrightError, UnsupportedDType, UnsupportedOp
from tilewright.frontend import check, import_model, load
from tilewright.frontend.float16_types import narrow_of
from tilewright.frontend.operator_table import find

X = np.array([-2.0, 3.0], np.float32)


def of(text: str, functions: str, opset: int = 21) -> onnx.ModelProto:
    """A graph of x, and functions of the domain `my`, in ONNX's own text."""
    head = f'<ir_version: 10, opset_import: ["" : {opset}, "my" : 1]>'
    return parser.parse_model(f"{head} g (float[2] x) => (float[2] y) {{ {text} }} {functions}")


def function(signature: str, body: str, opset: int = 21) -> str:
    return f'<domain: "my", opset_import: ["" : {opset}, "my" : 1]> {signature} {{ {body} }}'


LEAKY = function("F <alpha: float = 0.5> (a) => (r)", "r = LeakyRelu <alpha: float = @alpha> (a)")
OPTIONAL = function("F <alpha> (a) => (r)", "r = LeakyRelu <alpha: float = @alpha> (a)")
OUTER = function("G <beta> (a) => (r)", "r = my.F <alpha: float = @beta> (a)")
BRANCHES = function(
    "F <by: float = 4.0> (a, b) => (r)",
    "t = Abs(a) c = Constant <value_int: int = 1> () d = Cast <to: int = 9> (c)"
    "r = If (d) <then_branch = p () => (q) { k = Constant <value_float: float = @by> ()"
    " t2 = Mul(t, k) q = Add(t2, b) }, else_branch = p () => (q) { q = Neg(t) }>",
)


@pytest.mark.parametrize(
    ("text", "functions", "want"),
    [
        pytest.param("y = my.F(x)", LEAKY, [-1, 3], id="default"),
        pytest.param("y = my.F<alpha: float = 0.25>(x)", LEAKY, [-0.5, 3], id="given"),
        pytest.param("y = my.F(x)", OPTIONAL, [-0.02, 3], id="left out"),
        pytest.param("y = my.G(x)", LEAKY + OUTER, [-1, 3], id="left out outside, default inside"),
        pytest.param("y = my.G<beta: float = 2.0>(x)", LEAKY + OUTER, [-4, 3], id="through two"),
        pytest.param("y = my.G(x)", OPTIONAL + OUTER, [-0.02, 3], id="left out through two"),
        pytest.param("t = my.F(x, x) y = my.F<by: float = 1.0>(t, x)", BRANCHES, [4, 18],
                     id="subgraphs"),
        pytest.param("y = my.F(x)", function("F (a, low, high) => (r)", "r = Clip(a, low, high)"),
                     [-2, 3], id="operands left out"),
        pytest.param('k = Constant<value_float: float = 1.0>() y = my.F(x, "", k)',
                     function("F (a, low, high) => (r)", "r = Clip(a, low, high)"),
                     [-2, 1], id="an operand left out in the middle"),
        pytest.param("y = my.F(x)", function("F (a) => (a)", "b = Neg(a)"), [-2, 3],
                     id="a result that is an operand"),
        pytest.param("y__1 = Neg(x) y = my.F(y__1)",
                     function("F (a) => (r)", "y = Abs(a) r = Neg(y)"), [-2, -3],
                     id="names that are taken"),
        pytest.param("y = my.F(x)", function("F (a) => (r)", "r = Relu(a)", opset=13), [0, 3],
                     id="an older opset that means the same"),
    ],
)  # fmt: skip
def test_functions_of_the_file(text: str, functions: str, want: list[float]) -> None:
    proto = of(text, functions)
    (y,) = run_model(proto, {"x": X})
    np.testing.assert_allclose(y, np.array(want, np.float32), rtol=1e-6)
    assert check(proto).ok


@pytest.mark.parametrize(
    ("text", "functions", "error", "says"),
    [
        ("y = my.F(x, x)", LEAKY, InvalidModel, "more operands"),
        ("y = my.F<alpha: int = 1>(x)", LEAKY, InvalidModel, "another type"),
        ("y = LeakyRelu<alpha: float = @b>(x)", LEAKY, InvalidModel, "refers to a function's"),
        ("y = my.F(x)", function("F (a) => (r)", "r = ReduceSum<axes = [0]>(a)", 11), UnsupportedOp,
         "another meaning"),
        ("y = my.F(x)", function("F (a) => (r)", "r = Relu(b)"), InvalidModel, "nothing makes"),
    ],
)  # fmt: skip
def test_functions_that_do_not_match(
    text: str, functions: str, error: type[TilewrightError], says: str
) -> None:
    with pytest.raises(error, match=says):
        import_model(of(text, functions))


def node_model(
    op: str,
    operands: dict[str, Array],
    held: tuple[str, ...] = (),
    leave: tuple[int, ...] = (),
    outputs: int = 1,
    opset: int = 23,
    **attributes: Any,
) -> onnx.ModelProto:
    """One node.  held: operands that are weights;  leave: positions that are left out before"""
    names = list(operands)
    for at in leave:
        names.insert(at, "")
    made = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, made, **attributes)], "node",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
         for n, v in operands.items() if n not in held],
        [helper.make_empty_tensor_value_info(n) for n in made],
        [numpy_helper.from_array(v, n) for n, v in operands.items() if n in held],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def some(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("rows", [1, 3])
def test_attention_with_a_cache_and_no_mask(opset: int, rows: int) -> None:
    q, k, v = (some(1, 2, rows, 4, seed=s) for s in range(3))
    pk, pv = (some(1, 2, 5, 4, seed=s) for s in (3, 4))
    given = {"q": q, "k": k, "v": v, "pk": pk, "pv": pv}
    proto = node_model("Attention", given, leave=(3,), outputs=3, opset=opset)
    y, keys, values = run_model(proto, given)
    keys_all, values_all = np.concatenate([pk, k], 2), np.concatenate([pv, v], 2)
    scores = q.astype(np.float64) @ keys_all.swapaxes(2, 3) / 2
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    want = shares / shares.sum(-1, keepdims=True) @ values_all
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(keys, keys_all)
    np.testing.assert_array_equal(values, values_all)


@pytest.mark.parametrize("held", [(), ("c", "s"), ("c", "s", "p")])
def test_a_rotary_embedding_of_small_tables(held: tuple[str, ...]) -> None:
    given = {"x": some(1, 1, 2, 4), "c": some(4, 2), "s": some(4, 2, seed=1),
             "p": np.array([[0, 1]])}  # fmt: skip
    proto = node_model("RotaryEmbedding", given, held)
    left, right = given["x"][..., :2], given["x"][..., 2:]
    c, s = given["c"][:2], given["s"][:2]
    want = np.concatenate([left * c - right * s, left * s + right * c], -1)
    (y,) = run_model(proto, {n: v for n, v in given.items() if n not in held})
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("held", [(), ("w",), ("t", "w")])
def test_losses_with_weights_of_classes(op: str, held: tuple[str, ...]) -> None:
    given = {"x": some(3, 5), "t": np.array([1, 4, 0]), "w": np.abs(some(5, seed=1)) + 0.1}
    proto = node_model(op, given, held, opset=17)
    x = given["x"].astype(np.float64)
    logs = x if op.startswith("Neg") else x - np.log(np.exp(x).sum(1, keepdims=True))
    weight = given["w"][given["t"]]
    want = -(logs[range(3), given["t"]] * weight).sum() / weight.sum()
    (y,) = run_model(proto, {n: v for n, v in given.items() if n not in held})
    np.testing.assert_allclose(y, want, rtol=1e-5)


@pytest.mark.parametrize("shape", [(3, 7), (6, 2)])
def test_a_crop_whose_size_is_a_weight(shape: tuple[int, int]) -> None:
    given = {"x": some(4, 5), "s": np.array(shape)}
    proto = node_model("CenterCropPad", given, ("s",), opset=21)
    (want,) = reference(proto.SerializeToString(), {"x": given["x"]})
    (y,) = run_model(proto, {"x": given["x"]})
    np.testing.assert_array_equal(y, want)


def test_an_operator_with_a_body_behind_another_of_unknown_type() -> None:
    """ONNX's own inliner does not know the type of what a private operator gives."""
    nodes = [
        helper.make_node("QuickGelu", ["x"], ["t"], domain="com.microsoft"),
        helper.make_node("CenterCropPad", ["t", "s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_empty_tensor_value_info("y")], [numpy_helper.from_array(np.array([2]), "s")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    assert import_model(proto).outputs[0][1].shape == (2,)


#: Which runs take by turns, and how many cases of each are right with onnx 1.23.2.
PARTS, RIGHT = 4, (47, 46, 47, 48)


def _defined_by_others() -> list[Any]:
    """ONNX's cases of operators that have a body and no rule, not expanded by ONNX."""
    found = []
    for case in cases():
        nodes, (opset, *_) = case.model.graph.node, case.model.opset_import
        if len(nodes) != 1 or nodes[0].domain or find("", nodes[0].op_type, 99):
            continue
        schema: Any = onnx.defs.get_schema(nodes[0].op_type, opset.version)
        if schema.has_function or schema.has_context_dependent_function:
            found.append(case)
    return found


@pytest.mark.parametrize("part", range(PARTS), ids="part{}".format)
def test_operands_of_operators_with_a_body_may_be_weights(part: int) -> None:
    """All operands but the first as weights: the same value as for inputs, or the same refusal."""
    found: dict[str, str] = {}
    for case in _defined_by_others()[part::PARTS]:
        inputs, _ = case.data_sets[0]
        if any(not isinstance(x, np.ndarray) for x in inputs):
            continue
        proto = onnx.ModelProto()
        proto.CopyFrom(case.model)
        named = dict(zip((i.name for i in proto.graph.input), inputs, strict=True))
        for info in proto.graph.input[1:]:
            proto.graph.initializer.append(numpy_helper.from_array(named[info.name], info.name))
        del proto.graph.input[1:]
        try:
            graph = import_model(proto, shapes={proto.graph.input[0].name: inputs[0].shape})
        except (UnsupportedDType, UnsupportedOp) as error:
            whole = "no rule" not in error.message or "inside" in error.facts
            found[case.name] = error.message if whole else "refused as a whole"
            continue
        name = proto.graph.input[0].name
        given = {name: inputs[0].astype(graph.inputs[0][1].dtype.numpy)}
        kinds = narrow_of(load(proto))
        results = zip((n for n, _ in graph.outputs), run(graph, given), strict=True)
        made = {n: y.astype(DECLARED[kinds[n]].numpy) if n in kinds else y for n, y in results}
        found[case.name] = "wrong" if wrong_outputs(case, made) else "right"
    assert not {n: r for n, r in found.items() if r in ("wrong", "refused as a whole")}
    assert sum(result == "right" for result in found.values()) >= RIGHT[part]
