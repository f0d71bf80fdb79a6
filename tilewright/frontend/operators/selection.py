"""ONNX TopK: the largest or smallest elements along an axis, in order.

Input: operand nodes and attributes.  Output: nodes.  An element's rank in a block is how many
others come before it, and rank r is found by comparing: both are reductions, which every target
computes by many threads.  Blocks give their best elements to the next round, until one is left.

    32,000 elements, k = 40:  125 blocks of 256 -> 5,000 -> 20 blocks -> 800 -> 4 -> 160 -> 40
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.dtypes import BOOL, I32, I64
from tilewright.base.errors import InvalidModel
from tilewright.frontend import algebra as al
from tilewright.frontend.operators.indexing import take_elements
from tilewright.frontend.table import operator
from tilewright.graph.node import (
    Node,
    broadcast,
    cast,
    iota,
    pad,
    reduce,
    reshape,
    transpose,
)

#: Elements of a block; at least twice as many as are wanted of it.
BLOCK = 256


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
        raise InvalidModel(f"TopK of {count} elements", shape=x.shape, limit=x.shape[along])
    if x.dtype == BOOL or not count or not x.size:
        raise InvalidModel(f"TopK of {count} elements of {x.dtype}", shape=x.shape)
    order = [*(i for i in range(x.rank) if i != along), along]
    values = transpose(x, order)
    places = cast(iota(values.shape, x.rank - 1), I32)
    width = max(BLOCK, 2 * count)
    while True:
        blocks = -(-values.shape[-1] // width)
        values, places = _best(values, places, blocks, count, largest)
        if blocks == 1:
            break
    back = [order.index(i) for i in range(x.rank)]
    return transpose(values, back), cast(transpose(places, back), I64)


def _best(values: Node, places: Node, blocks: int, count: int, largest: bool) -> tuple[Node, Node]:
    """The `count` best elements of each block, in order, blocks side by side."""
    *outer, total = values.shape
    width = -(-total // blocks)
    worst = al.lowest(values.dtype) if largest else al.highest(values.dtype)
    values = _in_blocks(values, blocks, width, worst)
    places = _in_blocks(places, blocks, width, -1)
    count = min(count, width)
    whole = (*outer, blocks, width, width)
    own, other = _spread(values, whole, -2), _spread(values, whole, -1)
    before = al.less(own, other) if largest else al.less(other, own)
    earlier = al.less(_counted(whole, -1), _counted(whole, -2))
    before = al.apply("or", before, al.apply("and", al.equal(own, other), earlier))
    rank = reshape(reduce("sum", cast(before, I32), [len(whole) - 1]), values.shape)
    picks = (*outer, blocks, count, width)

    here = al.equal(_spread(rank, picks, -1), _counted(picks, -2))
    # of numbers that are none no rank is certain: then it is the first element
    own_places = reduce("max", al.where(here, _counted(picks, -1), 0), [len(picks) - 1])
    at = reshape(own_places, (*outer, blocks, count))
    best = (reshape(take_elements(t, at, axis=-1), (*outer, -1)) for t in (values, places))
    return next(best), next(best)


def _counted(shape: tuple[int, ...], axis: int) -> Node:
    """The position along an axis that is counted from the end."""
    return cast(al.counted(shape, len(shape) + axis), I32)


def _in_blocks(x: Node, blocks: int, width: int, fill: float | int | bool) -> Node:
    *outer, total = x.shape
    missing = blocks * width - total
    if missing:
        x = pad(x, [0] * x.rank, [*([0] * len(outer)), missing], fill)
    return reshape(x, (*outer, blocks, width))


def _spread(x: Node, shape: Sequence[int], axis: int) -> Node:
    """x [.., blocks, width], its last axis as `axis` of the shape and repeated along the other."""
    return broadcast(al.unsqueeze(x, (-2 if axis == -1 else -1,)), tuple(shape))
