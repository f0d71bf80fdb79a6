"""Packs the operands of integer contractions into groups that one dot instruction takes.

Input: a contraction of 8-bit or 16-bit integers.  Output: the same, its summed axis split into
groups of 4 bytes (4 of 8 bits, 2 of 16), the column operand in panels of whole groups:

    a[m, k], b[k, n]   ->  a[m, k // 4, k % 4],  panels[n // 8, k // 4, n % 8, k % 4]
    windows[c, t, u], w[c, t, u]   ->  w[u, t // 4, c, t % 4]      depthwise: a window per channel

What pads the summed axis meets weights of zero.  A constant whose weights stay in 7 bits is told
apart later, by its values (see specs.py).
"""

from __future__ import annotations

from math import prod
from string import ascii_letters

from tilewright.base.dtypes import I8, I16, U8
from tilewright.graph import ops
from tilewright.graph.node import Node, contract, node, pad, reshape, slice_, transpose
from tilewright.graph.views import by_stride, is_packed, stored, strides
from tilewright.kernel.layout import Groups, Packing, Taps

#: The letters of a contraction, and its operands.
_Contraction = tuple[str, Node, Node]


def pack_integers(n: Node, packing: Packing) -> Node | None:
    """contract(a, b) -> contract(stored groups of a, view of the packed b)"""
    if not isinstance(n.op, ops.Contract) or n.inputs[0].dtype not in (I8, U8, I16) or not n.op.out:
        return None
    if any(is_packed(x) for x in n.inputs):
        return None
    (a, la), (b, lb) = (n.inputs[0], n.op.a), (n.inputs[1], n.op.b)
    last = n.op.out[-1]
    if last in la and (last not in lb or a.constant):
        (a, la), (b, lb) = (b, lb), (a, la)
    summed = [c for c in la if c in lb and c not in n.op.out]
    alone = any(c not in n.op.out and not (c in la and c in lb) for c in la + lb)
    if not summed or alone or last not in lb:
        return _plain(n, n.op)
    if last in la:
        text, x, y = _depthwise(n.op, a, la, b, lb, summed, packing.taps)
    else:
        text, x, y = _matrix(n.op, a, la, b, lb, summed, packing.integers)
    return contract(text, x, y, source=n.source)


def _plain(n: Node, op: ops.Contract) -> Node | None:
    """No packed form: both operands in memory."""
    a, b = map(stored, n.inputs)
    same = a is n.inputs[0] and b is n.inputs[1]
    return None if same else contract(f"{op.a},{op.b}->{op.out}", a, b, source=n.source)


def _matrix(
    op: ops.Contract, a: Node, la: str, b: Node, lb: str, summed: list[str], layout: Groups
) -> _Contraction:
    group = layout.bytes // a.dtype.size
    rows = stored(a)
    steps = strides(rows, la)
    inner = next((c for c in summed if steps[c] == 1), "")
    if not inner:
        inner = max(summed, key=lambda c: a.shape[la.index(c)])
        order = la.replace(inner, "") + inner
        la, rows = order, node(ops.Realize(), transpose(a, [la.index(c) for c in order]))
    missing = -b.shape[lb.index(inner)] % group
    if missing:
        at = la.index(inner)
        rows = stored(_grown(rows, at, rows.shape[at] + missing))
        b = pad(b, (0,) * b.rank, [missing if c == inner else 0 for c in lb])
    fresh = next(c for c in ascii_letters if c not in la + lb)

    def split(x: Node, letters: str) -> tuple[Node, str]:
        at = letters.index(inner)
        count = x.shape[at] // group
        shape = (*x.shape[:at], count, group, *x.shape[at + 1 :])
        return reshape(x, shape), letters.replace(inner, inner + fresh)

    rows, la = split(rows, la)
    b, lb = split(b, lb)
    batch = [c for c in lb if c in op.out and c in la]
    depth = [c for c in by_stride(rows, la) if c in lb and c not in op.out and c != fresh]
    columns = [c for c in op.out if c in lb and c not in la]
    panels, order = _panels(b, lb, batch, columns, depth, fresh, layout)
    return f"{la},{order}->{op.out}", rows, panels


def _grown(x: Node, axis: int, extent: int) -> Node:
    """x with a longer axis, whose new elements are anything: they meet weights of zero.

    A window reads on in memory; what it reads past the end is padding.
    """
    match x.op:
        case ops.Transpose(perm):
            return transpose(_grown(x.inputs[0], perm[axis], extent), perm)
        case ops.Unfold(along, _, _, _) if axis not in (along, x.rank - 1):
            return node(x.op, _grown(x.inputs[0], axis, extent))
        case ops.Unfold(along, _, stride, 1) if axis == x.rank - 1:
            source = x.inputs[0]
            needed = (x.shape[along] - 1) * stride + extent
            if needed > source.shape[along]:
                source = _end(source, along, needed)
            return node(ops.Unfold(along, extent, stride, 1), source)
        case _:
            return _end(x, axis, extent)


def _end(x: Node, axis: int, extent: int) -> Node:
    after = [extent - x.shape[axis] if i == axis else 0 for i in range(x.rank)]
    return node(ops.Realize(), pad(x, (0,) * x.rank, after))


def _panels(
    b: Node,
    letters: str,
    batch: list[str],
    columns: list[str],
    depth: list[str],
    inner: str,
    layout: Groups,
) -> tuple[Node, str]:
    """(view of the packed operand, its letters): batch, depth, group, columns"""
    order = [*batch, *depth, inner, *columns]
    x = transpose(b, [letters.index(c) for c in order])
    wide = x.shape[len(order) - len(columns) :]
    extent, width = prod(wide), layout.width
    panels = -(-extent // width)
    x = reshape(x, (*x.shape[: len(order) - len(columns)], extent))
    x = pad(x, (0,) * x.rank, (0,) * (x.rank - 1) + (panels * width - extent,))
    x = reshape(x, (*x.shape[:-1], panels, width))
    head, mid = len(batch), len(batch) + len(depth)
    there = [*range(head), mid + 1, *range(head, mid), mid + 2, mid]
    copied = node(ops.Realize(layout), transpose(x, there))
    back = [there.index(i) for i in range(x.rank)]
    flat = reshape(transpose(copied, back), (*x.shape[:-2], panels * width))
    view = slice_(flat, (0,) * flat.rank, (*flat.shape[:-1], extent))
    return reshape(view, (*view.shape[:-1], *wide)), "".join(order)


def _depthwise(
    op: ops.Contract, a: Node, la: str, b: Node, lb: str, summed: list[str], layout: Taps
) -> _Contraction:
    """Weights of four taps of one channel lie side by side: taps of one column, if there are."""
    group = layout.bytes // a.dtype.size
    column = next((c for c in summed if b.shape[lb.index(c)] > 1), summed[0])
    order = [*(c for c in summed if c != column), column, *(c for c in lb if c not in summed)]
    x = transpose(b, [lb.index(c) for c in order])
    at = len(summed) - 1
    outer, taps, others = x.shape[:at], x.shape[at], x.shape[at + 1 :]
    groups = -(-taps // group)
    x = pad(x, (0,) * x.rank, [groups * group - taps if i == at else 0 for i in range(x.rank)])
    x = reshape(x, (*outer, groups, group, *others))
    there = [*range(at + 1), *range(at + 2, x.rank), at + 1]
    copied = node(ops.Realize(layout), transpose(x, there))
    back = transpose(copied, [there.index(i) for i in range(x.rank)])
    flat = reshape(back, (*outer, groups * group, *others))
    view = slice_(flat, (0,) * flat.rank, (*outer, taps, *others))
    return f"{la},{''.join(order)}->{op.out}", stored(a), view
