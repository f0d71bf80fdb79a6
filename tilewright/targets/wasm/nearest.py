"""Rounds four f32 lanes to the nearest f16 or bf16, ties to even, as Wasm IR.

Input: a builder and a v128 argument.  Output: a v128 expression whose lanes are f32 again.  Numbers
beyond the range become infinite, and NaN stays NaN.
"""

from __future__ import annotations

from tilewright.targets.wasm.arith import choose
from tilewright.targets.wasm.build import FuncBuilder
from tilewright.targets.wasm.ir import Expr, const, op

EXPONENT = 0x7F800000
#: Bits of 2^-14, the smallest normal f16; bits of 2^16; 13 in the place of the exponent.
SMALLEST, BEYOND, MOVED = 0x38800000, 0x47800000, 13 << 23


def f16(b: FuncBuilder, x: Expr) -> Expr:
    """Rounds by adding 2^13 times the number's power of two: this drops the digits f16 lacks."""
    x = b.vec(x)
    size = b.vec(op("f32x4.abs", x))
    power = op("i32x4.max_s", op("v128.and", size, b.i32x4(EXPONENT)), b.i32x4(SMALLEST))
    power = op("i32x4.min_s", power, b.i32x4(BEYOND))
    large = b.vec(op("i32x4.add", power, b.i32x4(MOVED)))
    rounded = b.vec(op("f32x4.sub", op("f32x4.add", size, large), large))
    endless = b.vec(op("f32x4.ge", rounded, b.i32x4(BEYOND)))
    value = choose(b, endless, b.i32x4(EXPONENT), rounded)
    return op("v128.or", value, op("v128.xor", x, size))


def bf16(b: FuncBuilder, x: Expr) -> Expr:
    """Rounds the upper half of the bits; a carry out of the fraction is correct, up to infinity."""
    x = b.vec(x)
    odd = op("v128.and", op("i32x4.shr_u", x, const(16)), b.i32x4(1))
    carried = op("i32x4.add", op("i32x4.add", x, b.i32x4(0x7FFF)), odd)
    even = b.vec(op("v128.and", carried, b.i32x4(-(1 << 16))))
    return choose(b, op("f32x4.eq", x, x), even, x)
