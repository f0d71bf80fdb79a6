"""Packs what windows read: channels innermost, and the taps of a depthwise kernel by channel.

Input: a node.  Output: the same value from operands that lie in memory as vectors read them, or
None.  Rules for `graph/passes/pack.py`, which owns every choice of layout.
"""

from __future__ import annotations

from tilewright.graph import ops
from tilewright.graph.node import Node, broadcast, node, pad, transpose
from tilewright.graph.passes.integers import NARROW
from tilewright.graph.views import through_views
from tilewright.kernel.index import Index, Var, index


def channels_innermost(n: Node) -> Node | None:
    """contract(windows(pad(x)), w) -> contract(windows(pad(copy of x with channels last)), w)

    Only for what lies in memory in another order, such as the model's input.
    """
    if not isinstance(n.op, ops.Contract) or n.op.role or n.inputs[0].dtype in NARROW:
        return None
    for position, letters in enumerate((n.op.a, n.op.b)):
        operand = n.inputs[position]
        if operand.constant:
            continue
        moved = _channels_last(operand, [c not in n.op.out for c in letters])
        if moved is not None:
            operands = [moved if i == position else x for i, x in enumerate(n.inputs)]
            return node(n.op, *operands, source=n.source)
    return None


def _channels_last(x: Node, summed: list[bool]) -> Node | None:
    """The same view of a copy in which a summed axis comes last, if a window runs there now."""
    axes = tuple(Var(f"i{i}", extent) for i, extent in enumerate(x.shape))
    root, at = through_views(x, tuple(map(index, axes)))
    taps = [v for v, is_summed in zip(axes, summed, strict=True) if is_summed]
    if not at or not _overlap(at[-1], taps):
        return None
    depth = {index(v) for v in taps}
    channels = [i for i in range(root.rank) if root.shape[i] > 1 and at[i] in depth]
    if not channels:
        return None
    perm = [i for i in range(root.rank) if i != channels[-1]] + [channels[-1]]
    back = [perm.index(i) for i in range(root.rank)]
    return _onto(x, root, transpose(_copy(root, perm), back))


def _overlap(at: Index, taps: list[Var]) -> bool:
    """True if neighbouring windows along this axis share elements: pixel * stride + tap."""
    reach = sum(at.coefficient(v) * (v.extent - 1) for v in taps)
    strides = [c for atom, c in at.terms if atom not in taps]
    return bool(strides) and reach >= min(strides)


def _copy(root: Node, perm: list[int]) -> Node:
    """transpose(root), stored; padding stays outermost."""
    if not isinstance(root.op, ops.Pad):
        return node(ops.Realize(), transpose(root, perm))
    before, after = root.op.before, root.op.after
    return pad(
        node(ops.Realize(), transpose(root.inputs[0], perm)),
        [before[p] for p in perm],
        [after[p] for p in perm],
        root.op.value,
    )


def _onto(x: Node, root: Node, new: Node) -> Node:
    """The views of `root` that lead to `x`, of `new` instead."""
    views = []
    while x is not root:
        views.append(x)
        x = x.inputs[0]
    for view in reversed(views):
        new = node(view.op, new, source=view.source)
    return new


def taps_by_channel(n: Node) -> Node | None:
    """sum over taps of (windows * w[c, taps]) -> the same with w stored as [taps, c]"""
    if not isinstance(n.op, ops.Reduce) or n.op.fn != "sum":
        return None
    product = n.inputs[0]
    if not isinstance(product.op, ops.Elementwise) or product.op.fn != "mul":
        return None
    for position, x in enumerate(product.inputs):
        if not isinstance(x.op, ops.Broadcast) or not x.constant or x.inputs[0].size == 1:
            continue
        w, axes = x.inputs[0], n.op.axes
        perm = [*axes, *(i for i in range(w.rank) if i not in axes)]
        if isinstance(w.op, ops.Transpose) or all(w.shape[i] == 1 for i in axes):
            continue
        stored = node(ops.Realize(), transpose(w, perm))
        back = [perm.index(i) for i in range(w.rank)]
        operands = list(product.inputs)
        operands[position] = broadcast(transpose(stored, back), x.shape)
        return node(n.op, node(product.op, *operands, source=product.source), source=n.source)
    return None
