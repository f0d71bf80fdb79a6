"""Shared by C and CUDA C++: type names, the text of scalar functions, and the syntax of loops.

Input: expressions and statements of loops.  Output: text.  Function signatures, and what only one
of the two languages has, are in targets/c and targets/cuda.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilewright.base.dtypes import BOOL, DTYPES, F32, DType
from tilewright.kernel.expr import Call, dtype_of
from tilewright.kernel.loops import LetGather
from tilewright.targets.brace_text import Dialect

#: The variable in which a kernel leaves an index that is out of range.
FOUND = "index_found"

TYPES = {
    "f32": "float", "f64": "double", "i8": "int8_t", "u8": "uint8_t", "i16": "int16_t",
    "i32": "int32_t", "i64": "int64_t", "bool": "uint8_t",
}  # fmt: skip

#: Text of functions of integers and bool, by name; {0}, {1} are the arguments, {t} the dtype's
#: name.
_INTEGER = {
    "add": "({0} + {1})", "sub": "({0} - {1})", "mul": "({0} * {1})", "div": "div_{t}({0}, {1})",
    "neg": "(-{0})", "abs": "({0} < 0 ? -{0} : {0})",
    "max": "({0} > {1} ? {0} : {1})", "min": "({0} < {1} ? {0} : {1})",
    "nibble": "(({0} >> {1}) & 15)",
}  # fmt: skip
#: Text of functions of floats, by name; {f} is the suffix of the math library's functions.
FLOAT = {
    "add": "({0} + {1})", "sub": "({0} - {1})", "mul": "({0} * {1})", "div": "({0} / {1})",
    "neg": "(-{0})", "abs": "fabs{f}({0})", "fma": "fma{f}({0}, {1}, {2})",
    "max": "max_{t}({0}, {1})", "min": "min_{t}({0}, {1})", "sqrt": "sqrt{f}({0})",
    "floor": "floor{f}({0})", "ceil": "ceil{f}({0})", "round": "rint{f}({0})",
    "exp": "exp{f}({0})", "log": "log{f}({0})", "tanh": "tanh{f}({0})", "erf": "erf{f}({0})",
    "sin": "sin{f}({0})", "cos": "cos{f}({0})", "tan": "tan{f}({0})", "pow": "pow{f}({0}, {1})",
    "expm1": "expm1{f}({0})", "log1p": "log1p{f}({0})", "rem": "fmod{f}({0}, {1})",
    "f16": "nearest_f16({0})", "bf16": "nearest_bf16({0})",
    "bits": "(union {{ float f; int32_t i; }}){{ .f = {0} }}.i",
}  # fmt: skip
_ANY = {
    "lt": "({0} < {1})", "le": "({0} <= {1})", "eq": "({0} == {1})", "and": "({0} && {1})",
    "or": "({0} || {1})", "not": "(!{0})", "where": "({0} ? {1} : {2})",
}  # fmt: skip

#: Rounds an f32 to the nearest f16 or bf16, ties to even, on the bits of the f32.
_NEAREST = """\
union bits_of_float {{ float value; unsigned bits; }};
{inline} unsigned bits_of(float x) {{ union bits_of_float u; u.value = x; return u.bits; }}
{inline} float float_of(unsigned bits) {{ union bits_of_float u; u.bits = bits; return u.value; }}
{inline} float nearest_f16(float x) {{
  const unsigned size = bits_of(x) & 0x7fffffffu, sign = bits_of(x) & 0x80000000u;
  const unsigned normal = (size + 0xfffu + (size >> 13 & 1u)) & 0xffffe000u;
  const unsigned small = bits_of(rintf(float_of(size) * 16777216.0f) * 5.9604645e-8f);
  const unsigned found = size < 0x38800000u ? small : normal;
  return x != x ? x : float_of(sign | (found < 0x47800000u ? found : 0x7f800000u));
}}
{inline} float nearest_bf16(float x) {{
  const unsigned bits = bits_of(x), even = bits + 0x7fffu + (bits >> 16 & 1u);
  return x != x ? x : float_of(even & 0xffff0000u);
}}"""


def rules(inline: str) -> list[str]:
    """Helper functions for scalar functions of base/scalars.py that C has no operator for.

    inline: the words before each function's return type
    """
    lines = []
    for name, c in TYPES.items():
        dtype = DTYPES[name]
        if dtype.is_float:
            for which, sign in (("max", ">"), ("min", "<")):
                lines.append(
                    f"{inline} {c} {which}_{name}({c} a, {c} b) "
                    f"{{ return a != a ? a : b != b ? b : a {sign} b ? a : b; }}"
                )
            lines += [_cast(dtype, other, inline) for other in DTYPES.values() if _is_whole(other)]
        elif dtype != BOOL:
            minus = " : b == -1 ? -a" if dtype.kind == "int" else ""
            lines.append(
                f"{inline} {c} div_{name}({c} a, {c} b) {{ return b == 0 ? 0{minus} : a / b; }}"
            )
    return [*lines, _NEAREST.format(inline=inline)]


def _is_whole(dtype: DType) -> bool:
    return not dtype.is_float and dtype != BOOL


def _cast(source: DType, to: DType, inline: str) -> str:
    """Text of a cast.  Floats become integers by truncation; out of range saturates, NaN gives
    0."""
    low, high = _range(to)
    # The limit is the first float beyond the range: the largest integer may have no exact float.
    f = "f" if source == F32 else ""
    body = f"x != x ? 0 : x < {low}.0{f} ? {_whole(low)} : x >= {high + 1}.0{f} ? {_whole(high)}"
    head = f"{inline} {TYPES[to.name]} {source.name}_to_{to.name}({TYPES[source.name]} x)"
    return f"{head} {{ return {body} : ({TYPES[to.name]})x; }}"


def _range(dtype: DType) -> tuple[int, int]:
    bits = dtype.size * 8
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.kind == "int" else (0, (1 << bits) - 1)


def _whole(value: int) -> str:
    """Text of an integer literal.  C has no literal for the smallest 64-bit integer."""
    return f"({value + 1}LL - 1)" if value == -(1 << 63) else f"{value}LL"


class CDialect(Dialect):
    """The syntax that C and CUDA C++ share.  Buffers are typed pointers `b0`, `b1`, …"""

    floats: Mapping[str, str] = FLOAT

    def literal(self, value: float | int | bool, dtype: DType) -> str:
        if not dtype.is_float:
            return f"({TYPES[dtype.name]}){_whole(int(value))}"
        if value != value:
            return "NAN"
        if math.isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        return f"({TYPES[dtype.name]}){float(value).hex()}"

    def call(self, e: Call, args: list[str]) -> str:
        dtype = dtype_of(e.operands[-1])
        if e.fn == "cast":
            return self._cast(args[0], dtype, e.dtype)
        table = {**_ANY, **(self.floats if dtype.is_float else _INTEGER)}
        text = table[e.fn].format(*args, t=dtype.name, f="f" if dtype == F32 else "")
        # C computes small integers and bool as int, so the result is cast back.
        return f"({TYPES[e.dtype.name]}){text}" if not e.dtype.is_float else text

    def _cast(self, text: str, source: DType, to: DType) -> str:
        if to == BOOL:
            return f"({text} != 0)"
        if source.is_float and not to.is_float:
            return f"{source.name}_to_{to.name}({text})"
        return f"({TYPES[to.name]}){text}"

    def load(self, buffer: int, at: str, dtype: DType, lanes: int) -> str:
        return f"b{buffer}[{at}]"

    def store(self, buffer: int, at: str, value: str, dtype: DType, lanes: int) -> str:
        return f"b{buffer}[{at}] = {value};"

    def number(self, at: str, dtype: DType) -> str:
        return f"({TYPES[dtype.name]})({at})"

    def choose(self, condition: str, value: str, default: str) -> str:
        return f"({condition} ? {value} : {default})"

    def all(self, conditions: list[str]) -> str:
        return " && ".join(conditions) or "1"

    def scalar(self, number: int) -> str:
        return f"scalars[{number}]"

    def declare(self, name: str, dtype: DType, lanes: int) -> str:
        return f"{TYPES[dtype.name]} {name};"

    def let(self, name: str, value: str) -> str:
        return f"const long {name} = {value};"

    def loop(self, name: str, begin: str, end: str, step: int, most: int) -> str:
        return f"for (long {name} = {begin}; {name} < {end}; {name} += {step}) {{"

    def barrier(self, subgroup_only: bool) -> str:
        return ";"

    def gather(self, s: LetGather, value: str, dtype: DType) -> str:
        name, extent = s.var.name, s.var.extent
        ends = "return 1;"
        if s.check is not None:
            ends = f"{{ {FOUND} = {name}; return {1 + s.check}; }}"
        return f"const long {name} = {value}; if ({name} < 0 || {name} >= {extent}) {ends}"
