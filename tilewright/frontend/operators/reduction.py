"""ONNX reductions, arg-extremes, running sums, and TopK.

Input: operand nodes and attributes.  Output: nodes.  For TopK, elements are mapped to integers in
the wanted order; `Order` finds the positions of the smallest, and a gather reads the elements
there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tilewright.base.dtypes import BOOL, I32, I64
from tilewright.base.errors import InvalidModel, UnsupportedDType
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operator_table import operator
from tilewright.graph import ops
from tilewright.graph.node import (
    Node,
    broadcast,
    cast,
    flip,
    gather,
    iota,
    node,
    pad,
    reduce,
    reshape,
    transpose,
    unfold,
)

Reducer = Callable[[Node, Sequence[int]], Node]


def _extreme(fn: str) -> Reducer:
    def apply(x: Node, axes: Sequence[int]) -> Node:
        if x.dtype == BOOL and x.size:
            return cast(top(fn, cast(x, I32), axes), BOOL)
        return top(fn, x, axes)

    return apply


def top(fn: str, x: Node, axes: Sequence[int]) -> Node:
    """The maximum or minimum over `axes`; if there are no elements, the neutral element."""
    if x.size or 0 not in [x.shape[a] for a in axes]:
        return reduce(fn, x, axes)
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    return al.full(al.lowest(x.dtype) if fn == "max" else al.highest(x.dtype), shape, x.dtype)


def _log_sum_exp(x: Node, axes: Sequence[int]) -> Node:
    """log Σ exp(x), with the maximum subtracted first unless it is infinite."""
    largest = top("max", x, axes)
    finite = al.less(al.apply("abs", largest), float("inf"))
    safe = al.where(finite, largest, 0.0)
    return al.add(safe, al.log(al.total(al.exp(al.sub(x, safe)), axes)))


def _of_floats(op: str, reducer: Reducer) -> Reducer:
    """The reducer, for floats only: roots and logarithms of integers are not integers."""

    def apply(x: Node, axes: Sequence[int]) -> Node:
        if not x.dtype.is_float:
            raise UnsupportedDType(
                f"{op} of integers ({x.dtype}) is not supported: its result is not a whole number",
                hint="Put a Cast to float before it",
                dtype=x.dtype,
            )
        return reducer(x, axes)

    return apply


_REDUCERS: dict[str, Reducer] = {
    "ReduceSum": al.total,
    "ReduceMean": al.mean,
    "ReduceMax": _extreme("max"),
    "ReduceMin": _extreme("min"),
    "ReduceProd": lambda x, axes: reduce("prod", x, axes),
    "ReduceSumSquare": lambda x, axes: al.total(al.square(x), axes),
    "ReduceL1": lambda x, axes: al.total(al.apply("abs", x), axes),
    "ReduceL2": _of_floats("ReduceL2", lambda x, axes: al.sqrt(al.total(al.square(x), axes))),
    "ReduceLogSum": _of_floats("ReduceLogSum", lambda x, axes: al.log(al.total(x, axes))),
    "ReduceLogSumExp": _of_floats("ReduceLogSumExp", _log_sum_exp),
}


def _reduce_over(reducer: Reducer, x: Node, axes: Sequence[int], keepdims: int) -> Node:
    over = al.axes_of(axes, x.rank)
    made = reducer(x, over)
    return made if keepdims else al.squeeze(made, over)


def _axes_attribute(reducer: Reducer) -> Callable[..., Node]:
    def apply(x: Node, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Node:
        return _reduce_over(reducer, x, range(x.rank) if axes is None else axes, keepdims)

    return apply


def _axes_operand(reducer: Reducer) -> Callable[..., Node]:
    def apply(
        x: Node, axes: Node | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Node:
        over = () if axes is None else al.known_ints(axes, "axes")
        if not over and not noop_with_empty_axes:
            over = tuple(range(x.rank))
        return _reduce_over(reducer, x, over, keepdims)

    return apply


for _name, _reducer in _REDUCERS.items():
    if _name != "ReduceSum":
        operator(_name)(_axes_attribute(_reducer))
    operator(_name, since=13 if _name == "ReduceSum" else 18)(_axes_operand(_reducer))


def first_extreme(x: Node, axis: int, fn: str, last: bool = False) -> Node:
    """The first (or last) position of the maximum or minimum along `axis`, which is kept.

    A NaN counts as the extreme, as in NumPy.
    """
    best = al.equal(x, reduce(fn, x, (axis,)))
    if x.dtype.is_float:
        best = al.apply("or", best, al.apply("not", al.equal(x, x)))
    place = cast(iota(x.shape, axis), I32)  # kernels have no vectors of i64
    if last:
        return cast(reduce("max", al.where(best, place, -1), (axis,)), I64)
    return cast(reduce("min", al.where(best, place, x.shape[axis]), (axis,)), I64)


def _arg(fn: str) -> Callable[..., Node]:
    def apply(x: Node, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Node:
        over = al.axis_of(axis, x.rank)
        found = first_extreme(x, over, fn, last=bool(select_last_index))
        return found if keepdims else al.squeeze(found, (over,))

    return apply


operator("ArgMax")(_arg("max"))
operator("ArgMin")(_arg("min"))


@operator("CumSum")
def cumsum(x: Node, axis: Node, *, exclusive: int = 0, reverse: int = 0) -> Node:
    """Running sums: element i is the sum of elements 0 to i, or to i - 1 if `exclusive`."""
    return _running("sum", x, axis, exclusive, reverse)


@operator("CumProd", since=26)
def cumprod(x: Node, axis: Node, *, exclusive: int = 0, reverse: int = 0) -> Node:
    return _running("prod", x, axis, exclusive, reverse)


#: The function that combines two results, and its neutral element.
_JOIN = {"sum": ("add", 0), "prod": ("mul", 1)}

#: Elements of a block, and of the window over which each element of a block is reduced.
_BLOCK = 16


def _running(fn: str, x: Node, axis: Node, exclusive: int, reverse: int) -> Node:
    along = al.axis_of(int(al.known_number(axis, "axis")), x.rank)
    if x.shape[along] == 0:
        return x
    line = flip(x, (along,)) if reverse else x
    made = _prefixes(fn, _delayed(fn, line, along) if exclusive else line, along)
    return flip(made, (along,)) if reverse else made


def _delayed(fn: str, x: Node, along: int) -> Node:
    """Shifts elements by one; the neutral element comes first."""
    before = [int(i == along) for i in range(x.rank)]
    return al.take(pad(x, before, [0] * x.rank, _JOIN[fn][1]), along, 0, x.shape[along])


def _prefixes(fn: str, x: Node, along: int) -> Node:
    """Inclusive running results along an axis: about 16 operations for each element.

    Each is its result within a block, combined with the result of all earlier blocks.  The blocks'
    totals are a 16th of the elements, and their running results are computed in the same way.
    """
    size = x.shape[along]
    if size <= _BLOCK:
        return _windows(fn, x, along)
    join, neutral = _JOIN[fn]
    count = -(-size // _BLOCK)
    after = [count * _BLOCK - size if i == along else 0 for i in range(x.rank)]
    split = (*x.shape[:along], count, _BLOCK, *x.shape[along + 1 :])
    blocks = reshape(pad(x, [0] * x.rank, after, neutral), split)
    inside = _windows(fn, blocks, along + 1)
    totals = al.take(inside, along + 1, _BLOCK - 1, 1)
    before = _prefixes(fn, _delayed(fn, totals, along), along)
    shape = (*x.shape[:along], count * _BLOCK, *x.shape[along + 1 :])
    return al.take(reshape(al.apply(join, inside, before), shape), along, 0, size)


def _windows(fn: str, x: Node, along: int) -> Node:
    """Running results: a reduction per element over a window that ends there, padded in front."""
    size = x.shape[along]
    before = [size - 1 if i == along else 0 for i in range(x.rank)]
    windows = unfold(pad(x, before, [0] * x.rank, _JOIN[fn][1]), along, size)
    return al.squeeze(reduce(fn, windows, (-1,)), (-1,))


#: The bits of f32 infinity, and the bits that replace those of every NaN.
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
            hint="Choose k from 0 to the size of the axis",
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
    """The elements at these positions along the last axis.  Kernels compute where rows begin,
    without a table."""
    flat = cast(places, I64)
    if prod(values.shape[:-1]) > 1:
        counted = reshape(al.position_along((values.size,), 0), values.shape)
        first = al.take(counted, values.rank - 1, 0, 1)
        flat = al.add(flat, broadcast(first, places.shape))
    return gather(reshape(values, (values.size,)), flat, 0)


def _keys(x: Node, largest: bool) -> Node:
    """Integer keys: the element that is wanted first gets the smallest.  NaN counts as the largest
    number.

    As integers, the bits of negative floats fall while the numbers rise, so they are inverted; -0
    and 0 get one key.
    """
    if x.dtype.is_float:
        bits = al.apply("bits", x)
        x = al.where(al.less(bits, 0), al.sub(-(2**31), bits), bits)
        nan = al.apply("or", al.less(INFINITY, x), al.less(x, -INFINITY))
        x = al.where(nan, NAN, x)
    elif x.dtype != I64:
        x = cast(x, I32)
    return al.sub(-1, x) if largest else x
