"""Functions of one number that need 64-bit integers, as Wasm IR: helpers of a module.

Input: a builder and scalar arguments.  Output: an expression; earlier steps are added to the
builder.

    rem(a, b)   the remainder of two f64, with division rounded toward zero: exact, by long division
    angle(x)    an f32 of at least 2^13 as quarter turns and the rest: both in one i64

`mathlib.py` has the vector code, and calls `angle` for large numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from tilewright.targets.coefficients import TURNS, TURNS_BELOW
from tilewright.targets.wasm.encode import f64_bits
from tilewright.targets.wasm.function_builder import FuncBuilder
from tilewright.targets.wasm.ir import (
    Assign,
    Block,
    BrIf,
    Expr,
    If,
    Invoke,
    Local,
    Loop,
    Op,
    Stmt,
    const,
    op,
)

#: Of an f64: a mask of its bits without the sign, the bits of infinity, the bits of its fraction.
SIZE, INF_BITS, FRACTION = (1 << 63) - 1, 0x7FF << 52, 52
#: The largest shift of a 53-bit remainder that fits 64 bits.
STEP = 64 - 53


def _long(value: int) -> Expr:
    """An i64 literal with these 64 bits."""
    return Op("i64.const", (), ((value + (1 << 63)) % (1 << 64) - (1 << 63),))


def _f64(value: float) -> Expr:
    return Op("f64.const", (), (f64_bits(value),))


def _parts(b: FuncBuilder, size: Local) -> tuple[Local, Local]:
    """Exponent and whole mantissa of the bits of an f64 without sign.  A subnormal number has the
    smallest exponent."""
    exponent = b.let(op("i64.shr_u", size, _long(FRACTION)), "i64")
    normal = op("i64.extend_i32_u", op("i64.ne", exponent, _long(0)))
    fraction = op("i64.and", size, _long((1 << FRACTION) - 1))
    mantissa = op("i64.or", fraction, op("i64.shl", normal, _long(FRACTION)))
    tiny = op("i64.extend_i32_u", op("i64.eqz", exponent))
    return b.let(op("i64.add", exponent, tiny), "i64"), b.let(mantissa, "i64")


def rem(b: FuncBuilder, x: Expr, y: Expr) -> Expr:
    """The remainder, with the sign of x.  NaN for division by 0, of infinity, and of NaN."""
    x, y = b.let(x, "f64"), b.let(y, "f64")
    a, d = (b.let(op("i64.and", op("i64.reinterpret_f64", v), _long(SIZE)), "i64") for v in (x, y))
    result = b.let(x, "f64")  # the result if |x| < |y|
    endless = op("i32.or", op("i64.ge_u", a, _long(INF_BITS)), op("i64.gt_u", d, _long(INF_BITS)))
    bad = op("i32.or", op("i64.eqz", d), endless)
    divided = b.collect("if", lambda: b.emit(Assign(result, _divided(b, a, d, x))))
    nan: tuple[Stmt, ...] = (Assign(result, _f64(math.nan)),)
    b.emit(If(bad, nan, (If(op("i64.ge_u", a, d), divided),)))
    return result


def _divided(b: FuncBuilder, a: Local, d: Local, signed: Local) -> Expr:
    """The remainder of a / d, both as bits, with a sign; a >= d, and d is a finite number."""
    (over, rest), (under, divisor) = _parts(b, a), _parts(b, d)
    rest = b.let(op("i64.rem_u", rest, divisor), "i64")
    left = b.let(op("i64.sub", over, under), "i64")
    few = op("i64.lt_u", left, _long(STEP))
    step = b.fresh("i64", "step")
    again = (
        Assign(step, op("select", left, _long(STEP), few)),
        Assign(rest, op("i64.rem_u", op("i64.shl", rest, step), divisor)),
        Assign(left, op("i64.sub", left, step)),
        BrIf(0, op("i64.ne", left, _long(0))),
    )
    b.emit(Block((BrIf(0, op("i64.eqz", left)), Loop(again))))
    # Scaled in two steps, since 2^(exponent - 1075) may be subnormal.
    whole = op("f64.mul", op("f64.convert_i64_u", rest), _f64(2.0**-FRACTION))
    scale = op("f64.reinterpret_i64", op("i64.shl", under, _long(FRACTION)))
    return op("f64.copysign", op("f64.mul", whole, scale), signed)


def angle(b: FuncBuilder, x: Expr) -> Expr:
    """Reduces an angle |x| = m 2^e with a whole m.  Only the fraction of its turns, m (2^e / 2 pi),
    is
    needed: 64 bits of it, computed from a window of 128 bits of the constant.

    The high word of the result is the number of quarter turns; the low word is the rest as f32
    radians.
    """
    bits = b.let(op("i32.reinterpret_f32", x), "i32")
    exponent = op("i32.and", op("i32.shr_u", bits, const(23)), const(255))
    shift = b.let(op("i32.sub", exponent, const(150 - TURNS_BELOW)), "i32")
    mantissa = op("i32.or", op("i32.and", bits, const(0x7FFFFF)), const(0x800000))
    m = b.let(op("i64.extend_i32_u", mantissa), "i64")
    late = b.let(op("i32.shr_u", shift, const(6)), "i32")
    by = b.let(op("i64.extend_i32_u", shift), "i64")
    words = [TURNS >> 192 - 64 * n & (1 << 64) - 1 for n in range(4)]
    picked = [
        b.let(op("select", _long(after), _long(word), late), "i64")
        for word, after in pairwise(words)
    ]
    high, low = (_shifted(b, *pair, by) for pair in pairwise(picked))
    middle = op("i64.mul", m, op("i64.shr_u", low, _long(32)))
    lowest = op("i64.mul", m, op("i64.and", low, _long((1 << 32) - 1)))
    carried = op("i64.add", middle, op("i64.shr_u", lowest, _long(32)))
    turns = op("i64.add", op("i64.mul", m, high), op("i64.shr_u", carried, _long(32)))
    turned = b.let(turns, "i64")
    back = op("i64.sub", _long(0), turned)
    turned = b.let(op("select", back, turned, op("i32.lt_s", bits, const(0))), "i64")
    quarters = op("i64.shr_u", op("i64.add", turned, _long(1 << 61)), _long(62))
    quarter = b.let(quarters, "i64")
    rest = op("i64.sub", turned, op("i64.shl", quarter, _long(62)))
    radians = op("f64.mul", op("f64.convert_i64_s", rest), _f64(2 * math.pi / 2**64))
    number = op("i64.extend_i32_u", op("i32.reinterpret_f32", op("f32.demote_f64", radians)))
    return op("i64.or", op("i64.shl", quarter, _long(32)), number)


def _shifted(b: FuncBuilder, high: Local, low: Local, by: Local) -> Local:
    """The first 64 bits of two words after both are shifted left by `by` modulo 64."""
    rest = op("i64.shr_u", op("i64.shr_u", low, _long(1)), op("i64.xor", by, _long(63)))
    return b.let(op("i64.or", op("i64.shl", high, by), rest), "i64")


#: By name: the function that builds it, the types of its parameters and of its result.
LONGS: dict[str, tuple[Callable[..., Expr], tuple[str, ...], str]] = {
    "rem": (rem, ("f64", "f64"), "f64"),
    "angle": (angle, ("f32",), "i64"),
}


def call(b: FuncBuilder, name: str, *args: Expr) -> Expr:
    b.helpers.add(name)
    return Invoke(name, args, LONGS[name][2])
