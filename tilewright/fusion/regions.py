"""Regions: all nodes that one kernel computes, as a key; and the memory of stored tensors.

Input: a stored node, and the nodes in memory.  Output: a `Region`.  Equal regions share one kernel:
those of equal layers, and those in several buckets that do not depend on the bucket.

Some stored tensors are part of a larger one, so padding and joining cost no copy.  `place_in_hosts`
gives them a host, which is the padded tensor or concatenation, and the offsets at which they begin
in it. The kernels of the parts store with the host's strides, and all other kernels read with them.

    x = relu(conv);  p = pad(x)   ->   relu(conv) stores into the inside of p
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

import numpy as np

from tilewright.base.dtypes import I8
from tilewright.fusion.fuse import LEAVES
from tilewright.graph import ops
from tilewright.graph.constants import looseness, stored_as_f16
from tilewright.graph.extent_tracing import NO_EXTENTS, Extents
from tilewright.graph.node import Graph, Node, computed, fact, literal, toposort
from tilewright.graph.passes.pack_quantised import from_blocks
from tilewright.graph.scan import Scan
from tilewright.graph.views import Indices, operand_indices, root_of
from tilewright.kernel.index import Index, Var, flatten, index
from tilewright.kernel.layout import ROWS
from tilewright.kernel.spec import PAIR_LIMIT, Buffer


@dataclass(frozen=True)
class Placement:
    """Element `at` of the placed tensor is element `at + offsets` of `host`."""

    host: Node
    offsets: tuple[int, ...]


Placements = Mapping[Node, Placement]


def in_host(n: Node, at: Indices, places: Placements) -> tuple[Node, Indices]:
    """The node whose buffer contains `n`, and the indices there of its element `at`."""
    while n in places:
        spot = places[n]
        at = tuple(i + offset for i, offset in zip(at, spot.offsets, strict=True))
        n = spot.host
    return n, at


def place_in_hosts(graph: Graph, stored: tuple[Node, ...]) -> dict[Node, Placement]:
    """A place for every operand of a stored padding or concatenation that can have one."""
    kept = set(stored)
    outputs = {n for _, n in graph.outputs}
    views = _views(graph, kept)
    # A loop needs its operands and its value in their own layout.
    whole = {root_of(i) for n in stored if isinstance(n.op, Scan) for i in (n, *n.inputs)}
    fixed = outputs | whole
    places: dict[Node, Placement] = {}
    for host in stored:
        spots = dict(_placements_in(host))
        fits = len(spots) == len(host.inputs) and all(
            n in kept and n not in places and n not in fixed and not isinstance(n.op, LEAVES)
            for n in spots
        )
        if fits and all(_stays_plain(v, n, spots[n]) for n in spots for v in views.get(n, ())):
            places |= spots
    return places


def _placements_in(host: Node) -> Iterator[tuple[Node, Placement]]:
    """The place that each operand would have in `host`."""
    match host.op:
        case ops.Pad(before, _, _):
            yield host.inputs[0], Placement(host, before)
        case ops.Concat(axis):
            start = 0
            for part in host.inputs:
                offsets = tuple(start if i == axis else 0 for i in range(host.rank))
                yield part, Placement(host, offsets)
                start += part.shape[axis]


def _views(graph: Graph, kept: set[Node]) -> dict[Node, list[Node]]:
    """The outermost views of each stored node: views that a node other than a view reads."""
    found: dict[Node, list[Node]] = {}
    for n in graph.nodes():
        for i in n.inputs:
            outermost = isinstance(i.op, ops.VIEWS) and i not in kept
            if not outermost or i.constant or (isinstance(n.op, ops.VIEWS) and n not in kept):
                continue
            root = i
            while isinstance(root.op, ops.VIEWS) and root not in kept:
                root = root.inputs[0]
            if root in kept:
                found.setdefault(root, []).append(i)
    return found


def _stays_plain(view: Node, n: Node, spot: Placement) -> bool:
    """True unless placing `n` would take plain strides from its view."""
    at: Indices = tuple(index(Var(f"i{i}", extent)) for i, extent in enumerate(view.shape))
    while view is not n:
        at, view = operand_indices(view, at), view.inputs[0]
    moved = tuple(i + offset for i, offset in zip(at, spot.offsets, strict=True))
    plain = flatten(moved, spot.host.shape).is_affine
    return plain or not flatten(at, n.shape).is_affine


@dataclass(frozen=True)
class StoredNodes:
    """The nodes in memory with their places; the nodes that depend on their kernel's attention
    scores; the constants that kernels compute; and the axes that end at run time."""

    stored: Set[Node]
    places: Placements
    scored: Set[Node]
    counted: Set[Node]
    extents: Extents = NO_EXTENTS

    def holds(self, n: Node) -> bool:
        """True for nodes that kernels load instead of computing them."""
        if isinstance(n.op, LEAVES) or n in self.stored:
            return True
        folded = n.constant and not isinstance(n.op, (*ops.VIEWS, ops.Iota))
        computed = _is_position(n) or _packed(n) or from_blocks(n) or n in self.counted
        return folded and not computed

    def spot(self, n: Node, at: Indices) -> tuple[Node, Indices]:
        """The node whose buffer contains `n`, and the indices there of its element `at`."""
        return in_host(n, at, self.places)


def _is_position(n: Node) -> bool:
    """True for positions cast to another dtype: computing them costs less than a load."""
    cast = isinstance(n.op, ops.Elementwise) and n.op.fn == "cast"
    return cast and isinstance(n.inputs[0].op, ops.Iota)


@fact(lambda n: n.inputs if isinstance(n.op, (*ops.VIEWS, ops.Elementwise)) else ())
def _packed(n: Node, operands: list[bool]) -> bool:
    """True for weights that stay packed in memory, and that kernels unpack."""
    return n.op == ops.Elementwise("nibble") or any(operands)


def buffer_of(n: Node) -> Buffer:
    """A node's buffer, with marks for 8-bit weights of 7 bits and for f16 weights."""
    small = n.dtype == I8 and n.constant and _keeps_to_pairs(n)
    layout = n.op.layout if isinstance(n.op, ops.Realize) else ROWS
    as_f16, loose = stored_as_f16(n), looseness(n)
    if not as_f16 and loose == "f16":
        loose = ""
    return Buffer(n.dtype, n.size, PAIR_LIMIT if small else 0, layout, as_f16, loose)


@fact()
def _keeps_to_pairs(n: Node, _: list[bool]) -> bool:
    value = computed(n).astype(np.int32)
    return bool(value.size and np.abs(value).max() <= PAIR_LIMIT)


@dataclass(frozen=True)
class Region:
    """All nodes that the kernel of one node uses.

    nodes: the nodes that it computes or loads, operands first
    hosts: the nodes whose buffers contain the loaded ones
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
    key: list[object] = [_position_in_memory(root, memory)[1:]]
    for n in nodes:
        value = literal(n)
        if computed(n) and n.inputs:
            operands = tuple([number[i] for i in n.inputs])
            key.append((type(n.op), ops.attributes(n.op), n.shape, n.dtype, operands))
        elif value is not None and n is not root:
            key.append((value, repr(value), n.dtype))  # repr: 0.0 == -0.0
        elif memory.holds(n):
            host, *where = _position_in_memory(n, memory)
            key.append((hosts.setdefault(host, len(hosts)), buffer_of(host), n.dtype, *where))
        else:
            key.append((type(n.op), ops.attributes(n.op), n.dtype))
    key += [memory.extents.key(n) for n in nodes if memory.extents.bounds]
    return Region(nodes, tuple(hosts), tuple(key))


def _position_in_memory(n: Node, memory: StoredNodes) -> tuple[Node, object, object, object]:
    """(host, its shape, the position in it where `n` begins, the shape of `n`)"""
    host, at = memory.spot(n, (Index(),) * n.rank)
    return host, host.shape, tuple([i.const for i in at]), n.shape
