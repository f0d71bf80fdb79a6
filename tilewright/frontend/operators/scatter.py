"""ONNX operators that write at computed positions: ScatterND and ScatterElements.

Input: operand nodes and attributes.  Output: nodes.  The graph has no operation that writes at
positions, so each element asks which updates are its own.  Known indices answer that here.  Others
are compared with each position in kernels, which takes positions times updates comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from tilewright.base.dtypes import BOOL, I32, DType
from tilewright.base.errors import ShapeError, UnsupportedDType, UnsupportedOp
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operator_table import operator
from tilewright.frontend.operators.indexing import flat_offset, positions_along, row_of
from tilewright.frontend.operators.reduction import top
from tilewright.graph.node import (
    Node,
    cast,
    computed,
    constant,
    gather,
    iota,
    reduce,
    reshape,
)
from tilewright.graph.ops import Array

#: The most updates of one position that are applied one after the other.
MOST_ROUNDS = 4

#: By `reduction`: what joins an element and its update; the neutral element; the join of updates.
REDUCTIONS: dict[str, tuple[str, Callable[[DType], float], Callable[[Node], Node]]] = {
    "add": ("add", lambda _: 0, lambda x: al.total(x, (1,))),
    "mul": ("mul", lambda _: 1, lambda x: reduce("prod", x, (1,))),
    "max": ("max", al.lowest, lambda x: top("max", x, (1,))),
    "min": ("min", al.highest, lambda x: top("min", x, (1,))),
}


@operator("ScatterND")
def scatter_nd(data: Node, indices: Node, updates: Node, *, reduction: str = "none") -> Node:
    """The data with updates at index tuples, which are the last axis of `indices`."""
    depth = indices.shape[-1] if indices.rank else 0
    if not 0 < depth <= data.rank or updates.shape != indices.shape[:-1] + data.shape[depth:]:
        raise ShapeError(
            "the updates do not fit the operand and its indices",
            hint="Their shape is that of the indices without the last axis, then the rest of the "
            "operand's",
            shape=[data.shape, indices.shape, updates.shape],
        )
    lead = data.shape[:depth]
    parts = (al.squeeze(al.take(indices, indices.rank - 1, i, 1), (-1,)) for i in range(depth))
    rows = [(i, row_of(part, data.shape[i], i)) for i, part in enumerate(parts)]
    return _scattered(data, flat_offset(rows, lead), updates, prod(lead), reduction)


@operator("ScatterElements")
def scatter_elements(
    data: Node, indices: Node, updates: Node, *, axis: int = 0, reduction: str = "none"
) -> Node:
    """The data with each update at its own position, with the index along `axis`."""
    along = al.axis_of(axis, data.rank)
    others = [i for i in range(data.rank) if i != along]
    if (
        updates.shape != indices.shape or indices.rank != data.rank
        or any(indices.shape[i] > data.shape[i] for i in others)
    ):  # fmt: skip
        raise ShapeError(
            "the updates do not fit the operand and its indices",
            hint="Updates and indices have one shape. Except for `axis`, no axis of it may be "
            "longer than the operand's",
            shape=[data.shape, indices.shape, updates.shape],
        )
    rows = [(along, row_of(indices, data.shape[along], along))]
    rows += [(i, positions_along(indices, indices.shape, i)) for i in others]
    return _scattered(data, flat_offset(rows, data.shape), updates, data.size, reduction)


def _scattered(data: Node, at: Node, updates: Node, count: int, reduction: str) -> Node:
    """at: for each update its row of the data, which has `count` rows"""
    if reduction != "none" and reduction not in REDUCTIONS:
        raise UnsupportedOp(f"the reduction {reduction!r} is not supported")
    if reduction != "none" and data.dtype == BOOL:
        raise UnsupportedDType(f"the reduction {reduction!r} of bool is not supported")
    if not data.size or not updates.size:
        return data
    rows = reshape(data, (count, data.size // count))
    changes = reshape(updates, (at.size, rows.shape[1]))
    rounds = _rounds(computed(at).ravel(), count, reduction) if at.constant else None
    if rounds is None or len(rounds) > MOST_ROUNDS:
        made = _compared(rows, reshape(at, (1, at.size)), changes, reduction)
    else:
        made = rows
        for places in rounds:
            made = _applied(made, changes, places, reduction)
    return reshape(made, data.shape)


def _rounds(at: Array, count: int, reduction: str) -> list[Array]:
    """For each row the number of an update, or -1: the last one, or all one after the other."""
    if reduction == "none":
        places = np.full(count, -1)
        places[at] = np.arange(at.size)
        return [places]
    order = np.argsort(at, kind="stable")
    rank = np.arange(at.size) - np.searchsorted(at[order], at[order])
    rounds = []
    for number in range(min(int(rank.max()), MOST_ROUNDS) + 1):
        chosen = order[rank == number]
        places = np.full(count, -1)
        places[at[chosen]] = chosen
        rounds.append(places)
    return rounds


def _applied(rows: Node, changes: Node, places: Array, reduction: str) -> Node:
    """The rows with an update for each of those whose place is not -1."""
    if np.array_equal(places, np.arange(changes.shape[0])):
        return changes if reduction == "none" else al.apply(REDUCTIONS[reduction][0], rows, changes)
    own = al.gather_positions(changes, np.maximum(places, 0), 0)
    if reduction != "none":
        own = al.apply(REDUCTIONS[reduction][0], rows, own)
    return al.where(constant((places >= 0)[:, None], BOOL), own, rows)


def _compared(rows: Node, at: Node, changes: Node, reduction: str) -> Node:
    """at: [1, updates], known when it runs"""
    count, many = rows.shape[0], at.shape[1]
    # kernels have no vectors of i64
    is_own = al.equal(cast(at, I32), cast(iota((count, many), 0), I32))
    if reduction == "none":
        number = cast(iota((count, many), 1), I32)
        last = top("max", al.where(is_own, number, -1), (1,))
        own = gather(changes, reshape(al.apply("max", last, 0), (count,)), 0)
        return al.where(al.apply("le", al.full(0, last.shape, I32), last), own, rows)
    join, neutral, joined = REDUCTIONS[reduction]
    each = reshape(changes, (1, many, changes.shape[1]))
    parts = al.where(reshape(is_own, (count, many, 1)), each, neutral(changes.dtype))
    return al.apply(join, rows, reshape(joined(parts), rows.shape))
