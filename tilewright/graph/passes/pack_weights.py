"""Packs the operands of contractions in the layouts that kernels read: weights in panels.

Input: the layouts that a target asks for.  Output: rules for a rewritten `Graph`, after which each
contraction reads both operands from memory.  A weight is stored in panel order, packed when the
bundle is written; candidates never change its layout.  An activation keeps its layout; a kernel
that reads its columns many times copies them itself, tile by tile.

    b[k, n]  ->  panels[n // 8, k, n % 8], columns padded with zeros to whole panels
    (q[k, n] - zero) * scale  ->  the integers, and a scale per block (pack_quantised.py)
    b[k, n]  ->  b[n, k] where n < 4 and the other operand is contiguous along k: vectors then run
                 along k

Integers of 8 or 16 bits are stored in groups that one dot instruction reads: the summed axis is
split into groups of 4 bytes (4 of 8 bits, 2 of 16), and the column operand is in panels of whole
groups. Padding of the summed axis is multiplied by weights of zero.

    a[m, k], b[k, n]   ->  a[m, k // 4, k % 4],  panels[n // 8, k // 4, n % 8, k % 4]
    windows[c, t, u], w[c, t, u]   ->  w[u, t // 4, c, t % 4]      depthwise: a window per channel

Tensors that windows read are stored with channels innermost; the taps of a depthwise kernel are
stored by channel.
"""

from __future__ import annotations

from functools import partial
from math import prod
from string import ascii_letters

from tilewright.base.dtypes import I8, I16, U8
from tilewright.graph import ops
from tilewright.graph.node import (
    Node,
    broadcast,
    contract,
    node,
    pad,
    reshape,
    slice_,
    transpose,
)
from tilewright.graph.ops import Shape
from tilewright.graph.passes.integer_arithmetic import NARROW
from tilewright.graph.passes.pack_quantised import from_blocks, pack_blocks
from tilewright.graph.rewrite import RuleFn
from tilewright.graph.scan import Scan
from tilewright.graph.views import (
    by_stride,
    is_affine,
    is_packed,
    stored,
    strides,
    through_views,
    window,
)
from tilewright.kernel.index import Index, Var, index
from tilewright.kernel.layout import Groups, Packing, Panels, Taps


def rules(packing: Packing) -> tuple[RuleFn, ...]:
    """The rules that give each contraction weights in the layouts of `packing`, and stored
    operands."""
    return (
        channels_innermost,
        taps_by_channel,
        partial(pack_blocks, packing=packing),
        partial(_pack_contraction, packing=packing),
        partial(pack_integers, packing=packing),
        _pack_scan,
    )


def _pack_contraction(n: Node, packing: Packing) -> Node | None:
    """contract(a, b) -> contract(stored(a), view(panels(b))); attention packs nothing"""
    if not isinstance(n.op, ops.Contract) or n.op.role or n.inputs[0].dtype in NARROW:
        return None
    if any(map(from_blocks, n.inputs)):
        return None
    (a, la), (b, lb) = (n.inputs[0], n.op.a), (n.inputs[1], n.op.b)
    last = n.op.out[-1] if n.op.out else ""
    if last and last in la and last not in lb:
        (a, la), (b, lb) = (b, lb), (a, la)
    columns = last if last in lb and last not in la else ""
    split = _unmerge(a, la, b, lb, n.op.out)
    if split is not None:
        (a, la), (b, lb) = split
    rows = stored(a)
    packed = (stored(b), lb)
    if columns and b.constant:
        packed = _packed(b, lb, rows, la, n.op.out, columns, packing)
    if rows is a and packed[0] is b and split is None:
        return None
    return contract(f"{la},{packed[1]}->{n.op.out}", rows, packed[0], source=n.source)


def _pack_scan(n: Node) -> Node | None:
    """scan(transpose(x)) -> scan(stored(transpose(x))): an iteration reads one piece of memory"""
    if not isinstance(n.op, Scan):
        return None
    whole = [x if window(x) is not None else node(ops.Realize(), x) for x in n.inputs]
    return None if whole == list(n.inputs) else node(n.op, *whole, source=n.source)


def _unmerge(
    a: Node, la: str, b: Node, lb: str, out: str
) -> tuple[tuple[Node, str], tuple[Node, str]] | None:
    """Both operands with a summed axis split into the parts that a reshape merged, if `a` can then
    be read without a copy.

    contract("mk,kn->mn", reshape(transpose(x)), w) -> contract("mhd,hdn->mn", transpose(x), w')
    """
    if not isinstance(a.op, ops.Reshape) or is_affine(a):
        return None
    groups = _merged(a.inputs[0].shape, a.shape)
    if groups is None:
        return None
    fresh = iter(c for c in ascii_letters if c not in la + lb + out)
    parts = {
        c: tuple(zip(fresh, group, strict=False))
        for c, group in zip(la, groups, strict=True)
        if len(group) > 1 and c in lb and c not in out
    }

    def split(x: Node, letters: str) -> tuple[Node, str]:
        pairs = [
            pair
            for c, extent in zip(letters, x.shape, strict=True)
            for pair in parts.get(c, ((c, extent),))
        ]
        return reshape(x, [n for _, n in pairs]), "".join(c for c, _ in pairs)

    rows, letters = split(a, la)
    rows = reshape(a.inputs[0], rows.shape)
    return ((rows, letters), split(b, lb)) if parts and is_affine(rows) else None


def _merged(old: Shape, new: Shape) -> list[tuple[int, ...]] | None:
    """The axes of `old` (longer than 1) that each axis of `new` merges; None if it also splits."""
    left = [n for n in old if n > 1]
    groups: list[tuple[int, ...]] = []
    for extent in new:
        group: list[int] = []
        while prod(group) < extent and left:
            group.append(left.pop(0))
        if prod(group) != extent:
            return None
        groups.append(tuple(group))
    return groups


def _packed(
    b: Node, labels: str, rows: Node, row_labels: str, out: str, columns: str, packing: Packing
) -> tuple[Node, str]:
    """(view of the packed weight, its letters)"""
    if is_packed(b):
        return b, labels
    batch = [c for c in labels if c in out and c != columns]
    # the reduction follows the row operand's order in memory, so that its reads are contiguous
    depth = [c for c in by_stride(rows, row_labels) if c in labels and c not in out]
    alone = [c for c in labels if c not in row_labels and c not in out]
    extent = b.shape[labels.index(columns)]
    if extent < packing.few and depth and not alone and strides(rows, row_labels)[depth[-1]] == 1:
        order = [*batch, columns, *depth]
        return node(ops.Realize(), transpose(b, [labels.index(c) for c in order])), "".join(order)
    order = [*batch, *depth, *alone, columns]
    x = transpose(b, [labels.index(c) for c in order])
    return _panels(x, len(batch), packing.floats), "".join(order)


def _panels(x: Node, head: int, layout: Panels) -> Node:
    """x[batch.., depth.., n] as a view of panels[batch.., n // 8, depth.., n % 8]"""
    extent, width = x.shape[-1], layout.width
    panels = -(-extent // width)
    flat_shape = x.shape
    x = pad(x, (0,) * x.rank, (0,) * (x.rank - 1) + (panels * width - extent,))
    x = reshape(x, (*x.shape[:-1], panels, width))
    tail = x.rank - 2
    there = [*range(head), tail, *range(head, tail), tail + 1]
    copied = node(ops.Realize(layout), transpose(x, there))
    back = [*range(head), *range(head + 1, tail + 1), head, tail + 1]
    view = transpose(copied, back)
    flat = reshape(view, (*view.shape[:-2], panels * width))
    return slice_(flat, (0,) * flat.rank, flat_shape)


def channels_innermost(n: Node) -> Node | None:
    """contract(windows(pad(x)), w) -> contract(windows(pad(copy of x with channels last)), w)

    Only for tensors that are stored in another order, such as the model's input.
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
    """The view `x` on a copy in which a summed axis is innermost, if windows run along the
    innermost axis now; else None."""
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
    """The views that lead from `root` to `x`, applied to `new`."""
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
    """The contraction with both operands stored in memory, without a packed form."""
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
    panels, order = _integer_panels(b, lb, batch, columns, depth, fresh, layout)
    return f"{la},{order}->{op.out}", rows, panels


def _grown(x: Node, axis: int, extent: int) -> Node:
    """x with a longer axis.  The values of the new elements do not matter, since weights of zero
    multiply them.

    A window becomes longer by reading more elements of its tensor; after its end it reads padding.
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


def _integer_panels(
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
    """The operands with four taps of each channel adjacent; if possible, taps of one column."""
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
