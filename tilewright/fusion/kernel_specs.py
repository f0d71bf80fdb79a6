"""Kernel specifications from a fused graph: one `Kernel` per stored node.

Input: the nodes that `fuse` stores, and the places from `place_in_hosts`.  Output: `KernelStep`s: a
kernel in normal form and the nodes whose buffers it reads and writes.  Equal parts of graphs share
a kernel.  If another kernel stores the inside of a padded tensor, only its border is filled.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.errors import CompilerBug
from tilewright.base.model_limits import check_limit
from tilewright.fusion.expressions import AXES, ExpressionBuilder
from tilewright.fusion.fuse import fuse
from tilewright.fusion.kernel_steps import KernelStep, distinct, unrolled
from tilewright.fusion.regions import Region, StoredNodes, buffer_of, place_in_hosts, region_of
from tilewright.graph import ops
from tilewright.graph.constants import kernel_constants
from tilewright.graph.extent_tracing import NO_EXTENTS, Extents
from tilewright.graph.node import Graph, Node
from tilewright.graph.passes.find_attention import scored
from tilewright.graph.scan import Scan
from tilewright.kernel.collapse import collapse
from tilewright.kernel.expr import Const, Load
from tilewright.kernel.index import Index, Var, flatten, index
from tilewright.kernel.spec import Buffer, Kernel, check
from tilewright.plan import Check


@dataclass(frozen=True)
class _RegionKernel:
    """A kernel, and the nodes of its region that a step needs.

    loads:   positions among the region's hosts, in the order of the kernel's buffers
    anchors: positions among the region's nodes of the reductions that became stages
    checks:  positions of the nodes whose indices the kernel checks, by check number
    """

    kernel: Kernel
    loads: tuple[int, ...]
    anchors: tuple[int, ...]
    checks: tuple[int, ...]


#: The kernels of all regions so far, by key: equal layers share one.
RegionKernels = dict[object, _RegionKernel]


def kernel_steps(
    graph: Graph,
    stored: tuple[Node, ...],
    known: RegionKernels | None = None,
    extents: Extents = NO_EXTENTS,
) -> tuple[KernelStep, ...]:
    """A step per stored node, in an order that respects dependencies.

    Outputs that are inputs or constants need no step: they are in memory from the start.  Graphs
    that share `known` share equal kernels.
    """
    kept, known = set(stored), {} if known is None else known
    places, scores = place_in_hosts(graph, stored), scored(graph, kept)
    memory = StoredNodes(kept, places, scores, kernel_constants(graph), extents)
    steps: list[KernelStep] = []
    for n in stored:
        steps += _steps(n, memory, known)
        check_limit("steps", len(steps), "the number of steps", **n.source.facts)
    return tuple(steps)


def _steps(n: Node, memory: StoredNodes, known: RegionKernels) -> list[KernelStep]:
    """The steps that store those parts of `n` that no other step stores."""
    if isinstance(n.op, Scan):
        body, copies = distinct(n.op)
        once = kernel_steps(body, (*fuse(body), *copies), known)
        check_limit(
            "steps", n.op.length * len(once), "the number of steps of a loop", **n.source.facts
        )
        return list(unrolled(n, n.op, body, once))
    places = memory.places
    if isinstance(n.op, ops.Update):
        return [_copy(n, n.inputs[0], memory), _step(n, memory, known)]
    if not any(i in places and places[i].host is n for i in n.inputs):
        return [_step(n, memory, known)]
    if not isinstance(n.op, ops.Pad):
        return []
    return [_border(n, n.op, axis, memory) for axis in range(n.rank) if _margin(n.op, axis)]


def _step(n: Node, memory: StoredNodes, known: RegionKernels) -> KernelStep:
    region = region_of(n, memory)
    if region.key not in known:
        known[region.key] = _made(n, memory, region)
    made = known[region.key]
    inputs = tuple(region.hosts[i] for i in made.loads)
    anchors = [region.nodes[i] for i in made.anchors]
    source = next(filter(None, (x.source for x in anchors)), n.source)
    products = tuple(x.source.node for x in anchors if isinstance(x.op, ops.Contract))
    checks = tuple(_check(region.nodes[i]) for i in made.checks)
    host, _ = memory.spot(n, (Index(),) * n.rank)
    return KernelStep(made.kernel, host, inputs, source, (0,) * (1 + len(inputs)), products, checks)


def _copy(n: Node, source: Node, memory: StoredNodes) -> KernelStep:
    """A step that copies the stored node `source` into `n`, of the same shape."""
    axes = tuple(Var(AXES[i], extent) for i, extent in enumerate(n.shape))
    (host, at), (other, there) = (memory.spot(x, tuple(map(index, axes))) for x in (n, source))
    size = "x".join(str(extent) for extent in n.shape if extent > 1)
    kernel = Kernel(
        f"copy_{size}", axes, (), Load(1, flatten(there, other.shape), n.dtype),
        flatten(at, host.shape), (Buffer(n.dtype, host.size), buffer_of(other)),
    )  # fmt: skip
    return KernelStep(collapse(kernel), host, (other,), n.source, (0, 0))


def _made(n: Node, memory: StoredNodes, region: Region) -> _RegionKernel:
    maker = ExpressionBuilder(n, memory)
    kernel = collapse(maker.kernel())
    check(kernel)
    hosts = {host: i for i, host in enumerate(region.hosts)}
    nodes = {node: i for i, node in enumerate(region.nodes)}
    loads = tuple(hosts[host] for host in maker.buffers)
    anchors, checks = (tuple(map(nodes.__getitem__, x)) for x in (maker.anchors, maker.checked))
    return _RegionKernel(kernel, loads, anchors, checks)


def _check(n: Node) -> Check:
    """Facts for the error message if an index of this gather or update is out of range."""
    if not isinstance(n.op, ops.Gather | ops.Update):
        raise CompilerBug("nothing that is read or written at an index", node=n)
    own, told, length = n.op.axis, n.source.axis, n.inputs[0].shape[n.op.axis]
    if told is None:
        return Check(n.source.node, n.source.op, own, length)
    return Check(n.source.node, n.source.op, told, length, -length)


def _margin(op: ops.Pad, axis: int) -> int:
    return op.before[axis] + op.after[axis]


def _border(n: Node, op: ops.Pad, axis: int, memory: StoredNodes) -> KernelStep:
    """Fills the padding along `axis`, over all axes after it and the inside of those before it.

    Positions 0, 1, .. of the border are first the elements before the inside, then those after it.
    """
    inside, (before, after) = n.inputs[0].shape, (op.before, op.after)
    axes, at = [], []
    for i, extent in enumerate(n.shape):
        own = _margin(op, i) if i == axis else inside[i] if i < axis else extent
        axes.append(Var(AXES[i], own))
        at.append(index(axes[i]) + (before[i] if i < axis else 0))
    longer = max(before[axis], after[axis])
    behind = (at[axis] + (longer - before[axis])) // longer
    at[axis] = at[axis] + behind * inside[axis]
    host, where = memory.spot(n, tuple(at))
    size = "x".join(str(extent) for extent in n.shape if extent > 1)
    kernel = Kernel(
        f"border_{size}", tuple(axes), (), Const(op.value, n.dtype), flatten(where, host.shape),
        (Buffer(n.dtype, host.size),),
    )  # fmt: skip
    return KernelStep(collapse(kernel), host, (), n.source, (0,))
