"""Regions: everything that one kernel computes, as a key. Equal regions give equal kernels.

Input: a stored node and what lies in memory.  Output: a `Region`.  The layers of a model, and its
parts that do not depend on a bucket, have equal regions; the kernel is then made once.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import numpy as np

from tilewright.base.dtypes import I8
from tilewright.fusion.fuse import LEAVES
from tilewright.fusion.place import Places, placed
from tilewright.graph import ops
from tilewright.graph.extents import NONE, Extents
from tilewright.graph.narrow import in_halves, looseness
from tilewright.graph.node import Node, computed, fact, literal, toposort
from tilewright.graph.passes.pack_blocks import from_blocks
from tilewright.graph.views import Indices
from tilewright.kernel.index import Index
from tilewright.kernel.layout import ROWS
from tilewright.kernel.spec import PAIR_LIMIT, Buffer


@dataclass(frozen=True)
class StoredNodes:
    """What lies in memory, where; which nodes depend on the scores of their kernel; which constants
    lie nowhere; and which axes end at run time."""

    stored: Set[Node]
    places: Places
    scored: Set[Node]
    counted: Set[Node]
    extents: Extents = NONE

    def holds(self, n: Node) -> bool:
        """True for what kernels load instead of computing it."""
        if isinstance(n.op, LEAVES) or n in self.stored:
            return True
        folded = n.constant and not isinstance(n.op, (*ops.VIEWS, ops.Iota))
        computed = _is_position(n) or _packed(n) or from_blocks(n) or n in self.counted
        return folded and not computed

    def spot(self, n: Node, at: Indices) -> tuple[Node, Indices]:
        """The node in whose buffer `n` lies, and the indices of its element `at` there."""
        return placed(n, at, self.places)


def _is_position(n: Node) -> bool:
    """True for positions as another dtype: a kernel computes them for less than a load."""
    cast = isinstance(n.op, ops.Elementwise) and n.op.fn == "cast"
    return cast and isinstance(n.inputs[0].op, ops.Iota)


@fact(lambda n: n.inputs if isinstance(n.op, (*ops.VIEWS, ops.Elementwise)) else ())
def _packed(n: Node, operands: list[bool]) -> bool:
    """True for weights that stay packed in memory: kernels take them apart."""
    return n.op == ops.Elementwise("nibble") or any(operands)


def buffer_of(n: Node) -> Buffer:
    """A buffer; weights of 8 bits that keep to 7 say so, and weights that are halves."""
    small = n.dtype == I8 and n.constant and _keeps_to_pairs(n)
    layout = n.op.layout if isinstance(n.op, ops.Realize) else ROWS
    halves, loose = in_halves(n), looseness(n)
    if not halves and loose == "f16":
        loose = ""
    return Buffer(n.dtype, n.size, PAIR_LIMIT if small else 0, layout, halves, loose)


@fact()
def _keeps_to_pairs(n: Node, _: list[bool]) -> bool:
    value = computed(n).astype(np.int32)
    return bool(value.size and np.abs(value).max() <= PAIR_LIMIT)


@dataclass(frozen=True)
class Region:
    """All that the kernel of one node touches.

    nodes: computed or loaded ones, operands first
    hosts: the nodes whose buffers hold the loaded ones
    key:   equal for regions with equal kernels
    """

    nodes: tuple[Node, ...]
    hosts: tuple[Node, ...]
    key: object


def region_of(root: Node, memory: StoredNodes) -> Region:
    """The region of a stored node."""

    def computed(n: Node) -> bool:
        return n is root or not (literal(n) is not None or memory.holds(n))

    nodes = toposort([root], lambda n: n.inputs if computed(n) else ())
    number = {n: position for position, n in enumerate(nodes)}
    hosts: dict[Node, int] = {}
    key: list[object] = [_spot(root, memory)[1:]]
    for n in nodes:
        value = literal(n)
        if computed(n) and n.inputs:
            operands = tuple([number[i] for i in n.inputs])
            key.append((type(n.op), ops.attributes(n.op), n.shape, n.dtype, operands))
        elif value is not None and n is not root:
            key.append((value, repr(value), n.dtype))  # 0.0 and -0.0 are equal, but not the same
        elif memory.holds(n):
            host, *where = _spot(n, memory)
            key.append((hosts.setdefault(host, len(hosts)), buffer_of(host), n.dtype, *where))
        else:
            key.append((type(n.op), ops.attributes(n.op), n.dtype))
    key += [memory.extents.key(n) for n in nodes if memory.extents.bounds]
    return Region(nodes, tuple(hosts), tuple(key))


def _spot(n: Node, memory: StoredNodes) -> tuple[Node, object, object, object]:
    """(host, its shape, where in it `n` begins, the shape of `n`)"""
    host, at = memory.spot(n, (Index(),) * n.rank)
    return host, host.shape, tuple([i.const for i in at]), n.shape
