"""How Wasm computes each scalar function: tables from (function, shape) to instructions.

Input: a function of `base/scalars.py` and its lowered arguments.  Output: an expression. A *shape*
is the form of a dtype on the operand stack: f32 f64 i32 i64 (i8 and u8 are i32 there), flag (a
scalar bool, 0 or 1), f32x4, i32x4, mask (a vector bool, all ones or all zeros per lane).
Conversions are in `casts.py`, transcendental functions in `mathlib.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tilewright.base.dtypes import BOOL, F32, F64, I8, I16, I32, I64, U8, DType
from tilewright.base.errors import CompilerBug, ensure
from tilewright.targets.wasm import int64_math
from tilewright.targets.wasm.encode import f32_bits, f64_bits
from tilewright.targets.wasm.function_builder import FuncBuilder
from tilewright.targets.wasm.ir import Expr, Load, Op, const, is_const, op, times

Recipe = Callable[..., Expr]

_SCALAR = {
    F32: "f32", F64: "f64", I64: "i64", I32: "i32", I16: "i32", I8: "i32", U8: "i32", BOOL: "flag",
}  # fmt: skip
_VECTOR = {F32: "f32x4", I32: "i32x4", I16: "i32x4", I8: "i32x4", U8: "i32x4", BOOL: "mask"}

#: Vectors with packed lanes: operands of dot products, and bytes that are only copied.
_PACKED = {(I8, 16): "i8x16", (U8, 16): "i8x16", (I16, 8): "i16x8"}

#: Wasm value type of each shape.
VALTYPE = {
    "f32": "f32",
    "f64": "f64",
    "i32": "i32",
    "i64": "i64",
    "flag": "i32",
    "f32x4": "v128",
    "i32x4": "v128",
    "mask": "v128",
    "i8x16": "v128",
    "i16x8": "v128",
}


@cache
def shape_of(dtype: DType, lanes: int) -> str:
    """The shape of a value; a vector has four lanes, or is packed."""
    if (dtype, lanes) in _PACKED:
        return _PACKED[dtype, lanes]
    table = _SCALAR if lanes == 1 else _VECTOR if lanes == 4 else {}
    if dtype not in table:
        raise CompilerBug(f"no Wasm value holds {lanes} lanes of {dtype}")
    return table[dtype]


def scalar_const(shape: str, value: float | int | bool) -> Expr:
    """A scalar literal."""
    if shape == "f32":
        return Op("f32.const", (), (f32_bits(float(value)),))
    if shape == "f64":
        return Op("f64.const", (), (f64_bits(float(value)),))
    if shape == "i64":
        return Op("i64.const", (), (int(value),))
    return const(int(bool(value)) if shape == "flag" else int(value))


def cell(shape: str) -> str:
    """The instruction prefix for lanes: a mask has lanes of i32."""
    return "i32x4" if shape == "mask" else shape


def flag_to_mask(flag: Expr) -> Expr:
    """A flag, 0 or 1, as a lane of a mask."""
    if is_const(flag):
        return times(flag, -1)
    return op("i32.sub", const(0), flag)


# ---- one instruction -----------------------------------------------------------------------------

_FLOAT = ("add", "sub", "mul", "div", "neg", "abs", "sqrt", "floor", "ceil")
_ORDER = ("lt", "le", "eq")
_INT = {"add": "add", "sub": "sub", "mul": "mul", "lt": "lt_s", "le": "le_s", "eq": "eq"}
_INTX4 = {**_INT, "neg": "neg", "abs": "abs", "max": "max_s", "min": "min_s"}
_FLAG = {"and": "and", "or": "or", "not": "eqz", "max": "or", "min": "and"}
_MASK = {"eq": "i32x4.eq", "lt": "i32x4.lt_u", "le": "i32x4.le_u", "and": "v128.and"}

ONE: dict[tuple[str, str], str] = {
    **{(fn, s): f"{s}.{fn}" for s in ("f32", "f64", "f32x4") for fn in _FLOAT + _ORDER},
    **{(fn, s): f"{s}.{fn}" for s in ("f32", "f64") for fn in ("max", "min")},
    **{("round", s): f"{s}.nearest" for s in ("f32", "f64", "f32x4")},
    **{(fn, s): f"{s}.{name}" for s in ("i32", "i64") for fn, name in _INT.items()},
    **{(fn, "i32x4"): f"i32x4.{name}" for fn, name in _INTX4.items()},
    **{(fn, "flag"): f"i32.{name}" for fn, name in {**_INT, **_FLAG}.items()},
    **{(fn, "mask"): name for fn, name in _MASK.items()},
    ("or", "mask"): "v128.or",
    ("max", "mask"): "v128.or",
    ("not", "mask"): "v128.not",
    ("min", "mask"): "v128.and",
}


# ---- several instructions ------------------------------------------------------------------------


def _zero(shape: str) -> Expr:
    return Op(f"{shape}.const", (), (0,))


def _pick(compare: str) -> Callable[[str], Recipe]:
    """max and min of integers: select(a, b, a compare b)."""

    def make(shape: str) -> Recipe:
        def recipe(b: FuncBuilder, x: Expr, y: Expr) -> Expr:
            x, y = b.let(x, shape), b.let(y, shape)
            return op("select", x, y, op(f"{shape}.{compare}", x, y))

        return recipe

    return make


def _neg(shape: str) -> Recipe:
    return lambda _, x: op(f"{shape}.sub", _zero(shape), x)


def _abs(shape: str) -> Recipe:
    def recipe(b: FuncBuilder, x: Expr) -> Expr:
        x = b.let(x, shape)
        minus = op(f"{shape}.sub", _zero(shape), x)
        return op("select", minus, x, op(f"{shape}.lt_s", x, _zero(shape)))

    return recipe


def _div(shape: str) -> Recipe:
    """Division that never traps: x / 0 = 0, and x / -1 = -x wraps (both are x * divisor)."""

    def recipe(b: FuncBuilder, x: Expr, y: Expr) -> Expr:
        one = Op(f"{shape}.const", (), (1,))
        x, y = b.let(x, shape), b.let(y, shape)
        special = b.let(op(f"{shape}.le_u", op(f"{shape}.add", y, one), one), "i32")
        safe = op("select", one, y, special)
        return op("select", op(f"{shape}.mul", x, y), op(f"{shape}.div_s", x, safe), special)

    return recipe


def madd(b: FuncBuilder, x: Expr, y: Expr, z: Expr) -> Expr:
    """x * y + z on f32x4: one instruction where the variant has it (see emit.py)."""
    b.relaxed = True
    return Op("f32x4.relaxed_madd", (x, y, z))


def nmadd(b: FuncBuilder, x: Expr, y: Expr, z: Expr) -> Expr:
    """z - x * y on f32x4; the values must be in registers, since z may be pushed first."""
    ensure(not any(isinstance(e, Load) for e in (x, y, z)), "z may not be pushed before a load")
    b.relaxed = True
    return Op("f32x4.relaxed_nmadd", (x, y, z))


def select_lanes(b: FuncBuilder, mask: Expr, x: Expr, y: Expr) -> Expr:
    """x where the mask is set, else y, lane by lane; a mask lane is all ones or all zeros."""
    # x86 can blend by a mask in one instruction; v128.bitselect takes several.
    b.relaxed = True
    return Op("i32x4.relaxed_laneselect", (x, y, mask))


def _nibble(b: FuncBuilder, x: Expr, shift: Expr) -> Expr:
    return op("i32.and", op("i32.shr_u", x, shift), const(15))


def _nibbles(b: FuncBuilder, x: Expr, shift: Expr) -> Expr:
    """Nibbles of a word.  The shift is a scalar (see `Values.call`); the lowest and the highest
    bits need one instruction less."""
    moved = x if shift == const(0) else op("i32x4.shr_u", x, shift)
    return moved if shift == const(28) else op("v128.and", moved, b.i32x4(15))


def _multiply_add(shape: str) -> Recipe:
    return lambda _, x, y, z: op(f"{shape}.add", op(f"{shape}.mul", x, y), z)


def _where(_: FuncBuilder, c: Expr, x: Expr, y: Expr) -> Expr:
    return op("select", x, y, c)


def _rem(b: FuncBuilder, x: Expr, y: Expr) -> Expr:
    """The remainder of f32, computed in f64; the result is always an f32."""
    wide = (op("f64.promote_f32", v) for v in (x, y))
    return op("f32.demote_f64", int64_math.call(b, "rem", *wide))


def _extreme(fn: str) -> Recipe:
    """max or min of f32x4 that keeps a NaN of either side; f32x4.max takes x86 eight instructions.

    pmax(x, y) is `x < y ? y : x`, which keeps a NaN in x.  Where y is NaN, all bits are set.
    """

    def recipe(b: FuncBuilder, x: Expr, y: Expr) -> Expr:
        if b.has("extremes"):
            return op(f"f32x4.{fn}", x, y)
        y = b.vec(y)
        return op("v128.or", op(f"f32x4.p{fn}", x, y), op("f32x4.ne", y, y))

    return recipe


SEVERAL: dict[tuple[str, str], Recipe] = {
    **{("neg", s): _neg(s) for s in ("i32", "i64")},
    **{("abs", s): _abs(s) for s in ("i32", "i64")},
    **{("max", s): _pick("gt_s")(s) for s in ("i32", "i64")},
    **{("min", s): _pick("lt_s")(s) for s in ("i32", "i64")},
    **{("div", s): _div(s) for s in ("i32", "i64")},
    **{("fma", s): _multiply_add(s) for s in ("f32", "f64", "i32", "i64", "i32x4")},
    ("fma", "f32x4"): madd,
    ("max", "f32x4"): _extreme("max"),
    ("min", "f32x4"): _extreme("min"),
    ("rem", "f32"): _rem,
    ("rem", "f64"): lambda b, x, y: int64_math.call(b, "rem", x, y),
    ("bits", "f32"): lambda _, x: op("i32.reinterpret_f32", x),
    ("bits", "f32x4"): lambda _, x: x,
    ("bits", "f64"): lambda _, x: op("i32.reinterpret_f32", op("f32.demote_f64", x)),
    ("nibble", "i32"): _nibble,
    ("nibble", "i32x4"): _nibbles,
    **{("where", s): _where for s in ("f32", "f64", "i32", "i64", "flag")},
    **{("where", s): select_lanes for s in ("f32x4", "i32x4", "mask")},
}


# ---- narrow integers ---------------------------------------------------------------------------

#: Arithmetic after which a value of 8 or 16 bits may be out of range.
_GROWS = frozenset({"add", "sub", "mul", "div", "neg", "abs", "fma"})


def wrap(dtype: DType, lanes: int, fn: str, value: Expr) -> Expr:
    """The value wrapped to its dtype: arithmetic of 8 or 16 bits may have left the range."""
    narrow = dtype.size < I32.size and dtype != BOOL
    return low_bits(dtype, lanes, value) if narrow and fn in _GROWS else value


def low_bits(dtype: DType, lanes: int, value: Expr) -> Expr:
    """An i32 modulo 2^8 or 2^16, in the form that an i8, u8 or i16 has on the stack."""
    if lanes > 1:
        right = "i32x4.shr_u" if dtype == U8 else "i32x4.shr_s"
        gone = const(32 - 8 * dtype.size)
        return op(right, op("i32x4.shl", value, gone), gone)
    if dtype == U8:
        return op("i32.and", value, const(255))
    return op("i32.extend8_s" if dtype == I8 else "i32.extend16_s", value)


def clamp_const(b: FuncBuilder, fn: str, shape: str, value: Expr, limit: Expr) -> Expr:
    """max or min with a limit that is not NaN (ReLU, Clip); a NaN in `value` stays NaN.

    pmax(a, b) is `a < b ? b : a`, which keeps a NaN in a, and is one x86 instruction.
    """
    if shape == "f32x4":
        return op("f32x4.pmax" if fn == "max" else "f32x4.pmin", value, limit)
    compare = f"{shape}.lt" if fn == "max" else f"{shape}.gt"
    value = b.let(value, shape)
    return op("select", limit, value, op(compare, value, limit))
