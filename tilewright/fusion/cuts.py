"""Cuts: what would make a kernel too large is stored on the way and loaded again.

Input: the nodes that fusion wants to store.  Output: more of them, so that every kernel stays
within limits: a chain of a hundred thousand additions becomes some hundreds of kernels.  It leaves
kernels that fit as they are, and looks for no cheapest cut.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from tilewright.graph import ops
from tilewright.graph.node import Node, literal

#: Limits of one kernel.  Its expressions are trees, which the compiler walks by recursion and the
#: bundle holds in full.  Each buffer is a parameter, and engines allow 1,000 of them.
DEPTH, SIZE, BUFFERS, STAGES = 240, 4096, 900, 64


@dataclass(frozen=True)
class _Extent:
    """What a kernel holds that computes a node.

    depth, size:     of the expression, written out as a tree
    buffers, stages: the nodes that it loads; the reductions that it runs before
    """

    depth: int = 0
    size: int = 1
    buffers: frozenset[Node] = frozenset()
    stages: frozenset[Node] = frozenset()

    @property
    def fits(self) -> bool:
        sets = len(self.buffers) <= BUFFERS and len(self.stages) <= STAGES
        return sets and self.depth <= DEPTH and self.size <= SIZE


Extents = dict[Node, _Extent]


def cut(nodes: Sequence[Node], stored: set[Node], whole: Set[Node]) -> bool:
    """Add to `stored` what has to be, but nothing in `whole`; True if something was added.

    nodes: all that depends on the graph's inputs, operands first
    """
    before = len(stored)
    known: Extents = {}  # of what is not stored
    for n in nodes:
        extent = _extent(n, known)
        if not extent.fits:
            extent = _smaller(n, extent, known, stored, whole)
        if n in stored or isinstance(n.op, ops.Input):
            continue
        if isinstance(n.op, (ops.Reduce, ops.Contract)):  # users read the result of a stage
            extent = replace(extent, depth=1, size=1, stages=extent.stages | {n})
        known[n] = extent
    return len(stored) > before


def _extent(n: Node, known: Extents) -> _Extent:
    parts = [known.get(i) or _leaf(i) for i in n.inputs]
    if len(parts) == 1:
        return replace(parts[0], depth=parts[0].depth + 1, size=parts[0].size + 1)
    return _Extent(
        1 + max((p.depth for p in parts), default=0),
        1 + sum(p.size for p in parts),
        frozenset().union(*(p.buffers for p in parts)),
        frozenset().union(*(p.stages for p in parts)),
    )


def _leaf(n: Node) -> _Extent:
    return _Extent() if literal(n) is not None else _Extent(buffers=frozenset((n,)))


def _smaller(
    n: Node, extent: _Extent, known: Extents, stored: set[Node], whole: Set[Node]
) -> _Extent:
    """The extent of `n` once its largest operands are stored, as many as it takes."""
    operands = [i for i in dict.fromkeys(n.inputs) if i in known]
    operands.sort(key=lambda i: (known[i].size, known[i].depth), reverse=True)
    for i in operands:
        if extent.fits:
            break
        views = [i]
        while isinstance(views[-1].op, ops.VIEWS) and views[-1].inputs[0] in known:
            views.append(views[-1].inputs[0])
        if isinstance(views[-1].op, ops.VIEWS):
            views = [i]
        root = views.pop()
        if root not in whole:
            stored.add(root)
            del known[root]
            known.update((view, _extent(view, known)) for view in reversed(views))
            extent = _extent(n, known)
    return extent
