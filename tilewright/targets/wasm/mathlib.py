"""exp, log, tanh, erf, sin, cos, tan, pow, expm1 and log1p on four f32 lanes, as Wasm IR.

Input: a builder and v128 arguments.  Output: a v128 expression; earlier steps are added to the
builder.  Polynomials and range reductions are our own: `lab/mathfit.py` computes the coefficients.
The `ulp` column of base/scalars.py has the error bounds, which hold with and without fused
multiply-add.  Limits: exp underflows to 0 below -87.33 and overflows to inf; log(0) = -inf, log(<0)
= NaN; NaN stays NaN.  `f16` and `bf16` round lanes to the nearest number of 16 bits, ties to even.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import reduce

from tilewright.kernel import expr as k
from tilewright.kernel import loops as l
from tilewright.kernel.loops import For, LetGather, Set, Stmt, Store, TileFn
from tilewright.targets.coefficients import COEFFICIENTS, HALF_PI, LN2_HIGH, LN2_LOW, LOG2E
from tilewright.targets.wasm import int64_math
from tilewright.targets.wasm.function_builder import FuncBuilder
from tilewright.targets.wasm.ir import Assign, Expr, Func, If, Invoke, Local, Op, const, op
from tilewright.targets.wasm.scalar_instructions import madd, nmadd, select_lanes
from tilewright.targets.wasm.variant import WasmVariant

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
    value = select_lanes(b, endless, b.i32x4(EXPONENT), rounded)
    return op("v128.or", value, op("v128.xor", x, size))


def bf16(b: FuncBuilder, x: Expr) -> Expr:
    """Rounds the upper half of the bits; a carry out of the fraction is correct, up to infinity."""
    x = b.vec(x)
    odd = op("v128.and", op("i32x4.shr_u", x, const(16)), b.i32x4(1))
    carried = op("i32x4.add", op("i32x4.add", x, b.i32x4(0x7FFF)), odd)
    even = b.vec(op("v128.and", carried, b.i32x4(-(1 << 16))))
    return select_lanes(b, op("f32x4.eq", x, x), even, x)


#: The largest angle that is reduced by parts of pi / 2; `longs.angle` reduces larger ones.
FAR = 8192.0
FAR_NAME = "far_{}"

#: 1.5 * 2^23.  Adding it rounds to an integer, which is then in the low bits.
ROUND = 12582912.0

SIGN = -(1 << 31)
NAN_BITS, INF_BITS = 0x7FC00000, 0x7F800000

#: The least coefficients of a long polynomial.
LONG = 8

Math = Callable[..., Expr]


def _poly(b: FuncBuilder, name: str, x: Expr, sign: float = 1.0) -> Expr:
    """Evaluates a polynomial by Horner's rule, or by Estrin's if it is long: its dependency chain
    is a third as long."""
    terms: list[Expr] = [b.f32x4(sign * c) for c in COEFFICIENTS[name]]
    if len(terms) < LONG:
        return reduce(lambda total, c: madd(b, total, x, c), reversed(terms))
    power = b.vec(x)
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        odd = terms[-1:] if len(terms) % 2 else []
        terms = [b.vec(madd(b, high, power, low)) for low, high in pairs] + odd
        power = b.vec(_mul(power, power))
    return terms[0]


def _mul(x: Expr, y: Expr) -> Expr:
    return op("f32x4.mul", x, y)


def _add(x: Expr, y: Expr) -> Expr:
    return op("f32x4.add", x, y)


def _sub(x: Expr, y: Expr) -> Expr:
    return op("f32x4.sub", x, y)


def _clamp(b: FuncBuilder, x: Expr, low: float, high: float) -> Local:
    """Clamps x to [low, high]; pmax and pmin keep a NaN in their first operand."""
    return b.vec(op("f32x4.pmin", op("f32x4.pmax", x, b.f32x4(low)), b.f32x4(high)))


def _power_of_two(b: FuncBuilder, n: Expr) -> Local:
    """2^n for an integral f32 n in [-127, 128]; 2^-127 becomes 0, 2^128 infinity."""
    return b.vec(op("i32x4.shl", _add(n, b.f32x4(ROUND + 127)), const(23)))


def _reduce(b: FuncBuilder, x: Local, n: Local) -> Local:
    """x - n * ln 2"""
    return b.vec(nmadd(b, n, b.f32x4(LN2_LOW), nmadd(b, n, b.f32x4(LN2_HIGH), x)))


def exp(b: FuncBuilder, x: Expr) -> Expr:
    """x = n ln 2 + r with r in [0, ln 2); exp(x) = 2^n (1 + r + r^2 EXP(r)).

    The clamp gives the limits: -88 has n = -127, so 0; 89 has n = 128, so infinity.
    """
    x = _clamp(b, x, -88.0, 89.0)
    n = b.vec(op("f32x4.floor", _mul(x, b.f32x4(LOG2E))))
    r = _reduce(b, x, n)
    scale = _power_of_two(b, n)
    tail = madd(b, _poly(b, "EXP", r), r, b.f32x4(1.0))
    return _mul(madd(b, tail, r, b.f32x4(1.0)), scale)


def _expm1(b: FuncBuilder, x: Local) -> Local:
    """exp(x) - 1 for |x| < 80, accurate near 0: with r near 0 no digit cancels."""
    n = b.vec(op("f32x4.nearest", _mul(x, b.f32x4(LOG2E))))
    r = _reduce(b, x, n)
    scale = _power_of_two(b, n)
    small = madd(b, _mul(_poly(b, "EXPM1", r), r), r, r)
    return b.vec(madd(b, scale, small, _sub(scale, b.f32x4(1.0))))


def expm1(b: FuncBuilder, x: Expr) -> Expr:
    """exp(x) - 1 for all x; -1 from -18 down.  The last step doubles it, since 2^128 is
    infinite."""
    x = _clamp(b, x, -18.0, 89.0)
    n = b.vec(op("f32x4.nearest", _mul(x, b.f32x4(LOG2E))))
    r = _reduce(b, x, n)
    scale = _power_of_two(b, _sub(n, b.f32x4(1.0)))
    small = madd(b, _mul(_poly(b, "EXPM1", r), r), r, r)
    half = b.vec(madd(b, scale, small, _sub(scale, b.f32x4(0.5))))
    return _add(half, half)


def _with_sign_of(b: FuncBuilder, x: Local, size: Expr) -> Expr:
    return op("v128.bitselect", x, size, b.i32x4(SIGN))


def tanh(b: FuncBuilder, x: Expr) -> Expr:
    """tanh|x| = e / (e + 2) with e = exp(2|x|) - 1; beyond 10 it is 1."""
    x = b.vec(x)
    size = op("f32x4.abs", x)
    e = _expm1(b, b.vec(op("f32x4.pmin", _add(size, size), b.f32x4(20.0))))
    return _with_sign_of(b, x, op("f32x4.div", e, _add(e, b.f32x4(2.0))))


def erf(b: FuncBuilder, x: Expr) -> Expr:
    """erf|x| = 1 - exp(-|x| ERF(|x|)); beyond 4 it is 1."""
    x = b.vec(x)
    size = b.vec(op("f32x4.pmin", op("f32x4.abs", x), b.f32x4(4.0)))
    e = _expm1(b, b.vec(_mul(size, _poly(b, "ERF", size, -1.0))))
    return _with_sign_of(b, x, e)


def _split(b: FuncBuilder, x: Expr) -> tuple[Local, Local]:
    """x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); returns e and f as f32.  For finite x >
    0."""
    x = b.vec(x)
    tiny = b.vec(op("f32x4.lt", x, b.f32x4(2.0**-126)))
    lifted = b.vec(select_lanes(b, tiny, _mul(x, b.f32x4(2.0**23)), x))
    root_half = 0x3F3504F3
    e = b.vec(op("i32x4.shr_s", op("i32x4.sub", lifted, b.i32x4(root_half)), const(23)))
    mantissa = op("i32x4.sub", lifted, op("i32x4.shl", e, const(23)))
    lift = op("v128.and", tiny, b.f32x4(23.0))
    exponent = b.vec(_sub(op("f32x4.convert_i32x4_s", e), lift))
    return exponent, b.vec(_sub(mantissa, b.f32x4(1.0)))


def _log_tail(b: FuncBuilder, f: Local) -> Expr:
    """log(1 + f) - f"""
    square = b.vec(_mul(f, f))
    return nmadd(b, square, b.f32x4(0.5), _mul(_mul(square, f), _poly(b, "LOG", f)))


def log(b: FuncBuilder, x: Expr) -> Expr:
    """log(x) = e ln 2 + log(1 + f)."""
    x = b.vec(x)
    e, f = _split(b, x)
    tail = madd(b, e, b.f32x4(LN2_LOW), _log_tail(b, f))
    value = b.vec(madd(b, e, b.f32x4(LN2_HIGH), _add(f, tail)))
    return _log_limits(b, x, value)


def log1p(b: FuncBuilder, x: Expr) -> Expr:
    """log(u) with u = 1 + x rounded, plus a correction for the rounding: (x - (u - 1)) / u."""
    x = b.vec(x)
    u = b.vec(_add(x, b.f32x4(1.0)))
    taken = op("f32x4.div", _sub(x, _sub(u, b.f32x4(1.0))), u)
    e, f = _split(b, u)
    tail = madd(b, e, b.f32x4(LN2_LOW), _add(_log_tail(b, f), taken))
    value = b.vec(madd(b, e, b.f32x4(LN2_HIGH), _add(f, tail)))
    return _log_limits(b, u, value)


def _log_limits(b: FuncBuilder, x: Local, value: Expr) -> Expr:
    """`value`, except for the logarithms of 0, infinity, negative numbers and NaN."""
    inf, zero = b.i32x4(INF_BITS), b.f32x4(0.0)
    other = select_lanes(b, op("f32x4.eq", x, zero), b.i32x4(INF_BITS + SIGN), b.i32x4(NAN_BITS))
    other = select_lanes(b, op("f32x4.eq", x, inf), inf, other)
    normal = op("v128.and", op("f32x4.gt", x, zero), op("f32x4.lt", x, inf))
    return select_lanes(b, b.vec(normal), value, b.vec(other))


def _reduced(b: FuncBuilder, x: Local) -> tuple[Local, Local]:
    """x = n pi / 2 + r with |r| <= pi / 4, for |x| <= FAR: returns r, and n in the low bits."""
    rounded = b.vec(madd(b, x, b.f32x4(0.6366197723675814), b.f32x4(ROUND)))
    n = b.vec(_sub(rounded, b.f32x4(ROUND)))
    r: Expr = x
    for part in HALF_PI:
        r = nmadd(b, n, b.f32x4(part), r)
    return _clamp(b, r, -0.8, 0.8), rounded


def _reduced_far(b: FuncBuilder, x: Local) -> tuple[Local, Local]:
    """The same for all x, if one lane exceeds FAR."""
    r, rounded = _reduced(b, x)
    rest, quarters = b.let(r, "v128"), b.let(rounded, "v128")
    for lane in range(4):
        number = Op("f32x4.extract_lane", (x,), (lane,))
        both = b.let(int64_math.call(b, "angle", number), "i64")
        high = op("i64.shr_u", both, Op("i64.const", (), (32,)))
        for vector, word in ((rest, both), (quarters, high)):
            low = op("i32.wrap_i64", word)
            b.emit(Assign(vector, Op("i32x4.replace_lane", (vector, low), (lane,))))
    size = b.vec(op("f32x4.abs", x))
    far = op("f32x4.gt", size, b.f32x4(FAR))
    finite = b.vec(op("v128.and", far, op("f32x4.lt", size, b.i32x4(INF_BITS))))
    return b.vec(select_lanes(b, finite, rest, r)), b.vec(
        select_lanes(b, finite, quarters, rounded)
    )


def _trig(turn: int) -> Callable[[FuncBuilder, Local, Local], Expr]:
    """sin(x + turn * pi / 2): the number of quarter turns chooses the polynomial and the sign."""

    def fn(b: FuncBuilder, r: Local, quadrant: Local) -> Expr:
        square = b.vec(_mul(r, r))
        sin = madd(b, _mul(square, _poly(b, "SIN", square)), r, r)
        rest = madd(b, _mul(square, _poly(b, "COS", square)), square, b.f32x4(1.0))
        cos = nmadd(b, square, b.f32x4(0.5), rest)
        if turn:
            quadrant = b.vec(op("i32x4.add", quadrant, b.i32x4(turn)))
        minus = op("v128.and", op("i32x4.shl", quadrant, const(30)), b.i32x4(SIGN))
        return op("v128.xor", select_lanes(b, _odd(quadrant), cos, sin), minus)

    return fn


def _odd(quadrant: Local) -> Expr:
    return op("i32x4.shr_s", op("i32x4.shl", quadrant, const(31)), const(31))


def _tan(b: FuncBuilder, r: Local, quadrant: Local) -> Expr:
    """tan(r), or -1 / tan(r) after an odd number of quarter turns."""
    square = b.vec(_mul(r, r))
    value = b.vec(madd(b, _mul(square, _poly(b, "TAN", square)), r, r))
    return select_lanes(b, b.vec(_odd(quadrant)), op("f32x4.div", b.f32x4(-1.0), value), value)


#: Functions of angles, from the rest of the angle and the number of quarter turns.
ANGLES: dict[str, Callable[[FuncBuilder, Local, Local], Expr]] = {
    "sin": _trig(0),
    "cos": _trig(1),
    "tan": _tan,
}


def _of_angle(name: str) -> Math:
    """Such a function.  Large angles have a function of their own, so that small ones need no more
    registers."""

    def fn(b: FuncBuilder, x: Expr) -> Expr:
        x = b.vec(x)
        result = b.fresh("v128", "result")
        far = op("f32x4.gt", op("f32x4.abs", x), b.f32x4(FAR))
        large = (Assign(result, Invoke(FAR_NAME.format(name), (x,), "v128")),)
        near = b.collect("if", lambda: b.emit(Assign(result, ANGLES[name](b, *_reduced(b, x)))))
        b.emit(If(op("v128.any_true", far), large, near))
        return result

    return fn


def _of_far_angle(name: str) -> Math:
    return lambda b, x: ANGLES[name](b, *_reduced_far(b, b.vec(x)))


def _high(b: FuncBuilder, x: Expr) -> tuple[Local, Local]:
    """Splits x into a part of 12 bits and the rest: products of such parts are exact."""
    x = b.vec(x)
    high = b.vec(op("v128.and", x, b.i32x4(-4096)))
    return high, b.vec(_sub(x, high))


def _size_of_power(b: FuncBuilder, x: Local, y: Local) -> Expr:
    """|x|^y = exp(y log|x|), the logarithm in two parts so that its error does not grow with y.

    With |x| = 2^e (1 + f):  y log|x| = n ln 2 + r,  r = (y e - n) ln 2 + y f + y (log(1 + f) - f).
    """
    e, f = _split(b, x)
    tail = b.vec(_log_tail(b, f))
    rough = madd(b, e, b.f32x4(LN2_HIGH + LN2_LOW), _add(f, tail))
    total = b.vec(_mul(y, b.vec(_log_limits(b, x, b.vec(rough)))))
    rounded = op("f32x4.nearest", _mul(_clamp(b, total, -110.0, 110.0), b.f32x4(LOG2E)))
    n = b.vec(rounded)
    (y_high, y_low), (f_high, f_low) = _high(b, y), _high(b, f)
    whole = b.vec(_sub(_mul(y_high, e), n))
    part = _mul(y_low, e)
    small = _add(_mul(whole, b.f32x4(LN2_LOW)), _mul(part, b.f32x4(LN2_HIGH + LN2_LOW)))
    small = _add(small, _add(_mul(y_high, f_low), _mul(y_low, f)))
    small = madd(b, y, tail, small)
    r = b.vec(_add(_add(_mul(whole, b.f32x4(LN2_HIGH)), _mul(y_high, f_high)), small))
    value: Expr = _add(madd(b, _mul(_poly(b, "EXPM1", r), r), r, r), b.f32x4(1.0))
    # 2^n in two steps, because n may be 128.
    half = b.vec(op("f32x4.floor", _mul(n, b.f32x4(0.5))))
    value = _mul(_mul(value, _power_of_two(b, half)), _power_of_two(b, _sub(n, half)))
    value = select_lanes(b, op("f32x4.gt", total, b.f32x4(88.8)), b.i32x4(INF_BITS), value)
    value = select_lanes(b, op("f32x4.lt", total, b.f32x4(-87.4)), b.f32x4(0.0), b.vec(value))
    return select_lanes(b, op("f32x4.eq", total, total), b.vec(value), total)


def pow_(b: FuncBuilder, x: Expr, y: Expr) -> Expr:
    """x^y, with the limits and signs of C's pow."""
    x, y = b.vec(x), b.vec(y)
    size = b.vec(op("f32x4.abs", x))
    value: Expr = b.vec(_size_of_power(b, size, y))
    whole = b.vec(op("f32x4.eq", op("f32x4.floor", y), y))
    half = b.vec(_mul(y, b.f32x4(0.5)))
    odd = op("v128.andnot", whole, op("f32x4.eq", op("f32x4.floor", half), half))
    value = op("v128.xor", value, op("v128.and", odd, op("v128.and", x, b.i32x4(SIGN))))
    negative = op(
        "v128.and", op("f32x4.lt", x, b.f32x4(0.0)), op("f32x4.lt", size, b.i32x4(INF_BITS))
    )
    bad = op("v128.andnot", negative, whole)
    value = select_lanes(b, bad, b.i32x4(NAN_BITS), b.vec(value))
    sure = op("v128.or", op("f32x4.eq", y, b.f32x4(0.0)), op("f32x4.eq", x, b.f32x4(1.0)))
    one = b.f32x4(1.0)
    minus_one = op(
        "v128.and", op("f32x4.eq", size, one), op("f32x4.eq", op("f32x4.abs", y), b.i32x4(INF_BITS))
    )
    return select_lanes(b, op("v128.or", sure, minus_one), one, b.vec(value))


_MAKE: dict[str, Math] = {
    "exp": exp,
    "log": log,
    "tanh": tanh,
    "erf": erf,
    "sin": _of_angle("sin"),
    "cos": _of_angle("cos"),
    "pow": pow_,
    "f16": f16,
    "bf16": bf16,
    "tan": _of_angle("tan"),
    "expm1": expm1,
    "log1p": log1p,
}

#: The number of arguments of each function.
FUNCTIONS: dict[str, int] = {name: 2 if name == "pow" else 1 for name in _MAKE}

#: Functions short enough to be expanded in place, unless a loop body uses them often.
SHORT = frozenset({"exp", "tanh", "erf", "expm1", "f16", "bf16"})
FEW = 4

#: All shared functions of a module: the builder, the types of its parameters and of its result.
HELPERS: dict[str, tuple[Math, tuple[str, ...], str]] = {
    **{name: (make, ("v128",) * FUNCTIONS[name], "v128") for name, make in _MAKE.items()},
    **{FAR_NAME.format(name): (_of_far_angle(name), ("v128",), "v128") for name in ANGLES},
    **int64_math.LONGS,
}


def call(b: FuncBuilder, name: str, args: list[Expr]) -> Expr:
    """A call of the function: expanded in place, or by a helper that the module shares."""
    if name in b.inline:
        return _MAKE[name](b, *args)
    b.helpers.add(name)
    return Invoke(name, tuple(args), "v128")


def helpers(names: frozenset[str], variant: WasmVariant) -> list[Func]:
    """These functions, and the functions they call, as functions of the module."""
    far = {FAR_NAME.format(name) for name in names & ANGLES.keys()}
    called = names | far | ({"angle"} if far else set())
    return [_helper(name, variant) for name in HELPERS if name in called]


def _helper(name: str, variant: WasmVariant) -> Func:
    make, types, _ = HELPERS[name]
    b = FuncBuilder(variant)
    params = tuple(b.fresh(type_, "x") for type_ in types)
    result = make(b, *params)
    return Func(name, params, tuple(b.scopes[0].stmts), result)


def power(b: FuncBuilder, x: Expr, y: float) -> Expr:
    """x^y for a known y; the common small powers are products, and 1/2 is the square root."""
    simple = _POWERS.get(y)
    return simple(b, b.vec(x)) if simple is not None else call(b, "pow", [x, b.f32x4(y)])


_POWERS: dict[float, Callable[[FuncBuilder, Local], Expr]] = {
    0.0: lambda b, _: b.f32x4(1.0),
    1.0: lambda _, x: x,
    2.0: lambda _, x: _mul(x, x),
    3.0: lambda _, x: _mul(_mul(x, x), x),
    -1.0: lambda b, x: op("f32x4.div", b.f32x4(1.0), x),
    0.5: lambda b, x: op("f32x4.abs", op("f32x4.sqrt", x)),
}


def inlined(fn: TileFn) -> frozenset[str]:
    """The functions to expand in place: short ones that no straight-line code uses often."""
    most = _most((*fn.prologue, *fn.body))
    return frozenset(n for n, times in most.items() if times <= FEW)


def _count(e: k.Expr, here: Counter[str]) -> None:
    if isinstance(e, k.Call) and e.fn in SHORT:
        here[e.fn] += 1
    for a in e.operands if isinstance(e, k.Call) else e.args:
        if isinstance(a, k.Splat):
            a = a.value
        if not isinstance(a, (k.Load, k.Reg, k.Const)):
            _count(a, here)


def _most(stmts: tuple[Stmt, ...]) -> Counter[str]:
    """For each short function the most uses in any straight-line code."""
    here: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    for s in stmts:
        if isinstance(s, (Set, Store, LetGather)):
            _count(s.value, here)
        elif isinstance(s, For):
            inside |= _most(s.body)
        elif isinstance(s, l.If):
            inside |= _most(s.then) | _most(s.orelse)
    return here | inside
