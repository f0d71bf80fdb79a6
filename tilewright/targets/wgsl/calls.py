"""Tables of the WGSL text of scalar functions, by name and kind of type.

Input: none.  Output: patterns, in which {0} and {1} stand for operands, {t} for their type, {r} for
the result's type and {u} for the type of shifts.  Functions without WGSL text are in prelude.py.
"""

from __future__ import annotations

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
