"""Elements at known positions along an axis: views where positions follow a pattern.

Input: a node, positions.  Output: a node.  A table of positions is as long as the axis at most, and
long ones are avoided: slices, flips and repeats take no memory.
"""

from __future__ import annotations

import numpy as np

from tilewright.frontend import arithmetic as al
from tilewright.graph.node import (
    FOLD_LIMIT,
    Node,
    broadcast,
    concat,
    constant,
    flip,
    gather,
    reshape,
)
from tilewright.graph.ops import Array

#: The most pieces that longer axes are made of.
PIECES = 8


def picked(x: Node, places: Array, axis: int) -> Node:
    """x at these positions along an axis; few of them by a table, which one kernel reads."""
    ends = [] if places.size <= FOLD_LIMIT else _pieces(places)
    if not 0 < len(ends) <= PIECES:
        return gather(x, constant(places.astype(np.int32)), axis)
    starts = [0, *ends[:-1]]
    return concat([_piece(x, places[a:b], axis) for a, b in zip(starts, ends, strict=True)], axis)


def _pieces(places: Array) -> list[int]:
    """Where each run with one distance ends; no more of them than one too many."""
    steps, at = np.diff(places), 0
    ends: list[int] = []
    while at < places.size and len(ends) <= PIECES:
        other = np.flatnonzero(steps[at:] != steps[at]) if at < steps.size else np.array([])
        at = at + int(other[0]) + 1 if other.size else places.size
        ends.append(at)
    return ends


def _piece(x: Node, places: Array, axis: int) -> Node:
    """A run of positions: all alike, or every n-th forwards or backwards."""
    first, step = int(places[0]), int(places[1] - places[0]) if places.size > 1 else 1
    if not step:
        shape = (*x.shape[:axis], places.size, *x.shape[axis + 1 :])
        return broadcast(al.take(x, axis, first, 1), shape)
    if step > 0:
        return al.take(x, axis, first, places.size, step)
    return al.take(flip(x, (axis,)), axis, x.shape[axis] - 1 - first, places.size, -step)


def repeated(x: Node, times: int, axis: int) -> Node:
    """Each element `times` times, one after the other."""
    wide = al.unsqueeze(x, (axis + 1,))
    shape = (*x.shape[: axis + 1], times, *x.shape[axis + 1 :])
    made = (*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :])
    return reshape(broadcast(wide, shape), made)
