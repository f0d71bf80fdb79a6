"""The table of scalar functions: what the elementwise op may compute, on every target.

Input: a function name.  Output: arity, result dtype, meaning (Python), accuracy bound, test domain.
Constant folding, the interpreters, the targets and the tests read this table; a target only decides
how it computes a function.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tilewright.base.dtypes import BOOL, I32, DType
from tilewright.base.errors import required

Number = float | int | bool
Result = Literal["same", "bool", "i32", "cast"]


@dataclass(frozen=True)
class ScalarFn:
    """One scalar function.

    result: "same": dtype of the last argument, "bool": BOOL, "i32": I32, "cast": the node's own
            dtype
    ulp:    bound of the f32 error on `domain`, in units in the last place; 0: correctly rounded
    domain: lowest and highest argument in tests
    """

    name: str
    arity: int
    meaning: Callable[..., Number]
    result: Result = "same"
    ulp: float = 0.0
    domain: tuple[float, float] = (-8.0, 8.0)
    floats_only: bool = False

    def dtype(self, args: tuple[DType, ...], own: DType | None = None) -> DType:
        if self.result == "bool":
            return BOOL
        if self.result == "i32":
            return I32
        if self.result == "cast":
            return required(own, "a cast to nothing", function=self.name)
        return args[-1]


def _nan_max(a: float, b: float) -> float:
    return a if a != a else b if b != b else max(a, b)


def _nan_min(a: float, b: float) -> float:
    return a if a != a else b if b != b else min(a, b)


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _log(x: float) -> float:
    if x == 0:
        return -math.inf
    return math.log(x) if x > 0 else math.nan


def _expm1(x: float) -> float:
    try:
        return math.expm1(x)
    except OverflowError:
        return math.inf


def _log1p(x: float) -> float:
    return math.log1p(x) if x > -1 else -math.inf if x == -1 else math.nan


def _rem(a: float, b: float) -> float:
    return math.fmod(a, b) if math.isfinite(a) and b else math.nan


def _div(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0
    if b == 0:
        bad = a == 0 or a != a
        return math.nan if bad else math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _pow(a: float, b: float) -> float:
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and _is_odd(b) else math.inf
    except ValueError:  # 0 to a negative power, or a root of a negative number
        return math.nan if a else math.copysign(math.inf, a) if _is_odd(b) else math.inf


def _is_odd(b: float) -> bool:
    return b % 2 == 1


def _sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan


def _round_even(x: float) -> float:
    return x if not math.isfinite(x) else math.copysign(float(round(x)), x)


def _keep(x: float, fn: Callable[[float], float]) -> float:
    return math.copysign(float(fn(x)), x) if math.isfinite(x) else x  # ceil(-0.5) is -0


def _trig(fn: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: fn(x) if math.isfinite(x) else math.nan


def _nearest_f16(x: float) -> float:
    try:
        return float(struct.unpack("e", struct.pack("e", x))[0])
    except OverflowError:
        return math.copysign(math.inf, x)


def _nearest_bf16(x: float) -> float:
    """bf16 is the upper half of an f32.  Rounding may carry from the fraction into the exponent;
    that gives the right number, also where it gives infinity."""
    if x != x:
        return x
    bits = _bits(x) & 0xFFFFFFFF
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return float(struct.unpack("f", struct.pack("I", rounded))[0])


def _bits(x: float) -> int:
    """The 32 bits of a number as f32."""
    try:
        packed = struct.pack("<f", x)
    except OverflowError:
        packed = struct.pack("<f", math.copysign(math.inf, x))
    (bits,) = struct.unpack("<i", packed)
    return int(bits)


#: The domain on which functions of angles are tested.
ALL = (-3e38, 3e38)

# Wasm has no fused multiply-add outside relaxed SIMD, so "fma" allows both roundings.
_ROWS = (
    ScalarFn("add", 2, lambda a, b: a + b),
    ScalarFn("sub", 2, lambda a, b: a - b),
    ScalarFn("mul", 2, lambda a, b: a * b),
    ScalarFn("div", 2, _div),
    ScalarFn("max", 2, _nan_max),
    ScalarFn("min", 2, _nan_min),
    ScalarFn("neg", 1, lambda a: -a),
    ScalarFn("abs", 1, abs),
    ScalarFn("fma", 3, lambda a, b, c: a * b + c, ulp=1.0, floats_only=True),
    ScalarFn("sqrt", 1, _sqrt, domain=(0.0, 1e6), floats_only=True),
    ScalarFn("floor", 1, lambda x: _keep(x, math.floor), floats_only=True),
    ScalarFn("ceil", 1, lambda x: _keep(x, math.ceil), floats_only=True),
    ScalarFn("round", 1, _round_even, floats_only=True),
    ScalarFn("exp", 1, _exp, ulp=2.0, domain=(-87.0, 88.0), floats_only=True),
    ScalarFn("log", 1, _log, ulp=2.0, domain=(1e-30, 1e30), floats_only=True),
    ScalarFn("tanh", 1, math.tanh, ulp=4.0, domain=(-20.0, 20.0), floats_only=True),
    ScalarFn("erf", 1, math.erf, ulp=4.0, domain=(-6.0, 6.0), floats_only=True),
    ScalarFn("sin", 1, _trig(math.sin), ulp=4.0, domain=ALL, floats_only=True),
    ScalarFn("cos", 1, _trig(math.cos), ulp=4.0, domain=ALL, floats_only=True),
    ScalarFn("tan", 1, _trig(math.tan), ulp=4.0, domain=ALL, floats_only=True),
    ScalarFn("expm1", 1, _expm1, ulp=3.0, domain=(-100.0, 88.7), floats_only=True),
    ScalarFn("log1p", 1, _log1p, ulp=3.0, domain=(-0.9999, 1e30), floats_only=True),
    # the remainder of a division that rounds toward zero: it has the sign of the first operand
    ScalarFn("rem", 2, _rem, domain=(-1e30, 1e30), floats_only=True),
    ScalarFn("f16", 1, _nearest_f16, domain=(-7e4, 7e4), floats_only=True),
    ScalarFn("bf16", 1, _nearest_bf16, domain=(-7e4, 7e4), floats_only=True),
    ScalarFn("pow", 2, _pow, ulp=16.0, domain=(0.01, 8.0), floats_only=True),
    ScalarFn("lt", 2, lambda a, b: a < b, result="bool"),
    ScalarFn("le", 2, lambda a, b: a <= b, result="bool"),
    ScalarFn("eq", 2, lambda a, b: a == b, result="bool"),
    ScalarFn("and", 2, lambda a, b: bool(a) and bool(b), result="bool"),
    ScalarFn("or", 2, lambda a, b: bool(a) or bool(b), result="bool"),
    ScalarFn("not", 1, lambda a: not a, result="bool"),
    ScalarFn("bits", 1, _bits, result="i32", floats_only=True),
    ScalarFn("nibble", 2, lambda a, b: a >> b & 15),
    ScalarFn("where", 3, lambda c, a, b: a if c else b),
    ScalarFn("cast", 1, lambda a: a, result="cast"),
)

SCALARS: dict[str, ScalarFn] = {row.name: row for row in _ROWS}

#: Reductions, with their neutral elements.
REDUCTIONS: dict[str, float] = {"sum": 0.0, "max": -math.inf, "min": math.inf, "prod": 1.0}

#: The scalar function that combines two partial results of a reduction.
COMBINE: dict[str, str] = {"sum": "add", "max": "max", "min": "min", "prod": "mul"}
