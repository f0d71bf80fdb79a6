"""Quantised arithmetic as integers: rewrites real products of scaled integers as exact integer
ones.

Input: nodes.  Output: rules for `rewrite`.  A tensor (q - zero) * scale is a "scaled integer"; the
sum of products of two of them is an i32 sum times one scale per column.  Sums then differ from
ONNX's reading (which rounds in f32) by less than one quantum of the result.

    contract(ca * sa, cb * sb)   ->  f32(contract(ca, cb)) * (sa * sb)
    contract(q - z, c)           ->  contract(q, c8) - z * columnsums(c)     q, c8: one byte each
    (f32(sum) * s + bias) / t    ->  f32(sum) * (s / t) + bias / t
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import prod

import numpy as np

from tilewright.base.dtypes import F32, I8, I16, I32, U8
from tilewright.graph import ops
from tilewright.graph.node import (
    ModelNode,
    Node,
    broadcast,
    cast,
    computed,
    constant,
    contract,
    elementwise,
    fact,
    node,
    pad,
    reshape,
    toposort,
)
from tilewright.graph.ops import Array

NARROW = (I8, U8, I16)


@dataclass(frozen=True)
class _Scaled:
    """`whole * scale`: `scale` is constant and broadcasts to the shape of `whole`, axis by axis."""

    whole: Node
    scale: Node


def _is(n: Node, fn: str) -> bool:
    return isinstance(n.op, ops.Elementwise) and n.op.fn == fn


def _ones(rank: int) -> tuple[int, ...]:
    return (1,) * rank


def _unbroadcast(n: Node) -> Node:
    """A constant without its outermost repetition, same rank."""
    return n.inputs[0] if isinstance(n.op, ops.Broadcast) else n


def _peeled(n: Node, kinds: tuple[type[ops.Op], ...]) -> tuple[list[Node], Node]:
    """(the nodes of these kinds from `n` down, innermost first; the node below them)"""
    path = []
    while isinstance(n.op, kinds):
        path.append(n)
        n = n.inputs[0]
    return path[::-1], n


def _scaled(n: Node) -> _Scaled | None:
    """n as integers times a constant scale, seen through views and padding."""
    path, n = _peeled(n, (*ops.VIEWS, ops.Pad))
    found = _factors(n) if _is(n, "mul") else None
    for outer in path:
        found = found and _moved(found, outer)
    return found


def _factors(n: Node) -> _Scaled | None:
    for whole, scale in (n.inputs, n.inputs[::-1]):
        if scale.constant and _is(whole, "cast") and whole.inputs[0].dtype in NARROW:
            return _Scaled(whole.inputs[0], _unbroadcast(scale))
    return None


def _moved(inner: _Scaled, n: Node) -> _Scaled | None:
    """Scaled integers after the view or padding `n`."""
    uniform = inner.scale.size == 1
    if isinstance(n.op, ops.Pad):
        if n.op.value or not uniform:
            return None
        return _Scaled(node(n.op, inner.whole), inner.scale)
    whole = node(n.op, inner.whole)
    if uniform:
        return _Scaled(whole, reshape(inner.scale, _ones(n.rank)))
    if isinstance(n.op, ops.Broadcast):
        return _Scaled(whole, inner.scale)
    return _Scaled(whole, node(n.op, broadcast(inner.scale, inner.whole.shape)))


def _without(scale: Node, axes: list[int]) -> Array | None:
    """The scale if it is the same all along `axes`, which then have extent 1."""
    value = computed(scale)
    first = value[tuple(slice(0, 1) if a in axes else slice(None) for a in range(value.ndim))]
    return first if first.size == value.size or np.array_equal(first + 0 * value, value) else None


def _placed(value: Array, letters: str, out: str) -> Node:
    """An array over `letters` (others of extent 1) as an operand beside a result over `out`."""
    kept = [i for i, c in enumerate(letters) if c in out]
    order = sorted(kept, key=lambda i: out.index(letters[i]))
    dropped = value.transpose([*order, *(i for i in range(value.ndim) if i not in kept)])
    extents = {letters[i]: n for i, n in zip(order, dropped.shape, strict=False)}
    return constant(dropped.reshape([extents.get(c, 1) for c in out]))


def _bounded_by(n: Node) -> tuple[Node, ...]:
    """The operands that decide the range of a narrow integer."""
    if isinstance(n.op, (*ops.VIEWS, ops.Pad)):
        return n.inputs
    widened = n.dtype == I16 and _is(n, "cast") and n.inputs[0].dtype in (I8, U8)
    return n.inputs if widened or (n.dtype == I16 and _is(n, "sub")) else ()


@fact(_bounded_by)
def _range(n: Node, operands: list[tuple[int, int]]) -> tuple[int, int]:
    """The least and the largest number that a narrow integer can be; padding is 0."""
    if isinstance(n.op, (*ops.VIEWS, ops.Pad)):
        ((low, high),) = operands
        return min(low, 0), max(high, 0)
    if len(operands) == 1:
        return operands[0]
    if operands:
        (low, high), (least, most) = operands
        return low - most, high - least
    if n.dtype == I16 and n.constant and n.size:
        value = computed(n)
        return int(value.min()), int(value.max())
    whole = np.iinfo(n.dtype.numpy)
    return int(whole.min), int(whole.max)


def _fits(depth: int, *operands: Node) -> bool:
    """True if no sum of `depth` products can overflow i32."""
    return depth * prod(max(map(abs, _range(x))) for x in operands) < 1 << 31


def contract_scaled(n: Node) -> Node | None:
    """contract(ca * sa, cb * sb) -> f32(contract(ca, cb)) * (sa * sb)"""
    if not isinstance(n.op, ops.Contract) or n.dtype != F32:
        return None
    parts = [_scaled(x) for x in n.inputs]
    if parts[0] is None or parts[1] is None:
        return None
    extents = dict(zip(n.op.a + n.op.b, n.inputs[0].shape + n.inputs[1].shape, strict=True))
    depth = prod(extent for c, extent in extents.items() if c not in n.op.out)
    if not _fits(depth, parts[0].whole, parts[1].whole):
        return None
    factor = constant(1.0, F32)
    for part, letters in zip((parts[0], parts[1]), (n.op.a, n.op.b), strict=True):
        scale = _without(part.scale, [i for i, c in enumerate(letters) if c not in n.op.out])
        if scale is None:
            return None
        factor = elementwise("mul", factor, _placed(scale, letters, n.op.out))
    a, b = (cast(part.whole, I16) for part in (parts[0], parts[1]))
    sums = contract(f"{n.op.a},{n.op.b}->{n.op.out}", a, b, source=n.source)
    return elementwise("mul", cast(sums, F32), factor, source=n.source)


def reduce_scaled(n: Node) -> Node | None:
    """sum(ca*sa * cb*sb) -> f32(contract(ca, cb)) * (sa * sb): a depthwise convolution"""
    if not (isinstance(n.op, ops.Reduce) and n.op.fn == "sum" and n.dtype == F32):
        return None
    product = n.inputs[0]
    parts = [_scaled(x) for x in product.inputs] if _is(product, "mul") else []
    if len(parts) != 2 or parts[0] is None or parts[1] is None:
        return None
    depth = prod(product.shape[i] for i in n.op.axes)
    if not _fits(depth, parts[0].whole, parts[1].whole):
        return None
    factor = constant(1.0, F32)
    for part in (parts[0], parts[1]):
        scale = _without(part.scale, list(n.op.axes))
        if scale is None:
            return None
        letters = _LETTERS[: scale.ndim]
        factor = elementwise("mul", factor, _placed(scale, letters, _kept(n.op, letters)))
    sums = _windows(n.op, parts[0].whole, parts[1].whole, n.source)
    return reshape(elementwise("mul", cast(sums, F32), factor, source=n.source), n.shape)


def reduce_integers(n: Node) -> Node | None:
    """sum(i32(ca) * i32(cb)) -> contract(ca, cb): a depthwise convolution of integers"""
    if not (isinstance(n.op, ops.Reduce) and n.op.fn == "sum" and n.dtype == I32):
        return None
    product = n.inputs[0]
    parts = [_narrow(x) for x in product.inputs] if _is(product, "mul") else []
    if len(parts) != 2 or parts[0] is None or parts[1] is None:
        return None
    return reshape(_windows(n.op, parts[0], parts[1], n.source), n.shape)


def _narrow(n: Node) -> Node | None:
    """The I16 values that `n` is a cast of, seen through views."""
    path, n = _peeled(n, ops.VIEWS)
    if not (_is(n, "cast") and n.inputs[0].dtype == I16):
        return None
    return reduce(lambda x, outer: node(outer.op, x), path, n.inputs[0])


_LETTERS = "abcdefghijklmnop"


def _kept(op: ops.Reduce, letters: str) -> str:
    return "".join(c for i, c in enumerate(letters) if i not in op.axes)


def _windows(op: ops.Reduce, a: Node, b: Node, source: ModelNode) -> Node:
    """The contraction of two operands of one shape over the axes of a sum."""
    letters = _LETTERS[: a.rank]
    operands: list[Node] = []
    labels: list[str] = []
    for x in (cast(a, I16), cast(b, I16)):
        small = _unbroadcast(x)
        used = [i for i, extent in enumerate(small.shape) if extent > 1 or small is x]
        operands.append(reshape(small, [small.shape[i] for i in used]))
        labels.append("".join(letters[i] for i in used))
    out = _kept(op, letters)
    return contract(f"{labels[0]},{labels[1]}->{out}", operands[0], operands[1], source=source)


# ---- bytes ---------------------------------------------------------------------------------------


def _bytes(n: Node) -> tuple[Node, Node] | None:
    """(q as u8, zero point as an i32 scalar) if `n` is q - zero, computed at run time; else
    None."""
    path, n = _peeled(n, (*ops.VIEWS, ops.Pad))
    found = None if n.constant else _centred(n)
    if found is None:
        return None
    q, zero = found
    for outer in path:
        if not isinstance(outer.op, ops.Pad):
            q = node(outer.op, q)
        elif outer.op.value or zero.value is None:
            return None
        else:
            q = pad(q, outer.op.before, outer.op.after, int(zero.value))
    return q, zero


def _centred(n: Node) -> tuple[Node, Node] | None:
    """As `_bytes`, for a node that is neither a view nor padding."""
    zero = constant(0, I32)
    if _is(n, "sub"):
        n, z = n.inputs
        while isinstance(z.op, (ops.Broadcast, ops.Reshape)):
            z = z.inputs[0]
        if z.size != 1:
            return None
        zero = cast(reshape(z, ()), I32)
    if not (_is(n, "cast") and n.dtype == I16 and n.inputs[0].dtype in (U8, I8)):
        return None
    q = n.inputs[0]
    if q.dtype == U8:
        return q, zero
    lifted = cast(elementwise("add", n, constant(128, I16)), U8)
    return lifted, elementwise("add", zero, constant(128, I32))


def _weights(n: Node) -> Array | None:
    """The value of constant centred integers, if all fit i8; else None."""
    if not n.constant:
        return None
    value = computed(n)
    fits = value.size and value.min() >= -128 and value.max() <= 127
    return value.astype(np.int32) if fits else None


def contract_bytes(n: Node) -> Node | None:
    """contract(q - z, c) -> contract(q, c8) - z * columnsums(c), with c constant"""
    if not isinstance(n.op, ops.Contract) or {x.dtype for x in n.inputs} != {I16}:
        return None
    operands = list(zip(n.inputs, (n.op.a, n.op.b), strict=True))
    for (x, letters), (c, others) in (operands, operands[::-1]):
        raw, value = _bytes(x), _weights(c)
        summed = [i for i, k in enumerate(others) if k not in n.op.out]
        alone = {k for k, extent in zip(letters, x.shape, strict=True) if extent > 1}
        alone -= {*others, *n.op.out}
        if raw is None or value is None or alone or any(others[i] not in letters for i in summed):
            continue
        sums = value.sum(axis=tuple(summed), keepdims=True, dtype=np.int32)
        q, zero = raw
        made = contract(f"{letters},{others}->{n.op.out}", q, cast(c, I8), source=n.source)
        return _less(made, zero, _placed(sums, others, n.op.out))
    return None


def _less(made: Node, zero: Node, sums: Node) -> Node:
    if zero.value is not None and not zero.value.any():
        return made
    return elementwise("add", made, elementwise("mul", zero, elementwise("neg", sums)))


def merge_sums(n: Node) -> Node | None:
    """(x + c1) + c2 -> x + (c1 + c2) for integers, with c1 and c2 constant"""
    if not _is(n, "add") or n.dtype != I32 or not n.inputs[1].constant:
        return None
    inner, last = n.inputs
    if not _is(inner, "add") or not inner.inputs[1].constant:
        return None
    x, first = inner.inputs
    both = elementwise("add", _unbroadcast(first), _unbroadcast(last))
    return elementwise("add", x, both, source=n.source)


# ---- requantisation ------------------------------------------------------------------------------


def requantize(n: Node) -> Node | None:
    """(f32(sum) * s + bias) / t -> f32(sum) * (s / t) + bias / t, with one number t > 0"""
    if not _is(n, "div") or n.dtype != F32 or n.constant:
        return None
    by = n.inputs[1]
    while isinstance(by.op, (ops.Broadcast, ops.Reshape)):
        by = by.inputs[0]
    if by.value is None or by.size != 1 or not by.value.reshape(()).item() > 0:
        return None
    return _divided(n.inputs[0], reshape(by, ()))


#: A division by one number moves below these ops, and into both operands of the functions
#: `_SPREAD`.
_PASSED = (ops.Reshape, ops.Transpose, ops.Slice, ops.Flip)
_SPREAD = ("add", "sub", "max", "min")


def _divisible_by(n: Node) -> tuple[Node, ...]:
    """The operands that a division of `n` moves into."""
    spread = isinstance(n.op, ops.Elementwise) and n.op.fn in _SPREAD
    return n.inputs if not n.constant and (spread or isinstance(n.op, _PASSED)) else ()


@fact(_divisible_by)
def _divisible(n: Node, operands: list[bool]) -> bool:
    """True if `n` divided by a number needs no division at run time."""
    return all(operands) if operands else n.constant or _whole(n) is not None


def _whole(n: Node) -> tuple[Node, Node] | None:
    """(integers as f32, constant scale) if `n` is their product; else None."""
    for whole, scale in (n.inputs, n.inputs[::-1]) if _is(n, "mul") else ():
        if scale.constant and _is(whole, "cast") and not whole.inputs[0].dtype.is_float:
            return whole, scale
    return None


def _divided(n: Node, by: Node) -> Node | None:
    """n / by without a division at run time; None if that is impossible."""
    if not _divisible(n):
        return None
    made: dict[Node, Node] = {}
    for m in toposort([n], _divisible_by):
        made[m] = _quotient(m, by, [made[i] for i in _divisible_by(m)])
    return made[n]


def _quotient(n: Node, by: Node, parts: list[Node]) -> Node:
    """n / by, from its operands divided by the same number (`parts`)."""
    if n.constant:
        return broadcast(elementwise("div", _unbroadcast(n), by), n.shape)
    found = _whole(n)
    if found is not None:
        whole, scale = found
        return elementwise(
            "mul", whole, elementwise("div", _unbroadcast(scale), by), source=n.source
        )
    if _is(n, "add") and _is(parts[0], "mul") and parts[1].constant:
        return elementwise("fma", *parts[0].inputs, parts[1], source=n.source)
    return node(n.op, *parts, source=n.source)


RULES = (contract_scaled, reduce_scaled, reduce_integers, contract_bytes, merge_sums, requantize)
