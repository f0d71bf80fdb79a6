"""Cuts kernels that would be too large: a value in the middle is stored and loaded again.

Input: the nodes that fusion wants to store.  Output: more of them, so that every kernel stays
within limits: a chain of a hundred thousand additions becomes some thousand steps.  It leaves
kernels that fit as they are, and looks for no cheapest cut.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from tilewright.graph import ops
from tilewright.graph.node import Node, literal
from tilewright.graph.views import REPEATS, repeats

#: Limits of one kernel.  Its expressions are trees, which the compiler walks by recursion (up to
#: nine calls for a level) and the bundle holds in full.  Each buffer is a parameter, and engines
#: allow 1,000 of them.
DEPTH, SIZE, BUFFERS, STAGES = 64, 4096, 900, 64

#: Levels that an index in memory counts for: an index, an atom and a load below each other.
GATHERED = 4

#: So many parts of a concatenation are told apart one after the other, more of them by halves.
IN_TURN = 16


@dataclass(frozen=True)
class _Extent:
    """What a kernel holds that computes a node.

    depth, size:     of the expression, written out as a tree
    repeats:         of the largest index, how often it may hold an index of the kernel's output
    buffers, stages: the nodes that it loads; the reductions that it runs before
    """

    depth: int = 0
    size: int = 1
    repeats: int = 1
    buffers: frozenset[Node] = frozenset()
    stages: frozenset[Node] = frozenset()

    @property
    def fits(self) -> bool:
        sets = len(self.buffers) <= BUFFERS and len(self.stages) <= STAGES
        return sets and self.depth <= DEPTH and self.size <= SIZE and self.repeats <= REPEATS


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
    repeated = repeats(n) * max((p.repeats for p in parts), default=1)
    if len(parts) == 1:
        (p,) = parts
        return replace(p, depth=p.depth + 1, size=p.size + 1, repeats=repeated)
    return _Extent(
        _levels(n) + max((p.depth for p in parts), default=0),
        1 + sum(p.size for p in parts),
        repeated,
        frozenset().union(*(p.buffers for p in parts)),
        frozenset().union(*(p.stages for p in parts)),
    )


def _levels(n: Node) -> int:
    """How many levels of an expression the node adds: a gathered index counts for several."""
    if isinstance(n.op, ops.Gather):
        return GATHERED
    return _choices(len(n.inputs)) if isinstance(n.op, ops.Concat) else 1


def _choices(parts: int) -> int:
    """How deep the choice between the parts of a concatenation is."""
    return parts if parts <= IN_TURN else 1 + _choices(-(-parts // 2))


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
