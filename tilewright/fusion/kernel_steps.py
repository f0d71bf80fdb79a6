"""The steps of a plan, and how the body of a Scan becomes many of them.

Input: the steps of a body.  Output: `length` times as many steps, which share their kernels and
differ in where they read and write.  States are never copied: a new state is written to the place
where it will be read.  A state of the loop is stored in one of two ways:

    h is part of a result r:   h[i] = f(h[i-1], x[i]) reads r + (i-1)*size, writes r + i*size
    c is part of no result:    two places alternate, and the last iteration writes the final one
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.base.errors import required
from tilewright.graph import ops
from tilewright.graph.node import Graph, ModelNode, Node, node
from tilewright.graph.scan import Scan, iteration_index
from tilewright.graph.views import window
from tilewright.kernel.spec import Kernel
from tilewright.plan import Check

StoredAt = tuple[Node, int]  # a stored node and the element of it where something begins


@dataclass(frozen=True)
class KernelStep:
    """One kernel of the plan: what it computes, the node it stores to, the nodes it reads.

    Several steps may store to one node: each part of a concatenation, the inside and the border of
    a padded tensor, each iteration of a loop.  Together they store every element once.

    offsets: for the output, then for each input, the element of the node at which the kernel's
             buffer begins.  Only inside a Scan a buffer is a part of a node.
    products: names of the ONNX nodes of its products; two for attention
    checks: the kernel's checked indices, by their numbers
    """

    kernel: Kernel
    output: Node
    inputs: tuple[Node, ...]
    source: ModelNode
    offsets: tuple[int, ...]
    products: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()


def distinct(op: Scan) -> tuple[Graph, tuple[Node, ...]]:
    """The body in which each part of the scan's value has a stored node of its own, and which of
    these nodes only copy a constant.

    A model's outputs may share a node; a scan's parts may not.
    """
    found: dict[object, Node] = {}
    taken: set[Node] = set()
    for (_, n), part in zip(op.body.outputs, op.parts, strict=True):
        if part in found:
            continue
        leaf = n.constant or isinstance(n.op, ops.Input)
        found[part] = node(ops.Realize(), n) if leaf or n in taken else n
        taken.add(n)
    pairs = zip(op.body.outputs, op.parts, strict=True)
    outputs = tuple((name, found[part]) for (name, _), part in pairs)
    copies = tuple(n for n in found.values() if n.constant and n.size)
    return Graph(op.body.name, op.body.inputs, outputs), copies


def unrolled(
    scan: Node, op: Scan, body: Graph, steps: Sequence[KernelStep]
) -> Iterator[KernelStep]:
    """The body's steps, repeated for each iteration, in order."""
    inputs = [n for _, n in body.inputs]
    outputs = [n for _, n in body.outputs]
    given = [_stored_at(n) for n in scan.inputs]
    end = op.states + len(op.backward)
    states = given[: op.states]
    for i in range(op.length):
        places: dict[Node, StoredAt] = dict(zip(inputs[end:], given[end:], strict=True))
        places |= zip(inputs[: op.states], states, strict=True)
        for n, (root, at), back in zip(
            inputs[op.states :], given[op.states : end], op.backward, strict=False
        ):
            places[n] = root, at + n.size * iteration_index(i, op.length, back)
        last = (op.length - 1 - i) % 2 == 0
        made: list[StoredAt] = [
            (scan, part.at(i, op.length)) if part.many or last else (mine, 0)
            for part, mine in zip(op.parts, (*inputs[: op.states], *outputs), strict=False)
        ]
        places |= zip(outputs, made, strict=True)
        yield from (_placed(step, places) for step in steps)
        # Two states with the same value are stored once.
        states = [places[n] for n in outputs[: op.states]]


def _stored_at(x: Node) -> StoredAt:
    return required(window(x), "it does not lie in one piece", node=x)


def _placed(step: KernelStep, places: Mapping[Node, StoredAt]) -> KernelStep:
    """The step with the body's inputs and outputs replaced by the nodes that they stand for."""
    spots = [
        (root, at + offset)
        for n, offset in zip((step.output, *step.inputs), step.offsets, strict=True)
        for root, at in (places.get(n, (n, 0)),)
    ]
    roots, offsets = zip(*spots, strict=True)
    return replace(step, output=roots[0], inputs=roots[1:], offsets=offsets)
