"""Sizes that a file only claims: filled, ranged and repeated tensors.

Input: nothing.  Output: entries of `HOSTILE` (hostile_models.py).
"""

from __future__ import annotations

from typing import Any

from hostile_parts import FLOAT, INT64, hostile, info, ints, node, number, whole
from onnx import ModelProto, helper


def _of_size(op: str, size: int, **more: Any) -> ModelProto:
    return whole([node(op, "size", **more)], [ints("size", size)])


@hostile
def filled_1e10() -> ModelProto:
    return _of_size("ConstantOfShape", 10**10)


@hostile
def filled_1e9() -> ModelProto:
    return _of_size("ConstantOfShape", 10**9)


@hostile
def filled_3e8() -> ModelProto:
    return _of_size("ConstantOfShape", 3 * 10**8)


@hostile
def filled_negative() -> ModelProto:
    return _of_size("ConstantOfShape", -5)


@hostile
def filled_int64() -> ModelProto:
    return whole([node("ConstantOfShape", "size")], [ints("size", *[2**62] * 8)])


@hostile
def filled_and_added() -> ModelProto:
    return whole(
        [node("ConstantOfShape", "size", "c"), node("Add", "c x")], [ints("size", 10**9, 2)]
    )


@hostile
def filled_and_summed() -> ModelProto:
    nodes = [
        node("ConstantOfShape", "size", "c"),
        node("CumSum", "c zero", "d"),
        node("ReduceMax", "d", "e", keepdims=0),
    ]
    return whole([*nodes, node("Add", "x e")], [ints("size", 10**9), number("zero", 0)])


@hostile
def filled_and_sorted() -> ModelProto:
    nodes = [node("ConstantOfShape", "size", "c"), node("TopK", "c k", "d i")]
    return whole([*nodes, node("Add", "x d")], [ints("size", 10**9), ints("k", 2)])


@hostile
def shape_of_filled() -> ModelProto:
    nodes = [node("ConstantOfShape", "size", "c"), node("Cast", "c", "d", to=INT64)]
    return whole([*nodes, node("Expand", "x d")], [ints("size", 10**9)])


@hostile
def nonzero_of_filled() -> ModelProto:
    nodes = [node("ConstantOfShape", "size", "c"), node("NonZero", "c", "y")]
    return whole(nodes, [ints("size", 10**9)])


@hostile
def range_1e12() -> ModelProto:
    return whole([node("Range", "a b c")], [number("a", 0), number("b", 10**12), number("c", 1)])


@hostile
def range_1e9() -> ModelProto:
    return whole([node("Range", "a b c")], [number("a", 0), number("b", 10**9), number("c", 1)])


@hostile
def range_as_shape() -> ModelProto:
    nodes = [node("Range", "a b c", "r"), node("Expand", "x r")]
    return whole(nodes, [number("a", 0), number("b", 10**9), number("c", 1)])


@hostile
def range_of_infinity() -> ModelProto:
    weights = [
        helper.make_tensor(n, FLOAT, [], [v])
        for n, v in (("a", 0.0), ("b", float("inf")), ("c", 1.0))
    ]
    return whole([node("Range", "a b c")], weights)


@hostile
def range_of_nan() -> ModelProto:
    weights = [
        helper.make_tensor(n, FLOAT, [], [v])
        for n, v in (("a", float("nan")), ("b", 3.0), ("c", 1.0))
    ]
    return whole([node("Range", "a b c")], weights)


@hostile
def range_of_tiny_steps() -> ModelProto:
    weights = [
        helper.make_tensor(n, FLOAT, [], [v]) for n, v in (("a", 0.0), ("b", 1e30), ("c", 1e-30))
    ]
    return whole([node("Range", "a b c")], weights)


@hostile
def tile_1e10() -> ModelProto:
    return whole([node("Tile", "x times")], [ints("times", 10**10)])


@hostile
def tile_1e9_constant() -> ModelProto:
    return whole(
        [node("Tile", "c times", "t"), node("ReduceSum", "t", "s", keepdims=0), node("Add", "x s")],
        [ints("c", 1, 2), ints("times", 10**9)],
    )


@hostile
def expand_1e12() -> ModelProto:
    return whole([node("Expand", "x size")], [ints("size", 10**12, 2)])


@hostile
def one_hot_1e10() -> ModelProto:
    weights = [number("depth", 10**10), helper.make_tensor("v", FLOAT, [2], [0, 1])]
    return whole([node("OneHot", "i depth v")], weights, [info("i", [4], INT64)])


@hostile
def eye_like_1e10() -> ModelProto:
    return whole(
        [node("ConstantOfShape", "size", "c"), node("EyeLike", "c")], [ints("size", 10**5, 10**5)]
    )
