"""Tensors and external data: promised, misplaced, or of another size.

Input: nothing.  Output: entries of `HOSTILE` (hostile_models.py).
"""

from __future__ import annotations

from pathlib import Path

from hostile_parts import FLOAT, HOSTILE, hostile, node, whole
from onnx import ModelProto, TensorProto, helper


@hostile
def raw_too_short() -> ModelProto:
    return whole(
        [node("Add", "x w")],
        [TensorProto(name="w", dims=[1000], data_type=FLOAT, raw_data=b"1234")],
    )


@hostile
def raw_promised() -> ModelProto:
    return whole(
        [node("Add", "x w")], [TensorProto(name="w", dims=[10**12], data_type=FLOAT, raw_data=b"")]
    )


@hostile
def weight_of_zero_and_2_62() -> ModelProto:
    return whole(
        [node("Add", "x w")],
        [TensorProto(name="w", dims=[0, 2**62, 2**62], data_type=FLOAT, raw_data=b"")],
    )


@hostile
def weight_of_rank_1000() -> ModelProto:
    return whole(
        [node("Add", "x w")],
        [TensorProto(name="w", dims=[1] * 1000, data_type=FLOAT, raw_data=b"1234")],
    )


@hostile
def weight_of_rank_5000_digits() -> ModelProto:
    return whole(
        [node("Add", "x w")],
        [TensorProto(name="w", dims=[2**62] * 2000, data_type=FLOAT, raw_data=b"1234")],
    )


@hostile
def weight_unread_of_type_99() -> ModelProto:
    return whole(
        [node("Add", "x w")], [TensorProto(name="w", dims=[1], data_type=99, raw_data=b"1234")]
    )


@hostile
def weight_text() -> ModelProto:
    return whole(
        [node("Add", "x w")],
        [TensorProto(name="w", dims=[1], data_type=TensorProto.STRING, string_data=[b"t"])],
    )


@hostile
def weight_negative() -> ModelProto:
    return whole(
        [node("Add", "x w")],
        [TensorProto(name="w", dims=[-1, -1], data_type=FLOAT, raw_data=b"1234")],
    )


@hostile
def weights_of_one_name() -> ModelProto:
    return whole(
        [node("Add", "x w")],
        [
            helper.make_tensor("w", FLOAT, [2], [1, 2]),
            helper.make_tensor("w", FLOAT, [3], [1, 2, 3]),
        ],
    )


@hostile
def attribute_tensor_promised() -> ModelProto:
    value = TensorProto(name="v", dims=[10**12], data_type=FLOAT)
    return whole([node("Constant", "", "y", value=value)])


@hostile
def lists_of_wrong_kind() -> ModelProto:
    return whole(
        [node("Add", "x w")], [TensorProto(name="w", dims=[2], data_type=FLOAT, int64_data=[1, 2])]
    )


@hostile
def halves_beyond() -> ModelProto:
    return whole(
        [node("Add", "x w")],
        [
            TensorProto(
                name="w", dims=[2], data_type=TensorProto.FLOAT16, int32_data=[-1, 2**31 - 1]
            )
        ],
    )


@hostile
def sparse() -> ModelProto:
    made = whole([node("Add", "x w")])
    made.graph.sparse_initializer.add()
    return made


def _external(name: str, **facts: str) -> None:
    def write(folder: Path) -> Path:
        (folder / "data").write_bytes(bytes(8))
        tensor = TensorProto(
            name="w", dims=[2], data_type=FLOAT, data_location=TensorProto.EXTERNAL
        )
        for key, value in ({"location": "data"} | facts).items():
            tensor.external_data.add(key=key, value=value)
        path = folder / "model.onnx"
        path.write_bytes(whole([node("Add", "x w")], [tensor]).SerializeToString())
        return path

    HOSTILE[f"external_{name}"] = write


_external("nul", location="da\0ta")
_external("above", location="../../etc/passwd")
_external("absolute", location="/dev/zero")
_external("folder", location=".")
_external("nothing", location="")
_external("long", location="a" * 100000)
_external("parts", location="a/" * 20000 + "b")
_external("offset_beyond", offset="1000000")
_external("offset_negative", offset="-4")
_external("offset_5000_digits", offset="9" * 5000)
_external("length_5000_digits", length="9" * 5000)
_external("length_superscript", length="²")
_external("length_short", length="4")
