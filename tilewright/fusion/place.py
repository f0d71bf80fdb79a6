"""Placement: which stored tensors lie inside a larger one; padding and joining then cost no copy.

Input: the stored nodes of a graph.  Output: for some of them a host: the padded tensor or the
concatenation that they are an operand of, and at which offsets they begin there.  Their kernels
store with the host's strides, and everything else reads them with these strides.

    x = relu(conv);  p = pad(x)   ->   relu(conv) stores into the inside of p
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.fusion.fuse import LEAVES
from tilewright.graph import ops
from tilewright.graph.node import Graph, Node
from tilewright.graph.scan import Scan
from tilewright.graph.views import Indices, below, root_of
from tilewright.kernel.index import Var, flatten, index


@dataclass(frozen=True)
class Place:
    """Element `at` of the placed tensor is element `at + offsets` of `host`."""

    host: Node
    offsets: tuple[int, ...]


Places = Mapping[Node, Place]


def placed(n: Node, at: Indices, places: Places) -> tuple[Node, Indices]:
    """The node in whose buffer `n` lies, and the indices of its element `at` there."""
    while n in places:
        spot = places[n]
        at = tuple(i + offset for i, offset in zip(at, spot.offsets, strict=True))
        n = spot.host
    return n, at


def place(graph: Graph, stored: tuple[Node, ...]) -> dict[Node, Place]:
    """A place for every operand of a stored padding or concatenation that can have one."""
    kept = set(stored)
    outputs = {n for _, n in graph.outputs}
    views = _views(graph, kept)
    # a loop steps through its operands and its value as they lie in memory
    whole = {root_of(i) for n in stored if isinstance(n.op, Scan) for i in (n, *n.inputs)}
    fixed = outputs | whole
    places: dict[Node, Place] = {}
    for host in stored:
        spots = dict(_spots(host))
        fits = len(spots) == len(host.inputs) and all(
            n in kept and n not in places and n not in fixed and not isinstance(n.op, LEAVES)
            for n in spots
        )
        if fits and all(_stays_plain(v, n, spots[n]) for n in spots for v in views.get(n, ())):
            places |= spots
    return places


def _spots(host: Node) -> Iterator[tuple[Node, Place]]:
    """Where each operand would lie in `host`."""
    match host.op:
        case ops.Pad(before, _, _):
            yield host.inputs[0], Place(host, before)
        case ops.Concat(axis):
            start = 0
            for part in host.inputs:
                offsets = tuple(start if i == axis else 0 for i in range(host.rank))
                yield part, Place(host, offsets)
                start += part.shape[axis]


def _views(graph: Graph, kept: set[Node]) -> dict[Node, list[Node]]:
    """The outermost views of each stored node: views that something other than a view reads."""
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


def _stays_plain(view: Node, n: Node, spot: Place) -> bool:
    """True if the view of `n` is read with plain strides from its place, or was not before."""
    at: Indices = tuple(index(Var(f"i{i}", extent)) for i, extent in enumerate(view.shape))
    while view is not n:
        at, view = below(view, at), view.inputs[0]
    moved = tuple(i + offset for i, offset in zip(at, spot.offsets, strict=True))
    plain = flatten(moved, spot.host.shape).is_affine
    return plain or not flatten(at, n.shape).is_affine
