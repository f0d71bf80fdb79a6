"""Inputs, outputs, names and opsets that no honest exporter writes.

Input: nothing.  Output: entries of `HOSTILE` (hostile_models.py).
"""

from __future__ import annotations

from hostile_parts import hostile, info, node, whole
from onnx import ModelProto


@hostile
def input_rank_1000() -> ModelProto:
    return whole([node("Relu", "x")], inputs=[info("x", [2] * 1000)])


@hostile
def input_rank_40() -> ModelProto:
    return whole([node("Softmax", "x")], inputs=[info("x", [1] * 40)])


@hostile
def input_of_2_62() -> ModelProto:
    return whole([node("Relu", "x")], inputs=[info("x", [2**62, 2**62])])


@hostile
def input_of_1e10() -> ModelProto:
    return whole([node("Relu", "x")], inputs=[info("x", [10**10])])


@hostile
def input_negative() -> ModelProto:
    return whole([node("Relu", "x")], inputs=[info("x", [-3, -4])])


@hostile
def input_of_no_type() -> ModelProto:
    made = whole([node("Relu", "x")])
    made.graph.input[0].ClearField("type")
    return made


@hostile
def input_of_type_99() -> ModelProto:
    made = whole([node("Relu", "x")])
    made.graph.input[0].type.tensor_type.elem_type = 99
    return made


@hostile
def inputs_of_one_name() -> ModelProto:
    return whole([node("Add", "x x")], inputs=[info("x"), info("x", [3])])


@hostile
def input_without_name() -> ModelProto:
    return whole([node("Relu", "x")], inputs=[info(""), info("x")])


@hostile
def output_unknown() -> ModelProto:
    return whole([node("Relu", "x")], outputs=["nothing"])


@hostile
def output_twice() -> ModelProto:
    return whole([node("Relu", "x"), node("Neg", "x")], outputs=["y", "y"])


@hostile
def cycle() -> ModelProto:
    return whole([node("Relu", "y", "z"), node("Relu", "z", "y")])


@hostile
def without_nodes() -> ModelProto:
    return whole([], outputs=["x"])


@hostile
def without_outputs() -> ModelProto:
    return whole([node("Relu", "x")], outputs=[])


@hostile
def without_graph() -> bytes:
    return ModelProto(ir_version=9).SerializeToString()


@hostile
def empty_file() -> bytes:
    return b""


@hostile
def half_a_file() -> bytes:
    made = whole([node("Relu", "x")]).SerializeToString()
    return made[: len(made) // 2]


@hostile
def deep_protobuf() -> bytes:
    """A million nested graphs, each of a few bytes."""
    data = b""
    for _ in range(20000):
        size = len(data)
        if size > 60000:
            break
        data = b"\x32" + _varint(size) + data  # AttributeProto.g
        data = b"\x2a" + _varint(len(data)) + data  # NodeProto.attribute
        data = b"\x0a" + _varint(len(data)) + data  # GraphProto.node
    return b"\x08\x09\x3a" + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


@hostile
def opset_0() -> ModelProto:
    return whole([node("Relu", "x")], opset=0)


@hostile
def opset_1e9() -> ModelProto:
    return whole([node("Relu", "x")], opset=10**9)


@hostile
def opset_negative() -> ModelProto:
    return whole([node("Relu", "x")], opset=-(2**63))


@hostile
def names_not_utf8() -> bytes:
    return (
        whole([node("Relu", "xyzzyx")], inputs=[info("xyzzyx")])
        .SerializeToString()
        .replace(b"xyzzyx", b"\xff\xfe\xfd\xfc\xfb\xfa")
    )


@hostile
def op_not_utf8() -> bytes:
    return whole([node("Relu", "x")]).SerializeToString().replace(b"Relu", b"\xff\xfe\xfd\xfc")


@hostile
def attribute_name_not_utf8() -> bytes:
    return (
        whole([node("Softmax", "x", axis=0)])
        .SerializeToString()
        .replace(b"axis", b"\xff\xfe\xfd\xfc")
    )


@hostile
def dim_name_not_utf8() -> bytes:
    return (
        whole([node("Relu", "x")], inputs=[info("x", ["nnnn"])])
        .SerializeToString()
        .replace(b"nnnn", b"\xff\xfe\xfd\xfc")
    )


@hostile
def nul_in_names() -> ModelProto:
    return whole([node("Relu", "x\0")], inputs=[info("x")])
