"""Arithmetic on graph nodes, for the formulas of operator functions: numbers become constants.

Input: nodes and Python numbers.  Output: nodes.  Shorthand over graph/node.py; it adds no op and
does not depend on ONNX.  Elements at known positions become views where positions follow a pattern:
slices, flips and repeats take no memory; a table of positions would.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

import numpy as np

from tilewright.base.dtypes import F64, I64, DType
from tilewright.base.errors import (
    InvalidModel,
    ShapeError,
    UnsupportedDType,
    UnsupportedOp,
    of_kind,
)
from tilewright.base.model_limits import check_limit
from tilewright.base.scalars import SCALARS
from tilewright.graph import ops
from tilewright.graph.node import (
    FOLD_LIMIT,
    Node,
    broadcast,
    concat,
    constant,
    costs,
    elementwise,
    evaluate,
    fact,
    flip,
    gather,
    reduce,
    reshape,
    scalar_like,
    slice_,
    transpose,
)
from tilewright.graph.node import axis_of as axis_of
from tilewright.graph.ops import Array, Shape

Number = float | int | bool
Term = Node | Number


def apply(fn: str, *terms: Term) -> Node:
    """A scalar function on nodes and numbers; numbers take the dtype of the last node.

    Raises UnsupportedDType for an approximated function of f64.
    """
    last = [t for t in terms if isinstance(t, Node)][-1]
    nodes = [t if isinstance(t, Node) else scalar_like(t, last) for t in terms]
    if SCALARS[fn].ulp and any(n.dtype == F64 and not n.constant for n in nodes):
        raise UnsupportedDType(
            f"{fn} of f64 is not supported: f32 would lose half of the digits",
            hint="Export the model in f32",
        )
    return elementwise(fn, *nodes)


def add(a: Term, b: Term) -> Node:
    return apply("add", a, b)


def sub(a: Term, b: Term) -> Node:
    return apply("sub", a, b)


def mul(a: Term, b: Term) -> Node:
    return apply("mul", a, b)


def div(a: Term, b: Term) -> Node:
    return apply("div", a, b)


def less(a: Term, b: Term) -> Node:
    return apply("lt", a, b)


def equal(a: Term, b: Term) -> Node:
    return apply("eq", a, b)


def where(condition: Node, a: Term, b: Term) -> Node:
    """Elementwise: `a` if the condition holds, else `b`.  At least one of both is a node."""
    like = a if isinstance(a, Node) else of_kind(b, Node, "a choice of two numbers")
    left, right = (t if isinstance(t, Node) else scalar_like(t, like) for t in (a, b))
    return elementwise("where", condition, left, right)


def sqrt(x: Node) -> Node:
    return apply("sqrt", x)


def exp(x: Node) -> Node:
    return apply("exp", x)


def log(x: Node) -> Node:
    return apply("log", x)


def square(x: Node) -> Node:
    return mul(x, x)


def norm_terms(x: Node, p: int) -> Node:
    """The terms that a norm of order `p` sums: |x| or x².  Raises UnsupportedOp for other
    orders."""
    if p not in (1, 2):
        raise UnsupportedOp(f"the norm with p={p} is not supported", hint="Use p=1 or p=2")
    return square(x) if p == 2 else apply("abs", x)


def norm_of_terms(total: Node, p: int) -> Node:
    """The norm of order `p`, from the sum of its terms."""
    return sqrt(total) if p == 2 else total


def total(x: Node, axes: Sequence[int]) -> Node:
    return reduce("sum", x, axes)


def mean(x: Node, axes: Sequence[int]) -> Node:
    """The mean over `axes`, which are kept with extent 1."""
    return div(total(x, axes), prod(x.shape[a] for a in axes))


def share(total: Node, count: int) -> Node:
    """total / count, for the means of many groups of a few numbers.

    If count is a power of two, 1 / count is exact, and multiplying by it is faster.  Otherwise it
    divides: 41 times the rounded 1 / 41 would be 0.99999994.
    """
    exact = total.dtype.is_float and count > 0 and count & (count - 1) == 0
    return mul(total, 1.0 / count) if exact else div(total, count)


def full(value: Number, shape: Shape, dtype: DType) -> Node:
    return broadcast(constant(value, dtype), shape)


def lowest(dtype: DType) -> Number:
    """The neutral element of a maximum."""
    return _limit(dtype, -inf, "min")


def highest(dtype: DType) -> Number:
    """The neutral element of a minimum."""
    return _limit(dtype, inf, "max")


def _limit(dtype: DType, infinite: float, end: str) -> Number:
    if dtype.is_float:
        return infinite
    if dtype.kind == "bool":
        return end == "max"
    return int(getattr(np.iinfo(dtype.numpy), end))


def position_along(shape: Shape, axis: int) -> Node:
    """The position along `axis` as a node that is never folded.  Kernels compute it instead of
    loading a table, and the compiler sees that it is a position."""
    return Node(ops.Iota(shape, axis), (), shape, I64, constant=True)


def squeeze(x: Node, axes: Sequence[int]) -> Node:
    """Removes `axes`.  Raises ShapeError unless they have extent 1."""
    gone = {axis_of(a, x.rank) for a in axes}
    if any(x.shape[a] != 1 for a in gone):
        raise ShapeError(f"cannot squeeze axes {sorted(gone)}", shape=x.shape)
    return reshape(x, [n for i, n in enumerate(x.shape) if i not in gone])


def unsqueeze(x: Node, axes: Sequence[int]) -> Node:
    """Adds axes of extent 1 at positions `axes` of the result."""
    rank = x.rank + len(axes)
    new = {axis_of(a, rank) for a in axes}
    if len(new) < len(axes):
        raise ShapeError("an axis is added twice", shape=x.shape, axes=list(axes))
    rest = iter(x.shape)
    return reshape(x, [1 if i in new else next(rest) for i in range(rank)])


def channels_last(x: Node) -> Node:
    """N, C, spatial... -> N, spatial..., C."""
    return transpose(x, (0, *range(2, x.rank), 1))


def channels_first(x: Node) -> Node:
    """N, spatial..., C -> N, C, spatial..."""
    return transpose(x, (0, x.rank - 1, *range(1, x.rank - 1)))


@fact(lambda n: n.inputs)
def are_channels_last(n: Node, operands: list[bool]) -> bool:
    """True for a tensor N, C, spatial... that is stored as N, spatial..., C, as by convolutions."""
    if isinstance(n.op, ops.Transpose):
        return n.rank > 2 and n.op.perm == (0, n.rank - 1, *range(1, n.rank - 1))
    through = isinstance(n.op, (ops.Elementwise, ops.Broadcast, ops.Concat, ops.Pad, ops.Slice))
    return through and any(operands)


def per_channel(x: Node, rank: int) -> Node:
    """A vector over the channels, as an operand of N, C, spatial... of `rank` axes."""
    return reshape(x, (x.size, *[1] * (rank - 2)))


def take(x: Node, axis: int, start: int, count: int, step: int = 1) -> Node:
    """`count` elements along one axis."""
    starts, shape, steps = [0] * x.rank, list(x.shape), [1] * x.rank
    starts[axis], shape[axis], steps[axis] = start, count, step
    return slice_(x, starts, shape, steps)


def axes_of(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(axis_of(a, rank) for a in axes)


def extents(x: Node, rank: int) -> Shape:
    """The shape of an operand that must have `rank` axes.  Raises ShapeError if it has another
    number."""
    if x.rank != rank:
        raise ShapeError(f"an operand must have {rank} axes", shape=x.shape)
    return x.shape


def positive(what: str, *counts: int) -> None:
    """Raises InvalidModel for an attribute that must be at least 1."""
    if min(counts) < 1:
        raise InvalidModel(f"the number of {what} must be at least 1", given=list(counts))


def known(x: Node, what: str) -> Array:
    """The value of an operand that decides shapes and so must be known at compile time.

    what: the operand's name in messages.  Raises UnsupportedOp if it is not constant, ModelLimit if
    it takes much to compute.
    """
    if x.value is not None:
        return x.value
    if x.constant:
        check_limit("shape_work", max(x.size, costs([x])), f"the work to compute {what}")
        return evaluate([x])[0]
    raise UnsupportedOp(
        f"{what} is computed from the model's inputs at run time",
        hint="Tilewright needs it at compile time: export the model with a fixed value",
        shape=x.shape,
    )


def known_ints(x: Node, what: str) -> tuple[int, ...]:
    return tuple(int(v) for v in known(x, what).reshape(-1))


def known_number(x: Node, what: str) -> Number:
    value = known(x, what)
    if value.size != 1:
        raise InvalidModel(f"{what} must be a single number", shape=x.shape)
    number: Number = value.reshape(()).item()
    return number


def ints(values: Sequence[int] | Array) -> Node:
    """A constant i64 vector: a shape, for example."""
    return constant(np.asarray(values, dtype=np.int64).reshape(-1), I64)


#: The most views that `gather_positions` joins in place of a table.
PIECES = 8


def gather_positions(x: Node, places: Array, axis: int) -> Node:
    """x at known positions along an axis: by views if few describe a long axis, else by a table."""
    ends = [] if places.size <= FOLD_LIMIT else _pieces(places)
    if not 0 < len(ends) <= PIECES:
        return gather(x, constant(places.astype(np.int32)), axis)
    starts = [0, *ends[:-1]]
    return concat([_piece(x, places[a:b], axis) for a, b in zip(starts, ends, strict=True)], axis)


def _pieces(places: Array) -> list[int]:
    """The ends of the runs of evenly spaced positions; it stops at more than `PIECES` of them."""
    steps, at = np.diff(places), 0
    ends: list[int] = []
    while at < places.size and len(ends) <= PIECES:
        other = np.flatnonzero(steps[at:] != steps[at]) if at < steps.size else np.array([])
        at = at + int(other[0]) + 1 if other.size else places.size
        ends.append(at)
    return ends


def _piece(x: Node, places: Array, axis: int) -> Node:
    """A view of x at evenly spaced positions: one repeated, or every n-th forwards or backwards."""
    first, step = int(places[0]), int(places[1] - places[0]) if places.size > 1 else 1
    if not step:
        shape = (*x.shape[:axis], places.size, *x.shape[axis + 1 :])
        return broadcast(take(x, axis, first, 1), shape)
    if step > 0:
        return take(x, axis, first, places.size, step)
    return take(flip(x, (axis,)), axis, x.shape[axis] - 1 - first, places.size, -step)


def repeat_each(x: Node, times: int, axis: int) -> Node:
    """Repeats each element `times` times along an axis: [a, b] -> [a, a, b, b]."""
    wide = unsqueeze(x, (axis + 1,))
    shape = (*x.shape[: axis + 1], times, *x.shape[axis + 1 :])
    made = (*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :])
    return reshape(broadcast(wide, shape), made)
