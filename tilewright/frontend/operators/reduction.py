"""ONNX reductions, arg-extremes and running sums.

Input: operand nodes and attributes.  Output: nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.base.dtypes import BOOL, I32, I64
from tilewright.frontend import algebra as al
from tilewright.frontend.table import operator
from tilewright.graph.node import Node, cast, flip, iota, pad, reduce, unfold

Reducer = Callable[[Node, Sequence[int]], Node]


def _extreme(fn: str) -> Reducer:
    def apply(x: Node, axes: Sequence[int]) -> Node:
        if x.dtype == BOOL and x.size:
            return cast(top(fn, cast(x, I32), axes), BOOL)
        return top(fn, x, axes)

    return apply


def top(fn: str, x: Node, axes: Sequence[int]) -> Node:
    """The maximum or minimum; of no elements, the value that changes no other."""
    if x.size or 0 not in [x.shape[a] for a in axes]:
        return reduce(fn, x, axes)
    shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    return al.full(al.lowest(x.dtype) if fn == "max" else al.highest(x.dtype), shape, x.dtype)


def _log_sum_exp(x: Node, axes: Sequence[int]) -> Node:
    """log Σ exp(x): the maximum is taken out first, unless it is infinite."""
    largest = top("max", x, axes)
    finite = al.less(al.apply("abs", largest), float("inf"))
    safe = al.where(finite, largest, 0.0)
    return al.add(safe, al.log(al.total(al.exp(al.sub(x, safe)), axes)))


_REDUCERS: dict[str, Reducer] = {
    "ReduceSum": al.total,
    "ReduceMean": al.mean,
    "ReduceMax": _extreme("max"),
    "ReduceMin": _extreme("min"),
    "ReduceProd": lambda x, axes: reduce("prod", x, axes),
    "ReduceSumSquare": lambda x, axes: al.total(al.square(x), axes),
    "ReduceL1": lambda x, axes: al.total(al.apply("abs", x), axes),
    "ReduceL2": lambda x, axes: al.sqrt(al.total(al.square(x), axes)),
    "ReduceLogSum": lambda x, axes: al.log(al.total(x, axes)),
    "ReduceLogSumExp": _log_sum_exp,
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
    """The first (or last) position of the maximum or minimum along `axis`, which stays.

    A NaN counts as the extreme, as in NumPy; else there would be no position at all.
    """
    best = al.equal(x, reduce(fn, x, (axis,)))
    if x.dtype.is_float:
        best = al.apply("or", best, al.apply("not", al.equal(x, x)))
    place = cast(iota(x.shape, axis), I32)  # vectors hold no i64
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
    """Running sums: element i sums a window that ends at i, over zeros put before the start."""
    return _running("sum", 0, x, axis, exclusive, reverse)


@operator("CumProd", since=26)
def cumprod(x: Node, axis: Node, *, exclusive: int = 0, reverse: int = 0) -> Node:
    return _running("prod", 1, x, axis, exclusive, reverse)


def _running(fn: str, neutral: int, x: Node, axis: Node, exclusive: int, reverse: int) -> Node:
    along = al.axis_of(int(al.known_number(axis, "axis")), x.rank)
    size = x.shape[along]
    if size == 0:
        return x
    line = flip(x, (along,)) if reverse else x
    before = [0] * x.rank
    before[along] = size if exclusive else size - 1
    windows = unfold(pad(line, before, [0] * x.rank, neutral), along, size)
    windows = al.take(windows, along, 0, size)
    sums = al.squeeze(reduce(fn, windows, (-1,)), (-1,))
    return flip(sums, (along,)) if reverse else sums
