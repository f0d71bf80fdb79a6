"""Folds scales into weights, so that a batch norm after a convolution costs nothing at run time.

Input: a rewritten `Graph`.  Output: a `Graph` with the same outputs up to rounding.

    contract(x, w) * s          ->  contract(x, w * s)
    (contract(x, w) + b) * s    ->  contract(x, w * s) + b * s

It applies to constant w, b and s with one s per column, if nothing else reads the unscaled product
and w is not quantised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tilewright.graph import ops
from tilewright.graph.constants import weights
from tilewright.graph.node import (
    Graph,
    Node,
    broadcast,
    elementwise,
    node,
    reshape,
    transpose,
)


def fold_scales(graph: Graph) -> Graph:
    """The graph in which weights include the constant scales of their contractions."""
    users = Counter(i for n in graph.nodes() for i in n.inputs)
    users.update(n for _, n in graph.outputs)
    done: dict[Node, Node] = {}
    for n in graph.nodes():
        folded = _folded(n, users, done)
        if folded is None:
            inputs = [done[i] for i in n.inputs]
            same = all(new is old for new, old in zip(inputs, n.inputs, strict=True))
            folded = n if same else node(n.op, *inputs, source=n.source)
        done[n] = folded
    return Graph(graph.name, graph.inputs, tuple((name, done[n]) for name, n in graph.outputs))


def _folded(n: Node, users: Mapping[Node, int], done: Mapping[Node, Node]) -> Node | None:
    if not _is(n, "mul"):
        return None
    for made, scale in (n.inputs, n.inputs[::-1]):
        if not scale.constant or users[made] > 1:
            continue
        if not _is(made, "add"):
            scaled = _scaled(made, scale, done)
            if scaled is not None:
                return scaled
            continue
        for product, bias in (made.inputs, made.inputs[::-1]):
            scaled = _scaled(product, scale, done) if users[product] == 1 else None
            if scaled is not None and bias.constant:
                moved = elementwise("mul", bias, scale)
                return elementwise("add", scaled, moved, source=made.source)
    return None


def _is(n: Node, fn: str) -> bool:
    return isinstance(n.op, ops.Elementwise) and n.op.fn == fn


def _scaled(n: Node, scale: Node, done: Mapping[Node, Node]) -> Node | None:
    """The contraction with a weight times `scale`, if the scale only follows the weight's axes."""
    if not isinstance(n.op, ops.Contract):
        return None
    scale = scale.inputs[0] if isinstance(scale.op, ops.Broadcast) else scale
    extents = {c: e for c, e in zip(n.op.out, scale.shape, strict=True) if e > 1}
    for position, letters in enumerate((n.op.a, n.op.b)):
        weight = n.inputs[position]
        if not extents or not weight.constant or not extents.keys() <= set(letters):
            continue
        if weights(weight) is not None:  # quantised weights are not changed
            continue
        # the scale's axes in the order of the weight's, all others with extent 1
        order = [[*extents].index(c) for c in letters if c in extents]
        line = transpose(reshape(scale, tuple(extents.values())), order)
        spread = broadcast(reshape(line, [extents.get(c, 1) for c in letters]), weight.shape)
        operands = [done[i] for i in n.inputs]
        operands[position] = elementwise("mul", weight, spread)
        return node(n.op, *operands, source=n.source)
    return None
