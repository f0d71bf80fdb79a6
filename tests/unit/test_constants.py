"""Constants are the same if their contents are, whatever they are called and wherever they stand.

Input: models whose subgraphs give one name to several weights, and zeros of both signs.  Output:
what the bundle's kernels compute, against onnxruntime or NumPy, and how much memory weights take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from frontend_factory import Array, distance, model, reference, run
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.dtypes import F32, I32
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.frontend import import_model, initializers, load
from tilewright.graph.constants import Constants
from tilewright.graph.node import Graph, constant, evaluate, graph_input, node, pad
from tilewright.graph.ops import Weight
from tilewright.graph.passes.algebra import simplify
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.kernel.expr import Const

WIDTH, STEPS = 64, 3
Shape = Sequence[int | str]


def matrix(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8


def info(name: str, shape: Shape, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def product(x: str, w: Array, how: str, *more: onnx.NodeProto) -> dict[str, Any]:
    """Nodes and weights of y = x @ w, with w as an initializer or as a node."""
    table = numpy_helper.from_array(w, "w")
    nodes = [*more, helper.make_node("MatMul", [x, "w"], ["y"])]
    if how == "initializer":
        return {"nodes": nodes, "initializer": [table]}
    return {"nodes": [helper.make_node("Constant", [], ["w"], value=table), *nodes]}


def scan(w: Array, how: str, result: str) -> onnx.NodeProto:
    inputs, outputs = [info("e", ["n", WIDTH])], [info("y", ["n", WIDTH])]
    body = helper.make_graph(name="body", inputs=inputs, outputs=outputs, **product("e", w, how))
    return helper.make_node("Scan", ["x"], [result], body=body, num_scan_inputs=1)


def loop(w: Array, how: str, result: str) -> onnx.NodeProto:
    inputs = [info("i", [], TensorProto.INT64), info("going", [], TensorProto.BOOL)]
    outputs = [info("go_on", [], TensorProto.BOOL), info("y", ["n", WIDTH])]
    more = (
        helper.make_node("Identity", ["going"], ["go_on"]),
        helper.make_node("Gather", ["x", "i"], ["e"], axis=0),
    )
    parts = product("e", w, how, *more)
    body = helper.make_graph(name="body", inputs=inputs, outputs=outputs, **parts)
    return helper.make_node("Loop", ["steps", ""], [result], body=body)


def branch(w: Array, how: str, result: str) -> onnx.NodeProto:
    taken, other = (
        helper.make_graph(name="branch", inputs=[], outputs=[info("y", [STEPS, "n", WIDTH])],
                          **product("x", values, how))
        for values in (w, -w)
    )  # fmt: skip
    return helper.make_node("If", ["true"], [result], then_branch=taken, else_branch=other)


KINDS: dict[str, Callable[[Array, str, str], onnx.NodeProto]] = {
    "Scan": scan, "Loop": loop, "If": branch,
}  # fmt: skip


def siblings(kind: str, how: str, *weights: Array) -> onnx.ModelProto:
    names = [f"y{i}" for i in range(len(weights))]
    nodes = [KINDS[kind](w, how, name) for w, name in zip(weights, names, strict=True)]
    known = {"true": np.array(True), "steps": np.array(STEPS)}
    graph = helper.make_graph(
        nodes,
        "siblings",
        [info("x", [STEPS, "n", WIDTH])],
        [info(name, [STEPS, "n", WIDTH]) for name in names],
        [numpy_helper.from_array(value, name) for name, value in known.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("how", ["initializer", "node"])
@pytest.mark.parametrize("kind", KINDS)
def test_siblings_that_name_their_weights_alike(kind: str, how: str, tmp_path: Path) -> None:
    proto = siblings(kind, how, matrix(1), matrix(2))
    write(compile_model(load(proto), Options(buckets={"n": (2, 5)})).contents, tmp_path)
    for length in (2, 4):
        x = np.random.default_rng(length).standard_normal((STEPS, length, WIDTH), np.float32)
        wanted = reference(proto.SerializeToString(), {"x": x})
        for host in (ReferenceHost(tmp_path), WasmtimeHost(tmp_path)):
            for ours, theirs in zip(host.run({"x": x}).outputs.values(), wanted, strict=True):
                assert distance(ours, theirs) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_equal_weights_are_stored_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In sibling subgraphs and for every bucket.  Each is read once to tell what it is."""
    read_ones: list[Any] = []

    def counted(tensor: Any, *where: Any) -> Array:
        read_ones.append(tensor)
        return read(tensor, *where)

    read = initializers.read_tensor
    monkeypatch.setattr(initializers, "read_tensor", counted)
    options = Options(buckets={"n": (2, 3, 5)})
    one, two, other = (
        compile_model(load(siblings(kind, "initializer", *ws)), options).manifest.weights.bytes
        for ws in ((matrix(1),), (matrix(1), matrix(1)), (matrix(1), matrix(2)))
    )
    assert one == two
    assert other >= one + matrix(2).nbytes
    assert len(read_ones) == len({id(tensor) for tensor in read_ones})


def test_a_body_s_input_named_like_the_inside_name_of_an_outer_tensor() -> None:
    """What a body sees of the outside is an input of it, too, and has a name there."""
    inner = "outer x"
    body = helper.make_graph(
        [helper.make_node("Sub", [inner, "x"], ["y"])], "body", [info(inner, [4])], [info("y", [4])]
    )
    nodes = [
        helper.make_node("Relu", ["r"], ["x"]),
        helper.make_node("Scan", ["s"], ["z"], body=body, num_scan_inputs=1),
    ]
    proto = model(nodes, {"r": [4], "s": [2, 4]}, ["z"])
    given = {"r": np.arange(4, dtype=np.float32), "s": np.full((2, 4), 9, np.float32)}
    np.testing.assert_array_equal(run(import_model(proto), given)[0], given["s"] - given["r"])


def test_numbers_follow_contents() -> None:
    number = Constants().number

    def weight(name: str, value: Array) -> object:
        made = value.copy()
        return number(node(Weight(name, value.shape, F32, lambda: made)))

    a, b = matrix(1), matrix(2)
    assert weight("a", a) == weight("b", a) == number(constant(a))
    assert weight("a", a) != weight("a", b)
    assert weight("a", a) != weight("a", a.reshape(-1))
    assert number(constant(0, F32)) != number(constant(-0.0, F32))
    padded = [number(pad(node(Weight("a", a.shape, F32, lambda: a)), (1, 0), (0, 0), zero))
              for zero in (0.0, -0.0)]  # fmt: skip
    assert padded[0] != padded[1]


def test_zeros_of_both_signs_are_two_literals(tmp_path: Path) -> None:
    """They compare as equal, and 1 / 0 tells them apart."""
    assert Const(0.0, F32) != Const(-0.0, F32)
    assert Const(0.0, F32) == Const(0.0, F32)
    zeros = {"plus": np.array(0.0, np.float32), "minus": np.array(-0.0, np.float32)}
    nodes = [helper.make_node("Div", ["x", zero], [f"y {zero}"]) for zero in zeros]
    proto = model(nodes, {"x": [3]}, [f"y {zero}" for zero in zeros], zeros)
    write(compile_model(load(proto)).contents, tmp_path)
    for host in (ReferenceHost(tmp_path), WasmtimeHost(tmp_path)):
        found = host.run({"x": np.ones(3, np.float32)}).outputs
        assert found["y plus"].tolist() == [np.inf] * 3
        assert found["y minus"].tolist() == [-np.inf] * 3


def test_padding_of_both_signs_is_two_tensors() -> None:
    x = graph_input("x", (2,), F32)
    padded = [pad(x, (1,), (0,), zero) for zero in (0.0, -0.0, 0.0)]
    graph = Graph("g", (("x", x),), tuple((str(i), n) for i, n in enumerate(padded)))
    plus, minus, again = (n for _, n in simplify(graph).outputs)
    assert plus is again
    signs = [np.signbit(value[0]) for value in evaluate([plus, minus], {"x": np.ones(2)})]
    assert signs == [False, True]


def test_equal_bytes_of_other_dtypes_are_other_constants() -> None:
    """Zeros of f32 and of i32, and one row of six or two of three."""
    numbers = Constants()
    weights = [
        node(Weight("w", shape, dtype, lambda s=shape, d=dtype: np.zeros(s, d.numpy)))
        for dtype in (F32, I32)
        for shape in ((6,), (2, 3))
    ]
    assert len({numbers.number(w) for w in weights}) == 4
    again = node(Weight("v", (6,), F32, lambda: np.zeros(6, np.float32)))
    assert numbers.number(again) == numbers.number(weights[0])
