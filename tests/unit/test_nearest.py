"""Where a graph rounds to f16 and bf16, and where it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tilewright.base.errors import UsageError
from tilewright.compiler import Options, compile_model
from tilewright.frontend import import_model
from tilewright.graph.node import evaluate, render
from tilewright.graph.rounding import exact_types

F16, BF16, F32 = TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT
Node = tuple[str, list[str], list[str], dict[str, Any]]


def model_of(
    nodes: list[Node], inputs: dict[str, tuple[int, list[int]]], outputs: dict[str, int]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(op, given, made, **more) for op, given, made, more in nodes],
        "g",
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(n, kind, None) for n, kind in outputs.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def roundings(model: onnx.ModelProto) -> int:
    return render(import_model(model)).count("f16(")


@pytest.mark.parametrize(("kind", "times"), [(F32, 0), (F16, 1), (BF16, 1)], ids=str)
def test_a_chain_rounds_once_where_it_ends(kind: int, times: int) -> None:
    nodes: list[Node] = [
        ("Mul", ["x", "x"], ["a"], {}), ("Sigmoid", ["a"], ["b"], {}),
        ("Cast", ["b"], ["c"], {"to": kind}), ("Add", ["c", "x"], ["d"], {}),
        ("Transpose", ["d"], ["y"], {}),
    ]  # fmt: skip
    assert roundings(model_of(nodes, {"x": (kind, [3, 4])}, {"y": kind})) == times


def test_numbers_of_the_type_are_not_rounded_again() -> None:
    nodes: list[Node] = [
        ("Relu", ["x"], ["a"], {}), ("Neg", ["a"], ["b"], {}),
        ("Concat", ["b", "x"], ["c"], {"axis": 0}), ("Cast", ["c"], ["wide"], {"to": F32}),
        ("Cast", ["i"], ["small"], {"to": F16}), ("Cast", ["wide"], ["back"], {"to": F16}),
    ]  # fmt: skip
    inputs = {"x": (F16, [3, 4]), "i": (TensorProto.INT8, [2])}
    assert not roundings(model_of(nodes, inputs, {"wide": F32, "small": F16, "back": F16}))
    short = [*nodes[:4], ("Cast", ["wide"], ["brief"], {"to": BF16})]
    assert roundings(model_of(short, inputs, {"brief": BF16})) == 2, "each part of the concat"


def test_constants_of_the_type_are_found_by_their_values() -> None:
    nodes: list[Node] = [("Cast", ["x"], ["y"], {"to": F16})]
    graph = import_model(model_of(nodes, {"x": (F32, [3])}, {"y": F16}))
    ((_, y),) = graph.outputs
    assert (exact_types(y), exact_types(y.inputs[0])) == ({"f16"}, set())


def test_a_growing_state_is_rounded_for_all_who_read_it() -> None:
    """The product reads what the state holds: nothing is stored twice."""
    steps = []
    for kind in (F32, F16):
        nodes: list[Node] = [
            ("Mul", ["k", "k"], ["new"], {}), ("Concat", ["past", "new"], ["all"], {"axis": 0}),
            ("Slice", ["all", "one", "last"], ["next"], {}),
            ("MatMul", ["next", "q"], ["y"], {}),
        ]  # fmt: skip
        inputs = {"k": (kind, [1, 8]), "past": (kind, [16, 8]), "q": (kind, [8, 5])}
        model = model_of(nodes, inputs, {"next": kind, "y": kind})
        for name, value in (("one", 1), ("last", 17)):
            constant = helper.make_tensor(name, TensorProto.INT64, [1], [value])
            model.graph.initializer.append(constant)
        made = compile_model(model, Options(states={"past": "next"}))
        steps.append(len(made.program.plans[0].steps))
        assert [s.dtype for s in made.manifest.states] == ["f32" if kind == F32 else "f16"]
    assert steps[0] == steps[1]


def test_a_residual_is_stored_once() -> None:
    """What one reader casts to f32 and another adds to is rounded where it is made."""
    nodes: list[Node] = [
        ("MatMul", ["x", "w"], ["a"], {}), ("Cast", ["a"], ["wide"], {"to": F32}),
        ("Softmax", ["wide"], ["s"], {}), ("Cast", ["s"], ["t"], {"to": F16}),
        ("Add", ["a", "t"], ["y"], {}),
    ]  # fmt: skip
    inputs = {"x": (F16, [8, 16]), "w": (F16, [16, 32])}
    model = model_of(nodes, inputs, {"y": F16})
    assert roundings(model) == 3, "of the product, the softmax and the output"
    assert len(compile_model(model).program.plans[0].steps) == 2


def test_what_is_f32_is_not_rounded_for_a_reader_in_f16() -> None:
    nodes: list[Node] = [
        ("Mul", ["x", "x"], ["a"], {}), ("Cast", ["a"], ["half"], {"to": F16}),
        ("Add", ["a", "x"], ["y"], {}),
    ]  # fmt: skip
    graph = import_model(model_of(nodes, {"x": (F32, [2])}, {"half": F16, "y": F32}))
    found = evaluate([n for _, n in graph.outputs], {"x": np.array([1.0001, 3], np.float32)})
    assert found[0].tolist() == [1, 9]
    assert found[1][0] == np.float32(1.0001) * np.float32(1.0001) + np.float32(1.0001)


def test_a_state_is_of_one_type() -> None:
    nodes: list[Node] = [("Cast", ["h"], ["next"], {"to": F32})]
    model = model_of(nodes, {"h": (F16, [3])}, {"next": F32})
    with pytest.raises(UsageError, match="cannot be one state"):
        compile_model(model, Options(states={"h": "next"}))


def test_bodies_round_too() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Cast", ["now"], ["half"], to=F16),
            helper.make_node("Cast", ["half"], ["out"], to=F32),
        ],
        "body",
        [helper.make_tensor_value_info("now", F32, [3])],
        [helper.make_tensor_value_info("out", F32, [3])],
    )
    nodes: list[Node] = [("Scan", ["x"], ["y"], {"body": body, "num_scan_inputs": 1})]
    graph = import_model(model_of(nodes, {"x": (F32, [2, 3])}, {"y": F32}))
    x = np.array([[70000, 2049, 1 / 3], [1e-9, -2051, 65519]], np.float32)
    with np.errstate(over="ignore"):
        wanted = x.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(evaluate([graph.outputs[0][1]], {"x": x})[0], wanted)


def test_a_product_that_rounds_runs_as_others_do() -> None:
    """The rounding is no long function: it must not change the tile."""
    found = []
    for kind in (F32, F16):
        nodes: list[Node] = [("MatMul", ["x", "w"], ["y"], {})]
        inputs = {"x": (kind, [32, 384]), "w": (kind, [384, 96])}
        made = compile_model(model_of(nodes, inputs, {"y": kind}), Options(targets=("wasm",)))
        found.append([code.schedule for code in made.codes])
    assert found[0] == found[1]
