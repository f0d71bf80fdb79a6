"""The WGSL text of scalar functions: tables by name and kind of type, and two faster texts.

Input: none for the tables: in patterns {0} and {1} stand for operands, {t} for their type, {r} for
the result's type and {u} for the type of shifts.  Functions without WGSL text are in prelude.py.
For `max_magnitude` and `nibble_as_f32`, an expression; their output is its text, or None for other
expressions.

`max_magnitude` compares two magnitudes as integers: non-negative floats have the same order as
their bits, with NaN above all, so no test for NaN is needed, and vectors can be compared.

`nibble_as_f32` converts 4-bit integers to f32 by bit operations: on GPUs a conversion is slower
than an addition.  The 4 bits, at a constant place of a word, are put into the fraction of a number
whose exponent matches their place, so only bits at the high end of a word need a shift:

    f32(nibble(w, 8)) - 8   ->   bitcast<f32>((w & 0xf00) | exponent of 2^15) - (2^15 + 8)
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base.dtypes import F32, I32
from tilewright.kernel.expr import Call, Const, Expr

ARITHMETIC = {"add": "({0} + {1})", "sub": "({0} - {1})", "mul": "({0} * {1})", "neg": "(-{0})"}
ANY = {
    "lt": "({0} < {1})", "le": "({0} <= {1})", "eq": "({0} == {1})", "and": "({0} && {1})",
    "or": "({0} || {1})", "not": "(!{0})", "where": "select({2}, {1}, {0})",
}  # fmt: skip
FLOAT = {
    **ARITHMETIC, "abs": "abs({0})", "fma": "fma({0}, {1}, {2})", "floor": "floor({0})",
    "ceil": "ceil({0})", "round": "round({0})", "bits": "bitcast<{r}>({0})",
    **{n: f"f32_{n}({{0}}, {{1}})" for n in ("max", "min", "pow", "div", "rem", "lt", "le", "eq")},
    **{n: f"f32_{n}({{0}})" for n in ("exp", "log", "tanh", "erf", "sin", "cos", "tan", "sqrt")},
    "expm1": "f32_expm1_of_all({0})", "log1p": "f32_log1p({0})",
    "f16": "f32_nearest_f16({0})", "bf16": "f32_nearest_bf16({0})",
}  # fmt: skip
INTEGER = {
    **ARITHMETIC, "div": "{t}_div({0}, {1})", "abs": "abs({0})", "max": "max({0}, {1})",
    "min": "min({0}, {1})", "nibble": "(({0} >> {u}({1})) & {t}(15))",
}  # fmt: skip
LONG = {
    "add": "i64_add({0}, {1})", "sub": "i64_sub({0}, {1})", "mul": "i64_mul({0}, {1})",
    "div": "i64_div({0}, {1})", "neg": "i64_neg({0})", "abs": "i64_abs({0})",
    "max": "select({0}, {1}, i64_lt({0}, {1}))", "min": "select({1}, {0}, i64_lt({0}, {1}))",
    "lt": "i64_lt({0}, {1})", "le": "!i64_lt({1}, {0})", "eq": "i64_eq({0}, {1})",
}  # fmt: skip

#: Truncates integers of less than 32 bits.
CUT = {
    "i8": "extractBits({0}, 0u, 8u)",
    "i16": "extractBits({0}, 0u, 16u)",
    "u8": "({0} & 0xffu)",
}

#: Converts a word of memory to a value of a type, and back.
UNPACK = {
    "f32": "bitcast<f32>({0})", "i32": "bitcast<i32>({0})", "u32": "{0}", "bool": "({0} != 0u)",
}  # fmt: skip
PACK = {
    "f32": "bitcast<u32>({0})", "i32": "bitcast<u32>({0})", "u32": "{0}",
    "bool": "select(0u, 1u, {0})",
}  # fmt: skip


def max_magnitude(e: Call, args: list[str]) -> str | None:
    """The text of max(|a|, |b|)."""
    if e.fn != "max" or e.dtype != F32 or not all(map(_is_magnitude, e.operands)):
        return None
    whole, real = (t if e.lanes == 1 else f"vec{e.lanes}<{t}>" for t in ("u32", "f32"))
    a, b = (f"bitcast<{whole}>({text})" for text in args)
    return f"bitcast<{real}>(max({a}, {b}))"


def _is_magnitude(e: Expr) -> bool:
    match e:
        case Const(value, _, _):
            return value > 0
        case Call("abs", _, _, _):
            return True
        case Call("max", operands, _, _):
            return all(map(_is_magnitude, operands))
    return False


#: Bits of an f32's fraction; the last place of a nibble that lies wholly within them; the shift of
#: later nibbles.
MANTISSA, LAST, SHIFT = 23, 16, 12
BIAS = 127


def nibble_as_f32(e: Call, text_of: Callable[[Expr], str]) -> str | None:
    """The text of (f32(nibble(words, place)) - zero), where place and zero are constants."""
    number, zero = e, 0.0
    if e.fn == "sub" and isinstance(e.operands[0], Call) and isinstance(e.operands[1], Const):
        number, zero = e.operands[0], float(e.operands[1].value)
    if number.fn != "cast" or number.dtype != F32 or not zero.is_integer() or abs(zero) > 16:
        return None
    (nibble,) = number.operands
    if not isinstance(nibble, Call) or nibble.fn != "nibble" or nibble.dtype != I32:
        return None
    words, place = nibble.operands
    if not isinstance(place, Const):
        return None
    lanes = nibble.lanes
    whole, real = ("i32", "f32") if lanes == 1 else (f"vec{lanes}<i32>", f"vec{lanes}<f32>")
    text, at = text_of(words), int(place.value)
    if at > LAST:
        text, at = f"({text} >> {whole.replace('i32', 'u32')}({SHIFT}))", at - SHIFT
    bits = f"({text} & {whole}({15 << at})) | {whole}({BIAS + MANTISSA - at << MANTISSA:#x})"
    return f"(bitcast<{real}>({bits}) - {real}({2 ** (MANTISSA - at) + zero}))"
