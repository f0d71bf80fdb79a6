"""Packs the weights of every contraction into panels of fixed width.

Input: the layouts that a target asks for.  Output: rules for a rewritten `Graph`, after which each
contraction reads both operands from memory: a weight in panel order, whatever the schedule
(candidates never change a buffer's layout), packed when the bundle is written.  An activation stays
as it lies; a kernel that reads its columns often copies them itself, tile by tile.

    b[k, n]  ->  panels[n // 8, k, n % 8], columns padded with zeros to whole panels
    (q[k, n] - zero) * scale  ->  the integers, and a scale per block (pack_blocks.py)
    b[k, n]  ->  b[n, k] where n < 4 and the other operand is contiguous along k: vectors then run
                 along k
"""

from __future__ import annotations

from functools import partial
from math import prod
from string import ascii_letters

from tilewright.graph import ops
from tilewright.graph.node import (
    Node,
    contract,
    node,
    pad,
    reshape,
    slice_,
    transpose,
)
from tilewright.graph.ops import Shape
from tilewright.graph.passes.integers import NARROW
from tilewright.graph.passes.pack_blocks import from_blocks, pack_blocks
from tilewright.graph.passes.pack_dot import pack_integers
from tilewright.graph.passes.pack_windows import channels_innermost, taps_by_channel
from tilewright.graph.rewrite import RuleFn
from tilewright.graph.scan import Scan
from tilewright.graph.views import by_stride, is_affine, is_packed, stored, strides, window
from tilewright.kernel.layout import Packing, Panels


def rules(packing: Packing) -> tuple[RuleFn, ...]:
    """Give every contraction weights as `packing` says, and operands that lie in memory."""
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
    """Both operands with a summed axis in parts again, if `a` is then read where it lies.

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
    # the reduction runs as the row operand lies in memory, so that its reads are contiguous
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
