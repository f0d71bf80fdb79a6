"""Turns scalar expressions into vector expressions along one axis.

Input: an expression over variables, and the axis with a base index.  Output: an expression on
lanes: loads of adjacent elements become vector loads, constant ones become splats, and all others
one scalar per lane.  The caller chooses the axis and the width.  Values move between the lanes of
vectors by 4x4 transposes, and by reductions across lanes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.base.dtypes import BOOL, F32, I8, I16, I32, U8, DType
from tilewright.base.scalars import COMBINE
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import (
    Acc,
    Call,
    Const,
    Expr,
    Guard,
    IndexValue,
    Lane,
    Lanes,
    Load,
    Reg,
    Shuffle,
    Splat,
    dtype_of,
    lanes_of,
)
from tilewright.kernel.index import Index, Var, stride
from tilewright.kernel.tree import rewrite

#: Element types that vectors hold; BOOL lanes are computed and loaded, too, but never stored.
VECTOR_DTYPES = (F32, I32, I16, I8, U8)
_LANE_DTYPES = frozenset((*VECTOR_DTYPES, BOOL))

#: Bytes of a vector; its 32-bit lanes.
BYTES, LANES = 16, 4

Registers = Mapping[int, Expr]


def storable(dtype: DType) -> bool:
    """True if vectors of this element type can be stored."""
    return dtype in VECTOR_DTYPES


def scalar(e: Expr, values: Values, accs: Registers) -> Expr:
    """The expression at one point, with reduction results read from registers."""
    return _accs(e.substitute(values), accs)


def _accs(e: Expr, accs: Registers) -> Expr:
    return rewrite(e, lambda n: accs[n.stage] if isinstance(n, Acc) else n) if accs else e


def vector(
    e: Expr, axis: Var, base: Index, lanes: int, values: Values, accs: Registers, valid: int = 0
) -> Expr:
    """`lanes` neighbouring points of `axis` from `base` on, of which the first `valid` exist."""
    if isinstance(e, Load):
        return _load(e, axis, base, lanes, values, valid)
    if isinstance(e, Const):
        return Const(e.value, e.dtype, lanes)
    if isinstance(e, Acc):
        reg = accs[e.stage]
        return reg if lanes_of(reg) == lanes else Splat(reg, lanes)
    if isinstance(e, Reg):
        return Splat(e, lanes)
    place = _position(e)
    if place is not None:
        at, step = place.index.substitute({**values, axis: base}), stride(place.index, axis)
        first = Splat(IndexValue(at, I32), lanes)
        if step is not None:
            steps = tuple(Const(step * lane, I32) for lane in range(lanes))
            return Call("add", (first, Lanes(steps)), I32, lanes) if step else first
    if isinstance(e, Call) and all(map(_fits, (e, *e.operands))):
        args = tuple(vector(a, axis, base, lanes, values, accs, valid) for a in e.operands)
        return Call(e.fn, args, e.dtype, lanes)
    if isinstance(e, Guard) and _fits(e) and not _moves(e, axis):
        bounds = tuple(b.substitute(values) for b in e.bounds)
        parts = (vector(a, axis, base, lanes, values, accs, valid) for a in e.args)
        return Guard(bounds, *parts)
    return _each(e, axis, base, lanes, values, accs, valid)


def _position(e: Expr) -> IndexValue | None:
    """An index as an i32 that fits a lane, since addresses are below 2^31; None for other
    values."""
    if isinstance(e, Call) and e.fn == "cast" and e.dtype == I32:
        e = e.operands[0]
    elif not isinstance(e, IndexValue) or e.dtype != I32:
        return None
    return e if isinstance(e, IndexValue) else None


def _fits(e: Expr) -> bool:
    """True if lanes can hold the value."""
    return dtype_of(e) in _LANE_DTYPES


def _moves(e: Guard, axis: Var) -> bool:
    return any(axis in b.index.variables for b in e.bounds)


def _load(e: Load, axis: Var, base: Index, lanes: int, values: Values, valid: int) -> Expr:
    if not _fits(e):
        return _each(e, axis, base, lanes, values, {}, valid)
    first, count = e.index.substitute({**values, axis: base}), valid or lanes
    step = stride(e.index, axis) if count > 1 else 1
    if step is None:
        step = _pace(e.index, axis, base, count, values, first)
    if step == 1:
        # A single valid lane has the pattern of a splat, but must not be loaded as four elements.
        return Load(e.buffer, first, e.dtype, lanes, valid)
    if step == 0:
        return Splat(Load(e.buffer, first, e.dtype), lanes)
    return _each(e, axis, base, lanes, values, {}, valid)


def _pace(
    at: Index, axis: Var, base: Index, count: int, values: Values, first: Index
) -> int | None:
    """The constant distance between successive points, `count` of them; None if it varies."""
    later = (at.substitute({**values, axis: base + lane}) - first for lane in range(1, count))
    away = [distance.const for distance in later if distance.is_const]
    steady = len(away) == count - 1 and all(d == away[0] * n for n, d in enumerate(away, 1))
    return away[0] if steady else None


def _each(
    e: Expr, axis: Var, base: Index, lanes: int, values: Values, accs: Registers, valid: int
) -> Expr:
    count = valid or lanes
    points = [
        scalar(e, {**values, axis: base + lane}, {n: _lane(r, lane) for n, r in accs.items()})
        for lane in range(count)
    ]
    if len(set(points)) == 1:
        return Splat(points[0], lanes)
    empty = Const(0, dtype_of(e))
    return Lanes(tuple(points) + (empty,) * (lanes - count))


def _lane(reg: Expr, lane: int) -> Expr:
    return Lane(reg, lane) if lanes_of(reg) > 1 else reg


LOW, HIGH = (0, 4, 1, 5), (2, 6, 3, 7)
FIRST, LAST = (0, 1, 4, 5), (2, 3, 6, 7)


def transposed(b: Builder, rows: Sequence[Expr]) -> list[Expr]:
    """Four vectors: vector i holds lane i of each row, in order."""
    named = [_named(b, f"row{i}", row) for i, row in enumerate(rows)]
    pairs = [
        _named(b, f"pair{i}{j}", Shuffle(named[2 * i], named[2 * i + 1], half))
        for i in range(2)
        for j, half in enumerate((LOW, HIGH))
    ]
    low, high = (pairs[0], pairs[2]), (pairs[1], pairs[3])
    return [Shuffle(*half, picks) for half in (low, high) for picks in (FIRST, LAST)]


def lane_sums(rows: Sequence[Expr]) -> Expr:
    """A vector: lane i is the sum of the lanes of row i."""

    def halves(a: Expr, b: Expr) -> Expr:
        return _sum(Shuffle(a, b, LOW), Shuffle(a, b, HIGH))

    first, last = halves(rows[0], rows[1]), halves(rows[2], rows[3])
    return _sum(Shuffle(first, last, FIRST), Shuffle(first, last, LAST))


def across_lanes(op: str, acc: Reg) -> Expr:
    """One scalar from the lanes of a register, which are combined pairwise."""
    parts: list[Expr] = [Lane(acc, i) for i in range(acc.lanes)]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [Call(COMBINE[op], pair, acc.dtype) for pair in pairs]
    return parts[0]


def _sum(a: Expr, b: Expr) -> Call:
    return Call("add", (a, b), dtype_of(a), lanes_of(a))


def _named(b: Builder, stem: str, value: Expr) -> Reg:
    reg = Reg(f"{stem}{dtype_of(value)}", dtype_of(value), lanes_of(value))
    b.set(reg.name, value)
    return reg
