"""ONNX TopK: the largest or smallest elements along an axis, in order.

Input: operand nodes and attributes.  Output: nodes.  Elements become integers that follow each
other as the wanted ones do; `Order` finds the places of the first, and they are gathered there.
"""

from __future__ import annotations

from math import prod

from tilewright.base.dtypes import BOOL, I32, I64
from tilewright.base.errors import InvalidModel, UnsupportedDType
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operator_table import operator
from tilewright.frontend.operators.reduction import first_extreme
from tilewright.graph import ops
from tilewright.graph.node import Node, broadcast, cast, gather, node, reshape, transpose

#: The bits of f32 infinity, and what stands for every NaN.
INFINITY, NAN = 0x7F800000, 0x7FC00000


@operator("TopK")
def top_k_by_attribute(x: Node, *, k: int, axis: int = -1) -> tuple[Node, Node]:
    return _top(x, k, axis, largest=True)


@operator("TopK", since=10, ignore=("sorted",))
def top_k(x: Node, k: Node, *, axis: int = -1, largest: int = 1) -> tuple[Node, Node]:
    """Values and their indices (i64), the best first; of equal ones the first."""
    wanted = al.known_ints(k, "k")
    if len(wanted) != 1:
        raise InvalidModel("k of TopK must be one number", shape=k.shape)
    return _top(x, wanted[0], axis, largest=bool(largest))


def _top(x: Node, count: int, axis: int, largest: bool) -> tuple[Node, Node]:
    along = al.axis_of(axis, x.rank)
    if not 0 <= count <= x.shape[along]:
        raise InvalidModel(
            f"TopK of {count} elements along an axis of {x.shape[along]}",
            hint="k is a whole number from 0 to the size of the axis",
            shape=x.shape,
            limit=x.shape[along],
        )
    if x.dtype == BOOL:
        raise UnsupportedDType(
            "TopK of booleans", hint="Cast them to integers first", dtype=x.dtype.name
        )
    shape = (*x.shape[:along], count, *x.shape[along + 1 :])
    if 0 in shape:
        return al.full(0, shape, x.dtype), al.full(0, shape, I64)
    order = [*(i for i in range(x.rank) if i != along), along]
    back = [order.index(i) for i in range(x.rank)]
    values = transpose(x, order)
    if count == 1 and (largest or not x.dtype.is_float):
        places = first_extreme(values, x.rank - 1, "max" if largest else "min")
    elif count == 1:
        places = first_extreme(_keys(values, largest), x.rank - 1, "min")
    else:
        places = node(ops.Order(count), _keys(values, largest))
    places = cast(places, I32)
    return transpose(_at(values, places), back), cast(transpose(places, back), I64)


def _at(values: Node, places: Node) -> Node:
    """The elements at places along the last axis; where rows begin is counted, in no table."""
    flat = cast(places, I64)
    if prod(values.shape[:-1]) > 1:
        counted = reshape(al.counted((values.size,), 0), values.shape)
        first = al.take(counted, values.rank - 1, 0, 1)
        flat = al.add(flat, broadcast(first, places.shape))
    return gather(reshape(values, (values.size,)), flat, 0)


def _keys(x: Node, largest: bool) -> Node:
    """Integers, the smallest for the element that is wanted first; NaN is the largest number.

    The bits of floats below zero fall as the numbers rise; -0 and 0 both become 0.
    """
    if x.dtype.is_float:
        bits = al.apply("bits", x)
        x = al.where(al.less(bits, 0), al.sub(-(2**31), bits), bits)
        nan = al.apply("or", al.less(INFINITY, x), al.less(x, -INFINITY))
        x = al.where(nan, NAN, x)
    elif x.dtype != I64:
        x = cast(x, I32)
    return al.sub(-1, x) if largest else x
