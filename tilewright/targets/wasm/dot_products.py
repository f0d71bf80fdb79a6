"""Lowers dot products and packed integers of the loop IR to Wasm IR.

Input: `Dot`, `PairSums` and `Join` expressions.  Output: Wasm IR expressions.  All of them are
exact.  The instructions of a dot product depend on its operands and on the variant:

    i16 pairs                 i32x4.dot_i16x8_s, i32x4.add                       8 products
    bytes widened first       2 extensions, the same                             8 products
    bytes, weights of 7 bits  i16x8.relaxed_dot, i32x4.dot_i16x8_s with ones, add   16 products
"""

from __future__ import annotations

from typing import Protocol

from tilewright.base.dtypes import I8, I16, U8
from tilewright.base.errors import of_kind
from tilewright.kernel import expr as k
from tilewright.kernel.index import Index
from tilewright.targets.wasm.function_builder import ZERO, FuncBuilder
from tilewright.targets.wasm.ir import Expr, Load, Op, op

_SPLATS = {4: "v128.load32_splat", 8: "v128.load64_splat"}
_HALVES = ("low", "high")

#: The number 1 in two lanes of 16 bits.  Pairs are summed by a dot product with ones in a register:
#: engines for x86 compute `extadd_pairwise` the same way, but load the ones each time.
_ONES = 0x00010001

#: The i32 lanes of two vectors with the first, and the second, number of each pair.
_EVEN, _ODD = (0, 2, 4, 6), (1, 3, 5, 7)


class OperandLowering(Protocol):
    """Lowers the operands of these expressions (values.py)."""

    b: FuncBuilder

    def value(self, e: k.Expr) -> Expr:
        """An expression of the loop IR as one of Wasm."""

    def address(self, buffer: int, i: Index, size: int, splat: bool = False) -> Expr:
        """The address of an element of a buffer."""

    def space(self, buffer: int) -> int:
        """A number for the memory of a buffer; buffers with different numbers never overlap."""


def dot(v: OperandLowering, e: k.Dot) -> Expr:
    acc, dtype = v.value(e.acc), k.dtype_of(e.col)
    row = _row(v, e.row)
    if dtype == I16:
        return _sum(acc, row, v.value(e.col))
    sign = "u" if k.dtype_of(e.row) == U8 else "s"
    if e.depth == 2:
        short = _loaded(e.col)
        raw = Load("v128.load64_zero", _address(v, short), 0, v.space(short.buffer))
        wide = op(f"i16x8.extend_low_i8x16_{sign}", row)
        return _sum(acc, wide, op("i16x8.extend_low_i8x16_s", raw))
    col = v.value(e.col)
    if e.small and sign == "u" and v.b.has("dot_u8"):
        halves = op("i16x8.relaxed_dot_i8x16_i7x16_s", col, row)
        return _sum(acc, halves, v.b.i32x4(_ONES))
    row, col = v.b.vec(row), v.b.vec(col)
    sums = [
        v.b.vec(
            op(
                "i32x4.dot_i16x8_s",
                op(f"i16x8.extend_{half}_i8x16_{sign}", row),
                op(f"i16x8.extend_{half}_i8x16_s", col),
            )
        )
        for half in _HALVES
    ]
    return _plus(acc, _pairs(sums[0], sums[1]))


def _sum(acc: Expr, row: Expr, col: Expr) -> Expr:
    return _plus(acc, op("i32x4.dot_i16x8_s", row, col))


def _plus(acc: Expr, more: Expr) -> Expr:
    return more if acc == ZERO else op("i32x4.add", acc, more)


def _row(v: OperandLowering, row: k.Expr) -> Expr:
    """The row operand as a whole vector; a short row is repeated."""
    size = k.lanes_of(row) * k.dtype_of(row).size
    if size == 16:
        return v.value(row)
    load = _loaded(row)
    return Load(_SPLATS[size], _address(v, load, True), 0, v.space(load.buffer))


def _loaded(e: k.Expr) -> k.Load:
    return of_kind(e, k.Load, "an operand of a dot product does not lie in memory")


def _address(v: OperandLowering, e: k.Load, splat: bool = False) -> Expr:
    return v.address(e.buffer, e.index, e.dtype.size, splat)


def pairs(v: OperandLowering, e: k.PairSums) -> Expr:
    return _pairs(v.b.vec(v.value(e.a)), v.b.vec(v.value(e.b)))


def _pairs(a: Expr, b: Expr) -> Expr:
    return op("i32x4.add", *(shuffle(a, b, lanes) for lanes in (_EVEN, _ODD)))


def shuffle(a: Expr, b: Expr, lanes: tuple[int, ...]) -> Expr:
    """A vector of these lanes of (a, b), counted through both."""
    size = 16 // len(lanes)
    places = bytes(lane * size + i for lane in lanes for i in range(size))
    return Op("i8x16.shuffle", (a, b), (places,))


def join(v: OperandLowering, e: k.Join) -> Expr:
    """Vectors of i32 lanes as one vector of bytes or 16-bit integers.

    Narrowing saturates, so a cast from floats inside needs no range check of its own.
    """
    parts = [_whole(v, part) for part in e.parts]
    if len(parts) == 1:
        return parts[0]
    narrow = "i16x8.narrow_i32x4_s"
    parts += parts[-1:] * (len(parts) % 2)
    halves = [op(narrow, a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    if e.dtype == I16:
        return halves[0]
    first = halves[0] if len(halves) > 1 else v.b.vec(halves[0])
    last = halves[1] if len(halves) > 1 else first
    return op(f"i8x16.narrow_i16x8_{'s' if e.dtype == I8 else 'u'}", first, last)


#: A power of two that every cast to i32 can represent.
_LARGE = float(1 << 30)


def _whole(v: OperandLowering, part: k.Expr) -> Expr:
    """The part as i32 lanes, which may exceed the range of its dtype."""
    from_float = isinstance(part, k.Call) and k.dtype_of(part.args[0]).is_float
    if not (from_float and isinstance(part, k.Call) and part.fn == "cast"):
        return v.value(part)
    x = v.value(part.args[0])
    if k.dtype_of(part) == U8 and v.b.has("fma"):
        # Too small numbers and NaN may become any negative number or 0: both narrow to 0.
        return op("i32x4.relaxed_trunc_f32x4_s", op("f32x4.pmin", x, v.b.f32x4(_LARGE)))
    return op("i32x4.trunc_sat_f32x4_s", x)
