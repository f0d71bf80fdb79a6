"""Attributes and operands of other types, numbers and lengths than their operators have.

Input: nothing.  Output: entries of `HOSTILE` (hostile_models.py).
"""

from __future__ import annotations

from hostile_parts import INT64, hostile, info, ints, node, number, whole
from onnx import AttributeProto, ModelProto, TensorProto, helper


@hostile
def attribute_of_wrong_type() -> ModelProto:
    return whole([node("Softmax", "x", axis="first")])


@hostile
def attribute_of_no_type() -> ModelProto:
    made = whole([node("Softmax", "x", axis=0)])
    made.graph.node[0].attribute[0].ClearField("type")
    return made


@hostile
def attribute_of_type_99() -> bytes:
    made = whole([node("Softmax", "x", axis=0)])
    made.graph.node[0].attribute[0].type = AttributeProto.TYPE_PROTO
    return made.SerializeToString()


@hostile
def constant_of_wrong_type() -> ModelProto:
    return whole([node("Constant", "", "y", value=3)])


@hostile
def constant_text() -> ModelProto:
    return whole([node("Constant", "", "y", value_string="text")])


@hostile
def cast_to_99() -> ModelProto:
    return whole([node("Cast", "x", to=99)])


@hostile
def cast_to_2_62() -> ModelProto:
    return whole([node("Cast", "x", to=2**62)])


@hostile
def old_cast_to_text() -> ModelProto:
    return whole([node("Cast", "x", to=TensorProto.STRING)], opset=8)


@hostile
def gather_nd_of_2_40_batches() -> ModelProto:
    places = helper.make_tensor("i", INT64, [1, 1], [0])
    return whole([node("GatherND", "x i", batch_dims=2**40)], [places])


@hostile
def gather_nd_of_negative_batches() -> ModelProto:
    places = helper.make_tensor("i", INT64, [1, 1], [0])
    return whole([node("GatherND", "x i", batch_dims=-(2**40))], [places])


@hostile
def norm_of_order_2_40() -> ModelProto:
    return whole([node("LpNormalization", "x", p=2**40)])


@hostile
def einsum_letters() -> ModelProto:
    return whole([node("Einsum", "x x", equation="i" * 100000 + ",i->")])


@hostile
def einsum_nothing() -> ModelProto:
    return whole([node("Einsum", "x x", equation="......->,,,->")])


@hostile
def transpose_many() -> ModelProto:
    return whole([node("Transpose", "x", perm=list(range(100000)))])


@hostile
def gather_beyond() -> ModelProto:
    return whole([node("Gather", "x i")], [number("i", 2**62)])


@hostile
def slice_beyond() -> ModelProto:
    return whole(
        [node("Slice", "x a b c d")],
        [ints("a", -(2**63)), ints("b", 2**63 - 1), ints("c", 0), ints("d", -(2**63))],
    )


@hostile
def slice_of_step_0() -> ModelProto:
    return whole(
        [node("Slice", "x a b c d")], [ints("a", 0), ints("b", 1), ints("c", 0), ints("d", 0)]
    )


@hostile
def topk_1e18() -> ModelProto:
    return whole([node("TopK", "x k", "y i")], [ints("k", 10**18)])


@hostile
def trilu_2_63() -> ModelProto:
    return whole([node("Trilu", "x k")], [number("k", -(2**63))], [info("x", [3, 3])])


@hostile
def operands_of_20000() -> ModelProto:
    return whole([node("Relu", " ".join(["x"] * 20000))])


@hostile
def outputs_of_20000() -> ModelProto:
    return whole([node("Split", "x", " ".join(f"y{i}" for i in range(20000)))], outputs=["y0"])


@hostile
def unsqueeze_many() -> ModelProto:
    return whole([node("Unsqueeze", "x axes")], [ints("axes", *range(60000))])


@hostile
def unsqueeze_repeated() -> ModelProto:
    chain = [node("Unsqueeze", f"v{i} zero", f"v{i + 1}") for i in range(3000)]
    return whole([node("Identity", "x", "v0"), *chain], [ints("zero", 0)], outputs=["v3000"])
