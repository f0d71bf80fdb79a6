"""Packs the column operand of every contraction into panels of fixed width.

Input: a rewritten `Graph`.  Output: a `Graph` in which each contraction reads its column operand
from memory in panel order, whatever the schedule: candidates never change a buffer's layout.
A packed weight is computed when the bundle is written; a packed activation is one more copy kernel.

    b[k, n]  ->  panels[n // 8, k, n % 8], columns padded with zeros to whole panels
"""

from __future__ import annotations

from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    contract,
    node,
    pad,
    reshape,
    slice_,
    transpose,
)
from tilewright.graph.rewrite import rewrite
from tilewright.graph.views import through_views
from tilewright.kernel.index import Var, flatten, index

#: Columns of a panel.  A wider register tile reads several panels.
PANEL = 8


def pack(graph: Graph) -> Graph:
    """Give every contraction a packed column operand and a row operand that lies in memory."""
    return rewrite(graph, (_pack_contraction,))


def _pack_contraction(n: Node) -> Node | None:
    """contract(a, b) -> contract(stored(a), view(panels(b)))"""
    if not isinstance(n.op, ops.Contract):
        return None
    (a, la), (b, lb) = (n.inputs[0], n.op.a), (n.inputs[1], n.op.b)
    last = n.op.out[-1] if n.op.out else ""
    if last and last in la and last not in lb:
        (a, la), (b, lb) = (b, lb), (a, la)
    columns = last if last in lb and last not in la else ""
    packed = _panels(b, lb, la, n.op.out, columns) if columns else (_stored(b), lb)
    rows = _stored(a)
    if rows is a and packed[0] is b:
        return None
    return contract(f"{la},{packed[1]}->{n.op.out}", rows, packed[0], source=n.source)


def _is_packed(x: Node) -> bool:
    """True for the view of panels that `_panels` makes."""
    while isinstance(x.op, (ops.Slice, ops.Reshape, ops.Transpose)):
        x = x.inputs[0]
    return isinstance(x.op, ops.Realize)


def _panels(b: Node, labels: str, other: str, out: str, columns: str) -> tuple[Node, str]:
    """(view of the packed operand, its letters): batch letters, then the reduction, then columns"""
    if _is_packed(b):
        return b, labels
    batch = [c for c in labels if c in other and c in out]
    # the reduction runs in the row operand's order, whose reads it makes contiguous
    depth = [c for c in other if c in labels and c not in out]
    order = [*batch, *depth, columns]
    x = transpose(b, [labels.index(c) for c in order])
    extent = x.shape[-1]
    panels = -(-extent // PANEL)
    x = pad(x, (0,) * x.rank, (0,) * (x.rank - 1) + (panels * PANEL - extent,))
    x = reshape(x, (*x.shape[:-1], panels, PANEL))
    head, tail = len(batch), len(batch) + len(depth)
    there = [*range(head), tail, *range(head, tail), tail + 1]
    stored = node(ops.Realize(), transpose(x, there))
    back = [*range(head), *range(head + 1, tail + 1), head, tail + 1]
    view = transpose(stored, back)
    flat = reshape(view, (*view.shape[:-2], panels * PANEL))
    return slice_(flat, (0,) * flat.rank, (*flat.shape[:-1], extent)), "".join(order)


def _stored(x: Node) -> Node:
    """x itself if plain strides reach it in its root's memory, else a copy in its own order."""
    axes = tuple(index(Var(f"i{axis}", extent)) for axis, extent in enumerate(x.shape))
    root, at = through_views(x, axes)
    if flatten(at, root.shape).is_affine:
        return x
    return node(ops.Realize(), x)
