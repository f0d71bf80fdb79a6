"""Casts between element types: tables from (shape, shape) to instructions.

Input: a value and its dtype.  Output: the value in another dtype.  Float to integer truncates
toward zero, saturates and takes NaN to 0; integer to integer wraps; anything to bool is `!= 0`.
"""

from __future__ import annotations

from tilewright.base.dtypes import BOOL, I8, I16, U8, DType
from tilewright.base.errors import CompilerBug
from tilewright.targets.wasm.function_builder import FuncBuilder
from tilewright.targets.wasm.ir import Expr, Op, const, op
from tilewright.targets.wasm.scalar_instructions import low_bits, shape_of

#: Instructions of a cast from shape to shape, applied one after the other.
_STEPS: dict[tuple[str, str], tuple[str, ...]] = {
    ("f32", "f64"): ("f64.promote_f32",),
    ("f64", "f32"): ("f32.demote_f64",),
    ("f32", "i32"): ("i32.trunc_sat_f32_s",),
    ("f64", "i32"): ("i32.trunc_sat_f64_s",),
    ("f32", "i64"): ("i64.trunc_sat_f32_s",),
    ("f64", "i64"): ("i64.trunc_sat_f64_s",),
    ("i32", "f32"): ("f32.convert_i32_s",),
    ("i32", "f64"): ("f64.convert_i32_s",),
    ("i32", "i64"): ("i64.extend_i32_s",),
    ("i64", "f32"): ("f32.convert_i64_s",),
    ("i64", "f64"): ("f64.convert_i64_s",),
    ("i64", "i32"): ("i32.wrap_i64",),
    ("flag", "f32"): ("f32.convert_i32_s",),
    ("flag", "f64"): ("f64.convert_i32_s",),
    ("flag", "i64"): ("i64.extend_i32_u",),
    ("flag", "i32"): (),
    ("f32x4", "i32x4"): ("i32x4.trunc_sat_f32x4_s",),
    ("i32x4", "f32x4"): ("f32x4.convert_i32x4_s",),
    ("mask", "i32x4"): ("i32x4.neg",),
    ("mask", "f32x4"): ("i32x4.neg", "f32x4.convert_i32x4_s"),
}

_RANGE = {I8: (-128, 127), U8: (0, 255), I16: (-32768, 32767)}


def cast(b: FuncBuilder, value: Expr, old: DType, new: DType, lanes: int) -> Expr:
    """`value` of dtype `old`, as dtype `new`."""
    a, z = shape_of(old, lanes), shape_of(new, lanes)
    if old == new:
        return value
    if new == BOOL:
        return _truth(b, value, a)
    if new in _RANGE and old.is_float:
        return _saturate(b, _steps(value, a, z), new, lanes)
    value = _steps(value, a, z)
    if new in _RANGE and old != BOOL and not _holds(new, old):
        return low_bits(new, lanes, value)
    return value


def _holds(new: DType, old: DType) -> bool:
    """True if `new` can represent every value of `old`."""
    if old not in _RANGE:
        return False
    (lo, hi), (low, high) = _RANGE[new], _RANGE[old]
    return lo <= low and high <= hi


def _steps(value: Expr, a: str, z: str) -> Expr:
    if a == z:
        return value
    if (a, z) not in _STEPS:
        raise CompilerBug(f"no cast from {a} to {z}")
    for name in _STEPS[a, z]:
        value = op(name, value)
    return value


def _truth(b: FuncBuilder, value: Expr, shape: str) -> Expr:
    """value != 0; NaN is true."""
    zero: Expr
    if shape in ("f32x4", "i32x4"):
        zero = b.f32x4(0.0) if shape == "f32x4" else b.i32x4(0)
    else:
        zero = Op(f"{shape}.const", (), (0,))
    return op(f"{shape}.ne", value, zero)


def _saturate(b: FuncBuilder, value: Expr, new: DType, lanes: int) -> Expr:
    lo, hi = _RANGE[new]
    if lanes > 1:
        return op("i32x4.min_s", op("i32x4.max_s", value, b.i32x4(lo)), b.i32x4(hi))
    x = b.let(value, "i32")
    x = b.let(op("select", const(lo), x, op("i32.lt_s", x, const(lo))), "i32")
    return op("select", const(hi), x, op("i32.gt_s", x, const(hi)))
