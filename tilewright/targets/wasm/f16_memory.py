"""f16 numbers in memory that kernels compute with as f32: loads widen them, stores round them.

Input: a load of the loop IR or a value to store, and the address.  Output: Wasm IR.  All numbers in
memory are finite: a store changes numbers beyond the range of f16 to -65504 or 65504, and NaN to
65504.  So a load needs no test for infinities.
"""

from __future__ import annotations

from tilewright.kernel import expr as k
from tilewright.targets.wasm.function_builder import FuncBuilder
from tilewright.targets.wasm.ir import Expr, Load, Store, add, const, op
from tilewright.targets.wasm.loads import lanes_at
from tilewright.targets.wasm.scalar_instructions import scalar_const

#: Bytes of an f16.
HALF = 2
#: What the f32 that has an f16's bits at their places must be multiplied by.
EXPONENT = 2.0**112
#: The bits of an f32 that come from an f16, after its extended sign was moved by 13.
PARTS = 0x8FFFFFFF
LARGEST = 65504.0
#: As bits: the least normal f16 as f32; 0.5, whose last place is the last of subnormal f16; and the
#: difference of exponents.
NORMAL, ONE_HALF, BIAS = 0x38800000, 0x3F000000, 112 << 10


def f16_load(b: FuncBuilder, e: k.Load, address: Expr, space: int) -> Expr:
    """The numbers as f32.  Sign, exponent and fraction move to their places in f32; the product
    corrects the exponent, and makes subnormal numbers normal."""
    if e.lanes == 1:
        raw: Expr = Load("i32.load16_s", address, 0, space)
        bits = op("i32.and", op("i32.shl", raw, const(13)), const(PARTS))
        return op("f32.mul", op("f32.reinterpret_i32", bits), scalar_const("f32", EXPONENT))
    raw = lanes_at(b, address, space, e.valid or e.lanes, "v128.load64_zero", HALF)
    wide = op("i32x4.shl", op("i32x4.extend_low_i16x8_s", raw), const(13))
    return op("f32x4.mul", op("v128.and", wide, b.i32x4(PARTS)), b.f32x4(EXPONENT))


def f16_store(b: FuncBuilder, value: Expr, lanes: int, valid: int, at: Expr, space: int) -> None:
    """Rounds f32 to the nearest f16, ties to even, and stores the first `valid` lanes."""
    if lanes == 1:
        b.emit(Store("i32.store16", at, 0, _rounded(b, value), space))
        return
    whole = _rounded_lanes(b, value)
    narrow = b.vec(op("i16x8.narrow_i32x4_u", whole, whole))
    if valid == lanes:
        b.emit(Store("v128.store64_lane", at, 0, narrow, space, 0))
        return
    for lane in range(valid):
        place = add(at, const(HALF * lane)) if lane else at
        b.emit(Store("v128.store16_lane", place, 0, narrow, space, lane))


def _rounded(b: FuncBuilder, value: Expr) -> Expr:
    """The bits of one number."""
    x = b.let(value, "f32")
    for test, limit in (("f32.lt", LARGEST), ("f32.gt", -LARGEST)):
        most = scalar_const("f32", limit)
        x = b.let(op("select", x, most, op(test, x, most)), "f32")
    bits = b.let(op("i32.reinterpret_f32", x), "i32")
    size = b.let(op("i32.and", bits, const(0x7FFFFFFF)), "i32")
    odd = op("i32.and", op("i32.shr_u", size, const(13)), const(1))
    last = op("i32.shr_u", add(add(size, const(0xFFF)), odd), const(13))
    half = scalar_const("f32", 0.5)
    small = op("i32.reinterpret_f32", op("f32.add", op("f32.reinterpret_i32", size), half))
    chosen = op(
        "select", op("i32.sub", small, const(ONE_HALF)), op("i32.sub", last, const(BIAS)),
        op("i32.lt_u", size, const(NORMAL)),
    )  # fmt: skip
    sign = op("i32.and", op("i32.shr_u", bits, const(16)), const(0x8000))
    return op("i32.or", chosen, sign)


def _rounded_lanes(b: FuncBuilder, value: Expr) -> Expr:
    """The bits of four numbers, as i32."""
    x = b.vec(op("f32x4.pmin", b.f32x4(LARGEST), value))
    x = b.vec(op("f32x4.pmax", b.f32x4(-LARGEST), x))
    size = b.vec(op("v128.and", x, b.i32x4(0x7FFFFFFF)))
    odd = op("v128.and", op("i32x4.shr_u", size, const(13)), b.i32x4(1))
    sum_ = op("i32x4.add", op("i32x4.add", size, b.i32x4(0xFFF)), odd)
    last = op("i32x4.sub", op("i32x4.shr_u", sum_, const(13)), b.i32x4(BIAS))
    small = op("i32x4.sub", op("f32x4.add", size, b.f32x4(0.5)), b.i32x4(ONE_HALF))
    chosen = op("v128.bitselect", small, last, op("i32x4.lt_s", size, b.i32x4(NORMAL)))
    sign = op("v128.and", op("i32x4.shr_u", x, const(16)), b.i32x4(0x8000))
    return b.vec(op("v128.or", chosen, sign))
