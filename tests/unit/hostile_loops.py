"""Loops and other subgraphs: too long, too deep, or not what their node needs.

Input: nothing.  Output: entries of `HOSTILE` (hostile_models.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from hostile_parts import FLOAT, INT64, body, hostile, info, node, number, whole
from onnx import ModelProto, NodeProto, TensorProto, helper


def loop(trips: int, inner: Sequence[NodeProto] | None = None) -> ModelProto:
    nodes = [node("Identity", "c", "d"), *(inner or [node("Add", "s s", "t")])]
    part = body(
        nodes,
        [info("i", [], INT64), info("c", [], TensorProto.BOOL), info("s")],
        [info("d", [], TensorProto.BOOL), info("t")],
    )
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    return whole([node("Loop", "trips true x", "y", body=part)], [number("trips", trips), true])


@hostile
def loop_1e8() -> ModelProto:
    return loop(10**8)


@hostile
def loop_int64() -> ModelProto:
    return loop(2**63 - 1)


@hostile
def loop_1e6() -> ModelProto:
    return loop(10**6)


@hostile
def loop_constant_1e8() -> ModelProto:
    """A loop over constants folds while it is imported."""
    made = loop(10**8)
    made.graph.node[0].input[2] = "k"
    made.graph.initializer.append(helper.make_tensor("k", FLOAT, [2], [1, 2]))
    return made


@hostile
def loop_constant_5e4() -> ModelProto:
    made = loop(
        60000,
        [
            node("Add", "s s", "t0"),
            *(node("Sin", f"t{i}", f"t{i + 1}") for i in range(60)),
            node("Identity", "t60", "t"),
        ],
    )
    made.graph.node[0].input[2] = "k"
    made.graph.initializer.append(helper.make_tensor("k", FLOAT, [2], [1, 2]))
    return made


def nested(depth: int, trips: int) -> ModelProto:
    inner = [node("Add", "s s", "t")]
    for i in range(depth):
        part = body(
            [node("Identity", f"c{i}", f"d{i}"), *inner],
            [info(f"i{i}", [], INT64), info(f"c{i}", [], TensorProto.BOOL), info("s")],
            [info(f"d{i}", [], TensorProto.BOOL), info("t")],
        )
        inner = [node("Loop", "trips true s", "t", body=part)]
    inner[0].input[2], inner[0].output[0] = "x", "y"
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    return whole(inner, [number("trips", trips), true])


@hostile
def loops_nested() -> ModelProto:
    return nested(5, 1000)


@hostile
def loops_nested_30() -> ModelProto:
    return nested(30, 2)


@hostile
def ifs_nested_30() -> ModelProto:
    inner = [node("Relu", "x", "t")]
    for _ in range(30):
        part = body(inner, [], [info("t")])
        inner = (
            [node("If", "true", "t", then_branch=part, else_branch=part)]
            if _ < 12
            else [node("If", "true", "t", then_branch=part, else_branch=body([], [], [info("x")]))]
        )
    inner[0].output[0] = "y"
    return whole(inner, [helper.make_tensor("true", TensorProto.BOOL, [], [True])])


@hostile
def ifs_without_graphs() -> ModelProto:
    return whole(
        [node("If", "true", then_branch=1, else_branch="no")],
        [helper.make_tensor("true", TensorProto.BOOL, [], [True])],
    )


@hostile
def scan_1e9() -> ModelProto:
    part = body([node("Add", "a e", "b")], [info("a", []), info("e", [])], [info("b", [])])
    return whole(
        [node("Scan", "s x", "y", body=part, num_scan_inputs=1)],
        inputs=[info("s", []), info("x", [10**9])],
    )


@hostile
def scan_axes_wrong() -> ModelProto:
    part = body([node("Add", "a e", "b")], [info("a", []), info("e", [])], [info("b", [])])
    return whole(
        [node("Scan", "s x", "y", body=part, num_scan_inputs=-7, scan_input_axes=[9, 9, 9])],
        inputs=[info("s", []), info("x", [3])],
    )


@hostile
def scan_attributes_wrong() -> ModelProto:
    part = body([node("Add", "a e", "b")], [info("a", []), info("e", [])], [info("b", [])])
    return whole(
        [node("Scan", "s x", "y", body=part, num_scan_inputs="no", scan_input_axes="many")],
        inputs=[info("s", []), info("x", [3])],
    )


@hostile
def body_without_inputs() -> ModelProto:
    made = loop(3)
    del made.graph.node[0].attribute[0].g.input[:]
    return made


@hostile
def sequences_of_1e9() -> ModelProto:
    nodes = [node("SplitToSequence", "x one", "s", axis=0), node("ConcatFromSequence", "s", axis=0)]
    return whole(nodes, [number("one", 1)], [info("x", [10**9])])


@hostile
def sequence_map() -> ModelProto:
    part = body([node("Relu", "e", "r")], [info("e")], [info("r")])
    nodes = [
        node("SequenceConstruct", " ".join(["x"] * 1000), "s"),
        node("SequenceMap", "s", "m", body=part),
        node("ConcatFromSequence", "m", axis=0),
    ]
    return whole(nodes)


@hostile
def sequence_input() -> ModelProto:
    kind = helper.make_tensor_sequence_value_info("q", FLOAT, [1])
    return whole([node("ConcatFromSequence", "q", axis=0)], inputs=[kind])
