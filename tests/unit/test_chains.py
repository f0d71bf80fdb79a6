"""Long chains of nodes: no stage recurses over nodes, and no kernel is too deep for recursion.

Input: chains of each sort, built by hand or as ONNX.  Output: bundles, which must exist; where a
chain is cut, values as the graph interpreter has them.  Nothing is timed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from helpers.graphs import results, run_steps, steps_of
from onnx import TensorProto, helper, numpy_helper

from lab.subjects import compile_graph
from tilewright.base.dtypes import BOOL, F32, I8, I64
from tilewright.compiler import Options, compile_model
from tilewright.fusion.fuse import DEPTH
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    broadcast,
    cast,
    concat,
    constant,
    contract,
    elementwise,
    gather,
    graph_input,
    node,
    pad,
    reduce,
    reshape,
    scalar_like,
    slice_,
    transpose,
)
from tilewright.graph.passes import optimise
from tilewright.targets import DEFAULT, TARGETS
from tilewright.targets.protocol import PACKING

SIZE = 64
#: More than the interpreter's limit of frames, whatever a stage needs for one node.
LONG = 1100
SPLITS = ((4, 16), (8, 8), (2, 32), (16, 4))
ORDER = np.random.default_rng(0).permutation(SIZE)


def turned(x: Node, i: int) -> Node:
    """Movement whose indices do not simplify."""
    return reshape(transpose(reshape(x, SPLITS[i * i % 4]), (1, 0)), (SIZE,))


def small_weight(i: int) -> Node:
    value = np.full(SIZE, i % 7, np.float32)
    return node(ops.Weight(f"w{i}", (SIZE,), F32, lambda: value))


#: One more node or a few at the end of a chain of f32[64]; `i` counts.
LINKS: dict[str, Callable[[Node, int], Node]] = {
    "add": lambda x, i: elementwise("add", x, broadcast(scalar_like(i % 5, x), x.shape)),
    "functions": lambda x, i: elementwise(("tanh", "erf", "sin")[i % 3], x),
    "extremes": lambda x, i: elementwise("max", x, elementwise("neg", x)),
    "weights": lambda x, i: elementwise("add", x, small_weight(i)),
    "twice": lambda x, i: elementwise("add", x, elementwise("abs", x)),
    "bytes": lambda x, i: cast(cast(x, I8), F32),
    "truth": lambda x, i: cast(elementwise("not", cast(x, BOOL)), F32),
    "concat": lambda x, i: concat([slice_(x, (9,), (55,)), slice_(x, (0,), (9,))], 0),
    "pad": lambda x, i: slice_(pad(x, (1,), (0,), 0.5), (0,), (SIZE,)),
    "views": turned,
    "views between": lambda x, i: elementwise("neg", turned(x, i)),
    "gather": lambda x, i: gather(x, constant(ORDER), 0),
    "gather by value": lambda x, i: gather(x, cast(elementwise("abs", x), I64), 0),
    "rows": lambda x, i: elementwise("sub", x, broadcast(reduce("max", x, [0]), x.shape)),
}


def chain(link: Callable[[Node, int], Node], length: int) -> Graph:
    x = y = graph_input("x", (SIZE,), F32)
    for i in range(length):
        y = link(y, i)
    return Graph("chain", (("x", x),), (("y", y),))


@pytest.mark.seldom(4)
@pytest.mark.parametrize("name", LINKS)
def test_a_long_chain_compiles(name: str) -> None:
    compiled = compile_graph(chain(LINKS[name], LONG), Options(variants=("x86",)))
    assert 1 <= len(compiled.program.kernels) < 10
    assert len(compiled.program.plans[0].steps) >= LONG // 4096


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("target", "name"),
    [
        (target, name)
        for target in TARGETS
        for name in LINKS
        if target in DEFAULT or name in ("bytes", "gather", "views between")
    ],
)
def test_the_deepest_kernel_leaves_room_for_frames(target: str, name: str) -> None:
    """A caller may be deep itself: here 250 frames down."""
    graph = chain(LINKS[name], DEPTH + DEPTH // 2)
    variants = tuple(TARGETS[target].variants)[:1]

    def called(depth: int) -> None:
        if depth:
            called(depth - 1)
        else:
            compile_graph(graph, Options(targets=(target,), variants=variants))

    assert sys.getrecursionlimit() <= 1000
    called(250)


@pytest.mark.parametrize("name", [n for n in LINKS if n != "gather by value"])
def test_a_chain_in_several_kernels_keeps_the_values(name: str) -> None:
    graph = chain(LINKS[name], DEPTH + 20)
    x = {"x": np.random.default_rng(1).uniform(-2, 2, SIZE).astype(np.float32)}
    packed = optimise(graph, PACKING)
    (got,), (want,) = run_steps(packed, steps_of(packed), x), results(graph, x)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_views_before_a_product_become_a_copy_in_time() -> None:
    """A product reads its rows by strides, so packing looks through all views of them."""
    x = graph_input("x", (SIZE,), F32)
    y = x
    for i in range(300):
        y = turned(y, i)
    weight = node(ops.Weight("w", (SIZE, 8), F32, lambda: np.eye(SIZE, 8, dtype=np.float32)))
    product = contract("mk,kn->mn", reshape(y, (1, SIZE)), weight)
    graph = Graph("g", (("x", x),), (("y", product),))
    inputs = {"x": np.arange(SIZE, dtype=np.float32)}
    packed = optimise(graph, PACKING)
    (got,), (want,) = run_steps(packed, steps_of(packed), inputs), results(graph, inputs)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("count", [15, 17, 40, 1200])
def test_a_concatenation_of_many_parts(count: int) -> None:
    """Slices of an input in reverse: none of them is stored anywhere else."""
    x = graph_input("x", (count, 3), F32)
    y = concat([slice_(x, (i, 0), (1, 3)) for i in reversed(range(count))], 0)
    graph = Graph("g", (("x", x),), (("y", y),))
    inputs = {"x": np.arange(3 * count, dtype=np.float32).reshape(count, 3)}
    (got,), (want,) = (
        run_steps(optimise(graph, PACKING), steps_of(graph), inputs),
        results(graph, inputs),
    )
    np.testing.assert_array_equal(got, want)
    compile_graph(graph, Options(variants=("x86",)))


#: ONNX operators of one operand, with what else a node of theirs needs.
KINDS: dict[str, dict[str, object]] = {
    "Relu": {}, "Identity": {}, "Cast": {"to": TensorProto.FLOAT}, "Softmax": {"axis": 1},
    "Transpose": {"perm": [1, 0]},
}  # fmt: skip
#: Those with two operands; the second are stored tensors, by turns.
OTHERS = {"Add": ["ones"], "Add of constants": ["half"], "Reshape": ["flat", "square"]}


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_a_long_onnx_chain_compiles(kind: str) -> None:
    compile_model(onnx_chain(kind, LONG), Options(variants=("x86",)))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "kind", ["Relu", "Cast", "Transpose", "Add", "Add of constants", "Reshape"]
)
def test_a_hundred_thousand_onnx_nodes_compile(kind: str) -> None:
    compile_model(onnx_chain(kind, 100_000), Options(variants=("x86",)))


@pytest.mark.nightly
@pytest.mark.parametrize("name", [n for n in LINKS if n != "rows"])
def test_a_hundred_thousand_links_compile(name: str) -> None:
    compile_graph(chain(LINKS[name], 100_000), Options(variants=("x86",)))


def onnx_chain(kind: str, length: int) -> onnx.ModelProto:
    """x[8, 8] through `length` nodes; "Add of constants" folds to one."""
    stored = [
        numpy_helper.from_array(np.ones((8, 8), np.float32), "ones"),
        numpy_helper.from_array(np.array([8, 8], np.int64), "square"),
        numpy_helper.from_array(np.array([4, 16], np.int64), "flat"),
        numpy_helper.from_array(np.float32(0.5), "half"),
    ]
    at, nodes = "half" if kind == "Add of constants" else "x", []
    for i in range(length):
        rest = {
            "Add": ["ones"],
            "Add of constants": ["half"],
            "Reshape": [("flat", "square")[i % 2]],
        }
        operands = [at, *rest.get(kind, [])]
        at = f"t{i}"
        nodes.append(helper.make_node(kind.split()[0], operands, [at], **KINDS.get(kind, {})))
    nodes.append(helper.make_node("Mul", [at, "half"], ["y"]))
    if kind == "Add of constants":
        nodes.append(helper.make_node("Add", ["x", "y"], ["z"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (8, 8))
    y = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
