"""Vector and scalar loads of each element type: whole vectors, or the first lanes of one.

Input: a load of the loop IR and its address. Output: Wasm IR. Addresses are computed by the caller.
"""

from __future__ import annotations

from tilewright.base.dtypes import BOOL, F32, F64, I8, I16, I32, I64, U8
from tilewright.kernel import expr as k
from tilewright.targets.wasm.function_builder import FuncBuilder
from tilewright.targets.wasm.ir import Expr, Load, add, const, op
from tilewright.targets.wasm.scalar_instructions import shape_of

LOADS = {
    F32: "f32.load",
    F64: "f64.load",
    I32: "i32.load",
    I64: "i64.load",
    I16: "i32.load16_s",
    I8: "i32.load8_s",
    U8: "i32.load8_u",
    BOOL: "i32.load8_u",
}


def vector_load(b: FuncBuilder, e: k.Load, address: Expr, space: int) -> Expr:
    """Several lanes, of which the first `valid` are loaded and the others are 0."""
    shape, valid = shape_of(e.dtype, e.lanes), e.valid or e.lanes
    if e.dtype.size == 4:
        return _words(address, space, valid)
    if shape in ("i8x16", "i16x8"):
        half = valid * e.dtype.size == 8
        return Load("v128.load64_zero" if half else "v128.load", address, 0, space)
    if e.dtype.size == 2:
        halves = lanes_at(b, address, space, valid, "v128.load64_zero", 2)
        return op("i32x4.extend_low_i16x8_s", halves)
    raw = lanes_at(b, address, space, valid, "v128.load32_zero", 1)
    sign = "s" if e.dtype == I8 else "u"
    wide = op(f"i32x4.extend_low_i16x8_{sign}", op(f"i16x8.extend_low_i8x16_{sign}", raw))
    return op("i32x4.ne", wide, b.i32x4(0)) if shape == "mask" else wide


def _words(address: Expr, space: int, valid: int) -> Expr:
    if valid == 4:
        return Load("v128.load", address, 0, space)
    if valid == 1:
        return Load("v128.load32_zero", address, 0, space)
    pair = Load("v128.load64_zero", address, 0, space)
    if valid == 2:
        return pair
    return Load("v128.load32_lane", add(address, const(8)), 0, space, 2, pair)


def lanes_at(b: FuncBuilder, address: Expr, space: int, valid: int, whole: str, size: int) -> Expr:
    """Four numbers of `size` bytes, packed: by the load `whole`, or one by one if fewer exist."""
    if valid == 4:
        return Load(whole, address, 0, space)
    value: Expr = b.i32x4(0)
    for lane in range(valid):
        at = add(address, const(size * lane)) if lane else address
        value = Load(f"v128.load{8 * size}_lane", at, 0, space, lane, value)
    return value
