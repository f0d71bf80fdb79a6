"""Computes the coefficients of scalar functions: minimax polynomials by Remez's exchange.

Input: a smooth function, an interval, a degree, a weight.  Output: coefficients, lowest power
first, rounded to f32.  It runs in tests, which compare its results with targets/coefficients.py,
and when a degree is changed.  The compiler never calls it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import Decimal, localcontext

Real = Callable[[float], float]

LN2 = math.log(2.0)


def series(coefficient: Callable[[int], float], terms: int = 80) -> Real:
    """The power series with the given coefficients, as a function."""
    table = [coefficient(k) for k in range(terms)]

    def value(x: float) -> float:
        total = 0.0
        for c in reversed(table):
            total = total * x + c
        return total

    return value


def _signed(k: int) -> float:
    return -1.0 if k % 2 else 1.0


def _erf_exponent(a: float) -> float:
    """-ln(erfc(a)) / a, so that erf(a) = 1 - exp(-a * this)."""
    if a < 1e-9:
        return 2.0 / math.sqrt(math.pi)
    tail = math.erfc(a)
    return (-math.log1p(-math.erf(a)) if a < 0.5 else -math.log(tail)) / a


def _erf_weight(a: float) -> float:
    """The relative error of erf that an error of 1 in the exponent's factor causes."""
    return math.sqrt(math.pi) / 2 if a < 1e-9 else a * math.erfc(a) / math.erf(a)


def _tan_tail(z: float) -> float:
    """(tan(r) - r) / r^3 of z = r^2."""
    if z < 1e-3:
        return 1 / 3 + z * (2 / 15 + z * (17 / 315 + z * 62 / 2835))
    r = math.sqrt(z)
    return (math.tan(r) - r) / (z * r)


#: name -> (function, low, high, degree, weight of an error).
FITS: dict[str, tuple[Real, float, float, int, Real]] = {
    # exp(r) = 1 + r + r^2 * EXP(r), for r in [0, ln 2]
    "EXP": (
        series(lambda k: 1 / math.factorial(k + 2), 30),
        -0.01,
        LN2 + 0.01,
        4,
        lambda r: r * r / math.exp(r),
    ),
    # expm1(r) = r + r^2 * EXPM1(r), for |r| <= ln 2 / 2
    "EXPM1": (series(lambda k: 1 / math.factorial(k + 2), 30), -0.35, 0.35, 4, lambda r: abs(r)),
    # log(1 + f) = f - f^2 / 2 + f^3 * LOG(f), for 1 + f in [sqrt(1/2), sqrt(2)]
    "LOG": (series(lambda k: _signed(k) / (k + 3)), -0.2929, 0.4143, 7, lambda f: f * f),
    # sin(r) = r + r^3 * SIN(r^2), cos(r) = 1 - r^2 / 2 + r^4 * COS(r^2), for |r| <= pi / 4
    "SIN": (
        series(lambda k: -_signed(k) / math.factorial(2 * k + 3), 12),
        0.0,
        0.6186,
        2,
        lambda z: z,
    ),
    "COS": (
        series(lambda k: _signed(k) / math.factorial(2 * k + 4), 12),
        0.0,
        0.6186,
        2,
        lambda z: z * z,
    ),
    # tan(r) = r + r^3 * TAN(r^2), for |r| <= pi / 4
    "TAN": (_tan_tail, 0.0, 0.6186, 5, lambda z: z),
    # erf(a) = 1 - exp(-a * ERF(a)), for a in [0, 4]
    "ERF": (_erf_exponent, 0.0, 4.0, 8, _erf_weight),
}


def to_f32(x: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", x))[0])


def fit(name: str) -> tuple[float, ...]:
    """The coefficients of a row of FITS, as f32 values."""
    fn, low, high, degree, weight = FITS[name]
    return tuple(to_f32(c) for c in remez(fn, low, high, degree, weight))


def remez(fn: Real, low: float, high: float, degree: int, weight: Real) -> list[float]:
    """The polynomial with the smallest weighted maximal error."""
    grid = [low + (high - low) * (1 - math.cos(math.pi * i / 3000)) / 2 for i in range(3001)]
    values = [fn(x) for x in grid]
    # errors are divided by these, so weights near 0 are raised to 1e-7
    scale = [max(weight(x), 1e-7) for x in grid]
    n = degree + 2
    points = [round(3000 * i / (n - 1)) for i in range(n)]
    coefficients: list[float] = []
    for _ in range(30):
        coefficients = _level(grid, values, scale, points, degree)
        errors = [
            s * (v - _horner(coefficients, x)) for x, v, s in zip(grid, values, scale, strict=True)
        ]
        fresh = _extremes(errors, n)
        if len(fresh) < n or fresh == points:
            break
        points = fresh
    return coefficients


def _horner(coefficients: list[float], x: float) -> float:
    total = 0.0
    for c in reversed(coefficients):
        total = total * x + c
    return total


def _extremes(errors: list[float], n: int) -> list[int]:
    """Positions of the largest error in each run of equal sign; of these, the n adjacent ones with
    the largest errors."""
    peaks: list[int] = []
    for i, e in enumerate(errors):
        if peaks and (e > 0) == (errors[peaks[-1]] > 0):
            if abs(e) > abs(errors[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    while len(peaks) > n:
        peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
    return peaks


def _level(
    grid: list[float], values: list[float], scale: list[float], points: list[int], degree: int
) -> list[float]:
    """Coefficients for which the weighted error alternates with equal size on `points`."""
    with localcontext() as context:
        context.prec = 60
        rows = []
        for sign, i in enumerate(points):
            x = Decimal(grid[i])
            row = [x**k if k else Decimal(1) for k in range(degree + 1)]
            row += [Decimal(1 - 2 * (sign % 2)) / Decimal(scale[i]), Decimal(values[i])]
            rows.append(row)
        return [float(v) for v in _solve(rows)[:-1]]


def _solve(rows: list[list[Decimal]]) -> list[Decimal]:
    """Gauss-Jordan elimination with row pivoting."""
    n = len(rows)
    for col in range(n):
        best = max(range(col, n), key=lambda r: abs(rows[r][col]))
        rows[col], rows[best] = rows[best], rows[col]
        pivot = rows[col][col]
        rows[col] = [v / pivot for v in rows[col]]
        for r in range(n):
            if r != col and rows[r][col]:
                by = rows[r][col]
                rows[r] = [v - by * p for v, p in zip(rows[r], rows[col], strict=True)]
    return [row[-1] for row in rows]
