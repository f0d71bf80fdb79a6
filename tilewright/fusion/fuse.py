"""Decides which nodes share a kernel, and so which tensors exist in memory.

Input: a packed `Graph`.  Output: the nodes to store, in execution order; every other node is
computed inside the kernel of the stored node that uses it.

* A contraction includes the elementwise operations that follow it (bias, GELU, residual).
* An attention is one kernel: two contractions and the softmax between them.
* A reduction grows into a row kernel: elementwise operations over the same rows, and further
  reductions over the same axes (softmax, layer norm), up to the one tensor used outside.
* Elementwise producers are computed inside the kernel of their only user.
* A kernel stays within limits: `cut` stores a value in the middle of one that would be too large.
  A
  chain of a hundred thousand additions becomes some thousand steps.  Kernels within the limits are
  not changed, and there is no search for the cheapest cut.
* A tensor that windows slide over is stored with its padding.  The operands of a stored padding or
  concatenation are stored, too, so that `place_in_hosts` can put them inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import islice

from tilewright.base.dtypes import BOOL, F32, I8, I16, I32, U8
from tilewright.graph import ops
from tilewright.graph.constants import kernel_constants
from tilewright.graph.node import Graph, Node, literal
from tilewright.graph.passes.find_attention import Users, region, scored
from tilewright.graph.scan import Scan
from tilewright.graph.views import REPEATS, joins_rows, repeats, root_of
from tilewright.kernel.expr import EXPENSIVE

#: Element types that targets compute in vectors.
CHEAP = (F32, I32, I16, I8, U8, BOOL)

#: Operations that cost nothing to compute again.
_FREE = (*ops.VIEWS, ops.Input, ops.Iota)

#: Nodes that are in memory without a kernel.
LEAVES = (ops.Input, ops.Weight, ops.Constant)


def fuse(graph: Graph) -> tuple[Node, ...]:
    """The nodes that get a buffer of their own (inputs and constants not counted)."""
    computed = kernel_constants(graph)
    nodes = [n for n in graph.nodes() if not n.constant or n in computed]
    kept = set(nodes)
    users = {n: tuple(filter(kept.__contains__, graph.users[n])) for n in nodes}
    outputs = {n for _, n in graph.outputs}
    stored: set[Node] = {n for n in nodes if isinstance(n.op, ops.Realize)} | outputs
    for n in nodes:
        if isinstance(n.op, (Scan, ops.Update, ops.Order)):
            stored.add(n)
        if isinstance(n.op, (ops.Update, ops.Order)):
            stored.add(n.inputs[0])
        if isinstance(n.op, (ops.Contract, Scan)):
            roots = map(root_of, n.inputs[_is_context(n) :])  # probabilities stay in the kernel
            stored |= kept.intersection(roots)
        if isinstance(n.op, ops.Unfold) and isinstance(root_of(n).op, ops.Pad):
            stored.add(root_of(n))
    for n in nodes:
        if n in stored and isinstance(n.op, (ops.Pad, ops.Concat)):
            stored |= _parts(n)
    between = scored(graph, stored)
    regions = {n: region(n, between, users) for n in nodes if _is_context(n)}
    inseparable = set[Node]().union(*regions.values())
    taken = set(inseparable)
    order = {n: position for position, n in enumerate(nodes)}
    for n in nodes:
        if isinstance(n.op, (ops.Contract, ops.Reduce)) and n not in taken:
            group, leaving = _grow(n, regions.get(n, set()), users, order, stored, taken)
            taken |= group
            stored.add(leaving)
    # A concatenation of stored tensors costs nothing if they can be stored side by side.
    stored |= {n for n in nodes if isinstance(n.op, ops.Concat) and stored.issuperset(n.inputs)}
    _store_shared(nodes, users, stored, taken, _costly(nodes, stored))
    if cut(nodes, stored, inseparable):  # a group in parts may have several values used outside
        _store_shared(nodes, users, stored, inseparable, set())
    return tuple(n for n in nodes if n in stored and not isinstance(n.op, LEAVES))


def _parts(n: Node) -> set[Node]:
    """The operands of a padding or concatenation, if all can be computed by kernels of their
    own."""
    computed = all(not i.constant and not isinstance(i.op, LEAVES) for i in n.inputs)
    return set(n.inputs) if computed else set()


def _is_context(n: Node) -> bool:
    """True for the second contraction of an attention."""
    return isinstance(n.op, ops.Contract) and n.op.role == "context"


def _grow(
    anchor: Node,
    inside: set[Node],
    users: Users,
    order: Mapping[Node, int],
    stored: Set[Node],
    taken: Set[Node],
) -> tuple[set[Node], Node]:
    """The nodes of the anchor's kernel, as many as possible, and the one whose value is used
    outside. The nodes `inside` belong to the kernel in any case.

    In a valid group exactly one node's value is used outside.  So a user that cannot join ends the
    growth: the value that it reads is used outside.
    """
    member = _row(anchor, anchor.op) if isinstance(anchor.op, ops.Reduce) else _epilogue(anchor)
    group = dict.fromkeys((*inside, anchor))
    best, leaving = len(group), anchor
    outside = {m: sum(u not in group for u in users[m]) for m in group}
    ends = {m for m in group if m in stored or outside[m]}
    queued = {*group}
    waiting: list[tuple[int, Node]] = []
    joined: Iterable[Node] = tuple(group)
    while True:
        for u in (u for m in joined for u in users[m] if u not in queued):
            queued.add(u)
            heappush(waiting, (order[u], u))
        if not waiting:
            break
        _, n = heappop(waiting)
        if n in taken or not member(n):
            break
        group[n] = None
        for i in dict.fromkeys(n.inputs):
            if i in outside:
                outside[i] -= 1
                if not outside[i] and i not in stored:
                    ends.discard(i)
        outside[n] = sum(u not in group for u in users[n])
        if n in stored or outside[n]:
            ends.add(n)
        joined = (n,)
        if ends == {n} and not isinstance(n.op, ops.Broadcast):
            best, leaving = len(group), n
        elif n in stored:
            break
    return set(islice(group, best)), leaving


def _epilogue(anchor: Node) -> Callable[[Node], bool]:
    """Elementwise nodes over exactly the contraction's output; axes of extent 1 do not matter."""
    shape = _without_units(anchor.shape)

    def member(n: Node) -> bool:
        if not isinstance(n.op, (ops.Elementwise, ops.Reshape)):
            return False
        return all(_without_units(x.shape) == shape for x in (n, *n.inputs))

    return member


def _row(anchor: Node, op: ops.Reduce) -> Callable[[Node], bool]:
    """Nodes over the reduction's rows, or over rows and columns; axes of extent 1 do not matter.
    Groups of channels may have become channels again."""
    axes, rows, full = op.axes, anchor.shape, anchor.inputs[0].shape
    row, joined = _without_units(rows), {full}

    def member(n: Node) -> bool:
        match n.op:
            case ops.Elementwise():
                return n.shape in joined or _without_units(n.shape) == row
            case ops.Reshape():
                if n.inputs[0].shape == full and joins_rows(n, axes):
                    joined.add(n.shape)
                    return True
                return _without_units(n.shape) == row == _without_units(n.inputs[0].shape)
            case ops.Broadcast():
                return n.shape == full and n.inputs[0].shape == rows
            case ops.Reduce(_, over):
                return over == axes and n.inputs[0].shape == full
        return False

    return member


def _without_units(shape: ops.Shape) -> ops.Shape:
    return tuple(extent for extent in shape if extent > 1)


def _store_shared(
    nodes: Sequence[Node],
    users: Users,
    stored: set[Node],
    kept: Set[Node],
    costly: Set[Node],
) -> None:
    """Stores values that several kernels would compute, and `costly` values that one kernel would
    compute many times; except those in `kept`."""
    free = _counted(nodes)
    kernels: dict[Node, set[Node]] = {}  # for each value, up to two kernels that use it
    repeated: dict[Node, bool] = {}
    for n in reversed(nodes):
        own: set[Node] = set()
        for u in users[n]:
            own |= {u} if u in stored else kernels[u]
            if len(own) > 1:
                break
        kernels[n] = own
        repeated[n] = any(_repeats(u, n) or (u not in stored and repeated[u]) for u in users[n])
        if n in stored or n in kept or n in free or isinstance(n.op, _FREE):
            continue
        if len(own) > 1 or (repeated[n] and n in costly):
            stored.add(n)


def _counted(nodes: Sequence[Node]) -> set[Node]:
    """Values computed from positions and single numbers in a few steps, such as a causal mask:
    computing them again costs no more than a load."""
    found: set[Node] = set()

    def cheap(n: Node) -> bool:
        while isinstance(n.op, ops.VIEWS):
            n = n.inputs[0]
        if isinstance(n.op, ops.Elementwise) and n.constant:
            return all(map(cheap, n.inputs))
        return n in found or n.size == 1 or isinstance(n.op, ops.Iota)

    for n in nodes:
        plain = isinstance(n.op, ops.Elementwise) and n.op.fn not in EXPENSIVE
        if plain and n.size > 1 and n.dtype in CHEAP and all(map(cheap, n.inputs)):
            found.add(n)
    return found


def _repeats(user: Node, n: Node) -> bool:
    """True if this user reads elements of its operand `n` more than once."""
    if isinstance(user.op, ops.Gather):  # one index is used for a whole row
        return n is user.inputs[0] or user.inputs[0].rank > 1
    return isinstance(user.op, (ops.Broadcast, ops.Unfold, ops.Reduce))


def _costly(nodes: Sequence[Node], stored: Set[Node]) -> set[Node]:
    """Values that cost more to compute again from stored values than to load."""
    found: set[Node] = set()
    for n in nodes:
        slow = any(x.dtype not in CHEAP for x in (n, *n.inputs))
        own = isinstance(n.op, ops.Elementwise) and (slow or n.op.fn in EXPENSIVE)
        if own or any(i in found and i not in stored for i in n.inputs):
            found.add(n)
    return found


#: Limits of one kernel.  Its expressions are trees, which the compiler walks by recursion (up to
#: nine calls for a level) and the bundle holds in full.  Each buffer is a parameter, and engines
#: allow 1,000 of them.
DEPTH, SIZE, BUFFERS, STAGES = 64, 4096, 900, 64

#: Levels of recursion that an index read from memory counts for.
GATHERED = 4

#: Up to this number, the parts of a concatenation are tested in sequence; more parts by bisection.
IN_TURN = 16


@dataclass(frozen=True)
class _Extent:
    """The size of the kernel that computes a node.

    depth, size:     of the expression, written out as a tree
    repeats:         how often its largest index may contain an index of the kernel's output
    buffers, stages: the nodes that the kernel loads; the reductions that it runs first
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
    """Adds to `stored` the nodes that limits require, but none in `whole`; True if some were added.

    nodes: all nodes that depend on the graph's inputs, operands first
    """
    before = len(stored)
    known: Extents = {}  # extents of the nodes that are not stored
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
    """Levels that the node adds to an expression; a gathered index counts for several."""
    if isinstance(n.op, ops.Gather):
        return GATHERED
    return _choices(len(n.inputs)) if isinstance(n.op, ops.Concat) else 1


def _choices(parts: int) -> int:
    """The depth of the selection among the parts of a concatenation."""
    return parts if parts <= IN_TURN else 1 + _choices(-(-parts // 2))


def _leaf(n: Node) -> _Extent:
    return _Extent() if literal(n) is not None else _Extent(buffers=frozenset((n,)))


def _smaller(
    n: Node, extent: _Extent, known: Extents, stored: set[Node], whole: Set[Node]
) -> _Extent:
    """The extent of `n` after enough of its largest operands were added to `stored`."""
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
