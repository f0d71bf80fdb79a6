"""ONNX operators that make tensors from shapes and numbers.

Input: operand nodes and attributes.  Output: nodes, nearly always constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isfinite

import numpy as np

from tilewright.base.dtypes import I64
from tilewright.base.errors import InvalidModel, UnsupportedDType
from tilewright.base.model_limits import check_limit
from tilewright.frontend import arithmetic as al
from tilewright.frontend.initializers import dtype_of
from tilewright.frontend.operator_table import operator
from tilewright.graph.node import Node, broadcast, cast, constant, iota, reshape


@operator("Constant")
def constant_value(
    *,
    value: Node | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> Node:
    """The one given attribute as a node; a tensor is a node already."""
    numbers = ((value_float, "float32"), (value_floats, "float32"),
               (value_int, "int64"), (value_ints, "int64"))  # fmt: skip
    given = [value, value_string, value_strings, *(number for number, _ in numbers)]
    if sum(x is not None for x in given) != 1:
        raise InvalidModel(
            "Constant must have exactly one value",
            hint="The file is damaged, or its exporter is wrong: export the model again",
        )
    if value is not None:
        return value
    for number, name in numbers:
        if number is not None:
            return constant(np.asarray(number, dtype=name))
    raise UnsupportedDType("strings are not supported", hint="Remove strings from the model")


@operator("Shape", since=1)
def shape_of(x: Node, *, start: int = 0, end: int | None = None) -> Node:
    return al.ints(x.shape[slice(start, end)])


@operator("Size")
def size_of(x: Node) -> Node:
    return constant(x.size, I64)


@operator("ConstantOfShape")
def constant_of_shape(shape: Node, *, value: Node | None = None) -> Node:
    like = reshape(value, ()) if value is not None else constant(np.float32(0))
    return broadcast(like, al.known_ints(shape, "the shape"))


@operator("Range")
def value_range(start: Node, limit: Node, delta: Node) -> Node:
    first, last, step = (al.known_number(n, "a bound") for n in (start, limit, delta))
    if step == 0:
        raise InvalidModel("the step of a range must not be 0")
    if not all(map(isfinite, (first, last, step))):
        raise InvalidModel("the bounds of a range must be finite numbers")
    count = max(ceil((last - first) / step), 0)
    check_limit("elements", count, "the range")
    line = cast(iota((count,), 0), start.dtype)
    return al.add(al.mul(line, step), first)


@operator("EyeLike")
def eye_like(x: Node, *, dtype: int | None = None, k: int = 0) -> Node:
    rows, columns = iota(x.shape, 0), iota(x.shape, 1)
    return cast(al.equal(al.sub(columns, rows), k), dtype_of(dtype) if dtype else x.dtype)


@operator("Trilu", since=14)
def trilu(x: Node, k: Node | None = None, *, upper: int = 1) -> Node:
    """The upper or lower triangle, zero elsewhere."""
    offset = 0 if k is None else int(al.known_number(k, "k"))
    rows, columns = (iota(x.shape[-2:], axis) for axis in (0, 1))
    distance = al.sub(columns, rows)
    keep = al.apply("le", offset, distance) if upper else al.apply("le", distance, offset)
    return al.where(keep, x, 0)


@operator("OneHot")
def one_hot(indices: Node, depth: Node, values: Node, *, axis: int = -1) -> Node:
    """values[1] where the new axis' position is the index, values[0] elsewhere."""
    count = int(al.known_number(depth, "the depth"))
    place = al.axis_of(axis, indices.rank + 1)
    wanted = cast(indices, I64)
    wanted = al.where(al.less(wanted, 0), al.add(wanted, count), wanted)
    hit = al.equal(al.unsqueeze(wanted, (place,)), _line(count, indices.rank + 1, place))
    off, on = (reshape(al.take(values, 0, i, 1), ()) for i in (0, 1))
    return al.where(hit, on, off)


def _line(count: int, rank: int, axis: int) -> Node:
    return reshape(iota((count,), 0), [count if i == axis else 1 for i in range(rank)])
