"""Each node doubles what it reads, or calls another twice.

Input: nothing.  Output: entries of `HOSTILE` (hostile_models.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from hostile_parts import FLOAT, INT64, body, hostile, info, ints, node, whole
from onnx import ModelProto, NodeProto, TensorProto, helper


@hostile
def doubled_concat() -> ModelProto:
    chain = [node("Concat", f"v{i} v{i}", f"v{i + 1}", axis=0) for i in range(200)]
    return whole([node("Identity", "x", "v0"), *chain], outputs=["v200"])


@hostile
def doubled_constant() -> ModelProto:
    chain = [node("Concat", f"v{i} v{i}", f"v{i + 1}", axis=0) for i in range(33)]
    return whole(
        [
            *chain,
            node("Add", "x total"),
        ],
        [ints("v0", 1, 2)],
        outputs=["v33"],
    )


@hostile
def doubled_shape() -> ModelProto:
    chain = [node("Concat", f"v{i} v{i}", f"v{i + 1}", axis=0) for i in range(40)]
    return whole([*chain, node("Reshape", "x v40")], [ints("v0", 1, 1)])


@hostile
def doubled_rank() -> ModelProto:
    chain = [node("Concat", f"v{i} v{i}", f"v{i + 1}", axis=0) for i in range(10)]
    return whole([*chain, node("Expand", "x v10")], [ints("v0", 1, 2)])


@hostile
def squared_number() -> ModelProto:
    chain = [node("Mul", f"v{i} v{i}", f"v{i + 1}") for i in range(64)]
    return whole([*chain, node("ConstantOfShape", "v64")], [ints("v0", 1000)])


@hostile
def big_outer_products() -> ModelProto:
    """Each one reduces a large product of constants to a number."""
    nodes = [node("Expand", "one wide", "a"), node("Expand", "one tall", "b")]
    nodes += [node("MatMul", "a b", "c"), node("ReduceSum", "c", "d", keepdims=0)]
    nodes += [node("Cast", "d", "e", to=INT64), node("Unsqueeze", "e zero", "f")]
    one = helper.make_tensor("one", FLOAT, [1, 1], [1.0])
    weights = [one, ints("wide", 20000, 20000), ints("tall", 20000, 20000), ints("zero", 0)]
    return whole([*nodes, node("ConstantOfShape", "f")], weights)


def function(name: str, nodes: Sequence[NodeProto]) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], list(nodes), opsets)


def call(name: str, given: str, made: str) -> NodeProto:
    return helper.make_node(name, [given], [made], domain="own")


@hostile
def functions_doubled() -> ModelProto:
    made = [function("f0", [node("Relu", "a", "b")])]
    for i in range(40):
        made.append(function(f"f{i + 1}", [call(f"f{i}", "a", "t"), call(f"f{i}", "t", "b")]))
    return whole([call("f40", "x", "y")], functions=made, domains=["own"])


@hostile
def function_of_itself() -> ModelProto:
    made = [function("f", [call("f", "a", "b")])]
    return whole([call("f", "x", "y")], functions=made, domains=["own"])


@hostile
def functions_of_each_other() -> ModelProto:
    made = [function("f", [call("g", "a", "b")]), function("g", [call("f", "a", "b")])]
    return whole([call("f", "x", "y")], functions=made, domains=["own"])


@hostile
def function_of_itself_in_a_branch() -> ModelProto:
    inside = body([call("f", "a", "q")], [], [info("q")])
    made = [
        function(
            "f",
            [
                node("ReduceMax", "a", "m", keepdims=0),
                node("Cast", "m", "c", to=TensorProto.BOOL),
                node("If", "c", "b", then_branch=inside, else_branch=inside),
            ],
        )
    ]
    return whole([call("f", "x", "y")], functions=made, domains=["own"])


@hostile
def functions_deep() -> ModelProto:
    made = [function("f0", [node("Relu", "a", "b")])]
    made += [function(f"f{i + 1}", [call(f"f{i}", "a", "b")]) for i in range(20000)]
    return whole([call("f20000", "x", "y")], functions=made, domains=["own"])


@hostile
def function_of_wrong_outputs() -> ModelProto:
    made = [function("f", [node("Relu", "a", "c")])]
    return whole([call("f", "x", "y")], functions=made, domains=["own"])


@hostile
def function_with_more_operands() -> ModelProto:
    made = [function("f", [node("Relu", "a", "b")])]
    more = helper.make_node("f", ["x", "x", "x"], ["y", "z"], domain="own")
    return whole([more], functions=made, domains=["own"])
