"""Nodes that compute in f16 by their model's own types: which they are, and what attention makes of
it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.compiler import Options, compile_model
from tilewright.frontend import load
from tilewright.frontend.float16_types import nodes_in_f16
from tilewright.kernel.form import Attention, classify

F16, F32 = TensorProto.FLOAT16, TensorProto.FLOAT
ROWS, DEPTH = 32, 16


def model_of(nodes: list[onnx.NodeProto], kind: int, **weights: np.ndarray) -> onnx.ModelProto:
    """Three inputs q, k, v of a type, and the output y of it."""
    inputs = [helper.make_tensor_value_info(n, kind, (ROWS, DEPTH)) for n in "qkv"]
    outputs = [helper.make_tensor_value_info("y", kind, None)]
    kept = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "m", inputs, outputs, kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def attention(*, scores_in: int = 0) -> list[onnx.NodeProto]:
    """softmax(q·kᵀ)·v; scores_in: the type that q and k are cast to first."""
    cast, names = [], ["q", "k"]
    if scores_in:
        cast = [helper.make_node("Cast", [n], [f"{n}_"], f"cast_{n}", to=scores_in) for n in names]
        names = ["q_", "k_"]
    back = [helper.make_node("Cast", ["p"], ["p_"], "back", to=F16)] if scores_in else []
    return [
        *cast,
        helper.make_node("Transpose", [names[1]], ["t"], "transpose", perm=(1, 0)),
        helper.make_node("MatMul", [names[0], "t"], ["s"], "scores"),
        helper.make_node("Softmax", ["s"], ["p"], "softmax"),
        *back,
        helper.make_node("MatMul", [back[0].output[0] if back else "p", "v"], ["y"], "context"),
    ]


def test_types_follow_the_first_operand_but_for_casts() -> None:
    table = np.ones((ROWS, 1), np.float16)
    nodes = [
        helper.make_node("Cast", ["q"], ["wide"], "to f32", to=F32),
        helper.make_node("Relu", ["wide"], ["a"], "in f32"),
        helper.make_node("Relu", ["q"], ["b"], "in f16"),
        helper.make_node("Cast", ["a"], ["c"], "to f16", to=F16),
        helper.make_node("Greater", ["b", "c"], ["d"], "compared"),
        helper.make_node("Where", ["d", "b", "c"], ["e"], "chosen"),
        helper.make_node("Where", ["d", "a", "a"], ["f"], "chosen in f32"),
        helper.make_node("Mul", ["table", "e"], ["g"], "a weight of f16 first"),
        helper.make_node("Shape", ["f"], ["h"], "shape"),
        helper.make_node("ConstantOfShape", ["h"], ["i"], "ones",
                         value=helper.make_tensor("v", F16, (1,), [1.0])),
        helper.make_node("ConstantOfShape", ["h"], ["j"], "zeros"),
        helper.make_node("Add", ["g", "i"], ["y"], "the last"),
    ]  # fmt: skip
    found = nodes_in_f16(load(model_of(nodes, F16, table=table)))
    assert found == {"in f16", "to f16", "chosen", "a weight of f16 first", "ones", "the last"}
    assert not nodes_in_f16(load(model_of(attention(), F32)))


def test_names_of_two_nodes_do_not_count() -> None:
    body = helper.make_graph(
        [helper.make_node("Relu", ["q"], ["inner"], "same name")], "body", [],
        [helper.make_tensor_value_info("inner", F16, (ROWS, DEPTH))],
    )  # fmt: skip
    last = helper.make_node("Relu", ["v"], ["y"], "the last")
    nodes = [
        helper.make_node("Greater", ["q", "k"], ["more"], "compared"),
        helper.make_node("If", ["more"], ["a"], "if", then_branch=body, else_branch=body),
        helper.make_node("Relu", ["a"], ["b"], "after it"),
        helper.make_node("Relu", ["q"], ["c"], "same name"),
        helper.make_node("Cast", ["k"], ["wide"], "twice", to=F32),
        helper.make_node("Relu", ["k"], ["d"], "twice"),
        helper.make_node("RMSNormalization", ["q", "table"], ["e"], "norm of f32"),
        helper.make_node("DequantizeLinear", ["i", "table"], ["f"], "scaled", output_dtype=F16),
        last,
    ]
    found = nodes_in_f16(replace(load(model_of([last], F16)), nodes=nodes))
    assert found == {"if", "after it", "scaled", "the last"}


@pytest.mark.parametrize(
    ("kind", "scores_in", "halves", "loose"),
    [
        pytest.param(F16, 0, False, "f16", id="in f16"),
        pytest.param(F32, 0, False, "", id="in f32"),
        pytest.param(F16, F32, False, "", id="scores in f32"),
        pytest.param(F32, 0, True, "f16", id="where the user says so"),
    ],
)
def test_attention_rounds_where_its_model_does(
    kind: int, scores_in: int, halves: bool, loose: str
) -> None:
    made = compile_model(
        model_of(attention(scores_in=scores_in), kind), Options(targets=("wgsl",), halves=halves)
    )
    (form,) = [
        (kernel, found) for kernel in made.program.kernels
        if isinstance(found := classify(kernel), Attention)
    ]  # fmt: skip
    kernel, found = form
    assert {kernel.buffers[x.buffer].loose for x in (found.q, found.k, found.v)} == {loose}
