"""Keeps quantised weights of real products as integers, with a scale for each block.

Input: a contraction of f32 with a constant operand (q - zero) * scale, where q has small integers.
Output: the same over blocks of the summed axis.  The integers are stored in the target's layout
(`Blocks`) and the weight is computed where it is used, so no f32 weight is ever stored.

    contract(a[m, k], w[k, n])
    ->  contract(a[m, b, j, i],  (f32(nibble(words[n // 8, b, j, n % 8], 4 * i)) - zero) * scale)

4-bit integers are unsigned in memory: signed ones are stored as q + 8 with zero + 8.  A summed axis
that does not fill whole blocks is padded; the activations there are 0. Weights of convolutions are
converted to f32 when hosts load them (graph/constants.py).
"""

from __future__ import annotations

from dataclasses import replace
from string import ascii_letters

import numpy as np

from tilewright.base.dtypes import F32, I8, I32, I64, U8
from tilewright.graph import ops
from tilewright.graph.constants import QuantisedWeight, is_call, weights
from tilewright.graph.node import (
    Node,
    broadcast,
    cast,
    computed,
    constant,
    contract,
    elementwise,
    fact,
    literal,
    node,
    pad,
    reduce,
    reshape,
    slice_,
    transpose,
)
from tilewright.graph.views import stored, strides, through_views
from tilewright.kernel.index import Atom, Div, Var, flatten, index
from tilewright.kernel.layout import Blocks, Packing, Panels

#: Integers of 4 bits in a word of 32 bits.
NIBBLES = 8


@fact(lambda n: n.inputs if isinstance(n.op, (*ops.VIEWS, ops.Elementwise)) else ())
def from_blocks(n: Node, operands: list[bool]) -> bool:
    """True for a node that kernels compute from packed integers."""
    return any(operands) or any(
        isinstance(i.op, ops.Realize) and isinstance(i.op.layout, Blocks) for i in n.inputs
    )


def pack_blocks(n: Node, packing: Packing) -> Node | None:
    """contract(a, (q - zero) * scale) -> contract(blocks of a, the same of packed integers)"""
    if not isinstance(n.op, ops.Contract) or n.op.role or not n.op.out or n.dtype != F32:
        return None
    (a, la), (b, lb) = (n.inputs[0], n.op.a), (n.inputs[1], n.op.b)
    column = n.op.out[-1]
    if column in la:
        (a, la), (b, lb) = (b, lb), (a, la)
    summed = [c for c in lb if c != column]
    rows = [c for c in la if c not in summed]
    plain = column in lb and column not in la and not set(summed) & set(n.op.out)
    if not plain or not set(summed) <= set(la) or a.constant or set(rows) - set(n.op.out):
        return None
    # windows would be copied out of their image to lie along memory
    found = None if from_blocks(b) or _slides(a) else weights(b)
    if found is None:
        return None
    order = [lb.index(c) for c in (column, *summed)]
    extent = b.shape[order[0]]
    flat = (extent, b.size // extent)
    line = QuantisedWeight(*(reshape(transpose(x, order), flat) for x in vars(found).values()))
    size = _block(line)
    if size is None:
        return None
    made = _packed(line, size, packing.blocks)
    fresh = [c for c in ascii_letters if c not in la + lb][: made.rank - 1]
    given = [*rows, *summed]
    x = transpose(a, [la.index(c) for c in given])
    x = reshape(x, (*x.shape[: len(rows)], flat[1]))
    x = _contiguous(pad(x, (0,) * x.rank, (0,) * len(rows) + (_depth(made) - flat[1],)))
    x = reshape(x, (*x.shape[:-1], *made.shape[1:]))
    inner = "".join(fresh)
    return contract(f"{''.join(rows)}{inner},{column}{inner}->{n.op.out}", x, made, source=n.source)


def _slides(x: Node) -> bool:
    """True if the node is a view of windows."""
    while isinstance(x.op, ops.VIEWS):
        if isinstance(x.op, ops.Unfold):
            return True
        x = x.inputs[0]
    return False


def _depth(made: Node) -> int:
    return made.size // made.shape[0]


def _contiguous(x: Node) -> Node:
    """x if its last axis is contiguous in memory, else a copy that is."""
    letters = ascii_letters[: x.rank]
    x = stored(x)
    steps = strides(x, letters)
    return x if steps[letters[-1]] == 1 else node(ops.Realize(), x)


def _block(line: QuantisedWeight) -> int | None:
    """How many steps along k share a scale and a zero point: a block, or all k; None if neither."""
    n, k = (Var(name, extent) for name, extent in zip("nk", line.whole.shape, strict=True))
    sizes = {k.extent}
    for x in (line.zero, line.scale):
        if _number(x) is not None:
            continue
        root, at = through_views(x, (index(n), index(k)))
        place = flatten(at, root.shape)
        if any(not _known(atom, k) for atom, _ in place.terms):
            return None
        sizes |= {atom.by for atom, _ in place.terms if isinstance(atom, Div) and _is_step(atom, k)}
    size = min(sizes)
    return size if all(other % size == 0 or other == k.extent for other in sizes) else None


def _number(x: Node) -> float | int | bool | None:
    """The number that a constant repeats everywhere, if it is only one."""
    found = literal(x)
    if found is None and x.value is not None and (x.value == x.value.flat[0]).all():
        found = x.value.flat[0].item()
    return found


def _known(atom: Atom, k: Var) -> bool:
    """True for k // size, and for indices that do not depend on k."""
    free = isinstance(atom, Var) and atom != k
    return free or (isinstance(atom, Div) and (_is_step(atom, k) or k not in atom.value.variables))


def _is_step(atom: Div, k: Var) -> bool:
    return atom.value == index(k)


def _packed(line: QuantisedWeight, size: int, layout: Blocks) -> Node:
    """The weight [n, blocks, words, NIBBLES] or [n, blocks, size], from packed integers."""
    columns, depth = line.whole.shape
    low = _least(line.whole)
    bits = 8 if low is None or (size % NIBBLES and size < depth) else 4
    blocks = -(-depth // size)
    length = -(-size // NIBBLES) * NIBBLES if bits == 4 else size
    # one block is padded to words; of several, the last to its size
    missing = blocks * size - depth if blocks > 1 else length - depth
    layout, panels = replace(layout, bits=bits, size=length), Panels(layout.width)
    whole = line.whole
    if bits == 4 and low:
        whole = elementwise("sub", cast(whole, I32), constant(low, I32))
    whole = pad(whole, (0, 0), (0, missing))
    if bits == 4:
        whole = reshape(cast(whole, I32), (columns, blocks, length // NIBBLES, NIBBLES))
        powers = constant(np.array([1 << 4 * i for i in range(NIBBLES)], "u4").astype("i4"))
        words = reduce("sum", elementwise("mul", whole, powers), [-1])
        whole = _columns(reshape(words, words.shape[:-1]), layout)
        shape = (*whole.shape, NIBBLES)
        whole = broadcast(reshape(whole, (*whole.shape, 1)), shape)
        whole = elementwise("nibble", whole, broadcast(_shifts(), shape))
    else:
        whole = _columns(reshape(whole, (columns, blocks, size)), layout)
    zero, scale = (_per_block(x, blocks, size) for x in (line.zero, line.scale))
    zero = _narrow(zero, low or 0 if bits == 4 else 0)
    value = cast(whole, F32)
    if literal(zero) != 0:
        stored = replace(layout, bits=8, size=blocks) if zero.dtype != F32 else None
        value = elementwise("sub", value, _beside(zero, whole.shape, stored or panels))
    return elementwise("mul", value, _beside(scale, whole.shape, panels))


def _shifts() -> Node:
    """The shifts 0, 4, 8, ...  Kernels compute them, so they are not folded into a table."""
    positions = Node(ops.Iota((4 * NIBBLES,), 0), (), (4 * NIBBLES,), I64, constant=True)
    return slice_(cast(positions, I32), (0,), (NIBBLES,), (4,))


def _per_block(x: Node, blocks: int, size: int) -> Node:
    """x[n, k] as [n, blocks]; one number for all stays one."""
    number = _number(x)
    if number is not None:
        return constant(number, x.dtype)
    # if the model stores one number per block, that tensor is used, not one repeated for each
    # weight
    n, b = Var("n", x.shape[0]), Var("b", blocks)
    root, at = through_views(x, (index(n), index(b) * size))
    place = flatten(at, root.shape)
    if root.size == n.extent * blocks and place == index(n) * blocks + index(b):
        return reshape(root, (n.extent, blocks))
    if root.size == n.extent * blocks and place == index(b) * n.extent + index(n):
        return transpose(reshape(root, (blocks, n.extent)), (1, 0))
    return slice_(x, (0, 0), (x.shape[0], blocks), (1, size))


def _narrow(zero: Node, low: int) -> Node:
    """zero - low, as bytes if all results fit, else as f32."""
    if zero.dtype.is_float:
        return elementwise("sub", zero, constant(float(low), F32))
    zero = elementwise("sub", cast(zero, I32), constant(low, I32))
    if zero.value is not None and zero.size == 1:
        return cast(zero, F32)
    least, most = _range(zero)
    if 0 <= least <= most <= 255:
        return cast(zero, U8)
    return cast(zero, I8 if -128 <= least <= most <= 127 else F32)


def _beside(x: Node, shape: ops.Shape, layout: Blocks | Panels) -> Node:
    """A number per column and block as f32, repeated for all integers of the block."""
    if x.rank:
        x = _columns(x, layout)
        x = reshape(x, (*x.shape, *(1,) * (len(shape) - 2)))
    return broadcast(cast(x, F32), shape)


def _columns(x: Node, layout: Blocks | Panels) -> Node:
    """x[n, ..] as a view of panels[n // width, .., n % width]"""
    extent, width = x.shape[0], layout.width
    panels = -(-extent // width)
    x = pad(x, (0,) * x.rank, (panels * width - extent,) + (0,) * (x.rank - 1))
    x = reshape(x, (panels, width, *x.shape[1:]))
    there = [0, *range(2, x.rank), 1]
    copied = node(ops.Realize(layout), transpose(x, there))
    back = transpose(copied, [there.index(i) for i in range(x.rank)])
    flat = reshape(back, (panels * width, *x.shape[2:]))
    return slice_(flat, (0,) * flat.rank, (extent, *flat.shape[1:]))


def _least(whole: Node) -> int | None:
    """The least 4-bit integer, 0 or -8, if all integers are in the 16 from it; None if they need 8
    bits."""
    while isinstance(whole.op, (*ops.VIEWS, ops.Elementwise)):
        if is_call(whole, "nibble"):
            return 0
        if isinstance(whole.op, ops.Elementwise):
            break
        whole = whole.inputs[0]
    low, high = _range(whole)
    return next((least for least in (0, -8) if least <= low and high <= least + 15), None)


@fact()
def _range(n: Node, _: list[tuple[int, int]]) -> tuple[int, int]:
    value = computed(n)
    return (int(value.min()), int(value.max())) if value.size else (0, 0)
