"""Divisions of results that are rounded anyway, by the device's own instruction.

Input: a kernel.  Output: the same with fast divisions.  WGSL's division may be wrong by 2.5 ULP,
so elsewhere quotients are computed exactly, in some 150 operations; but what a product of halves
or bytes gives is wrong by far more.

    x / y   ->   x / 4 * reciprocal(y / 4),   0 for that of an infinity
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.dtypes import BOOL, F32
from tilewright.kernel.expr import Call, Const, Expr, Reciprocal
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite

#: WGSL's accuracy holds for divisors from 2^-126 to 2^126, and beyond them devices may take a
#: reciprocal, a subnormal number, for 0.  A quarter of the largest number is within these.
QUARTER, SMALL, LARGEST = 0.25, 2.0**-124, 3.4028234663852886e38


def fast_division(kernel: Kernel) -> Kernel:
    """The same kernel; what it stores is divided by sums of exponentials and constants with
    multiplications.  Infinities and NaN give what an exact division gives."""
    return replace(kernel, value=rewrite(kernel.value, _fast))


def _fast(e: Expr) -> Expr:
    match e:
        case Call("div", (over, by)) if e.dtype == F32 and _positive(by) and _away_from_zero(by):
            infinite = Call("lt", (Const(LARGEST, F32), by), BOOL)
            share = Call("where", (infinite, Const(0.0, F32), Reciprocal(_quarter(by))), F32)
            return Call("mul", (_quarter(over), share), F32)
    return e


def _quarter(e: Expr) -> Expr:
    return Call("mul", (e, Const(QUARTER, F32)), F32)


def _positive(e: Expr) -> bool:
    """True for sums of exponentials and positive constants, which may be NaN or infinite."""
    match e:
        case Const(value):
            return float(value) >= SMALL
        case Call("exp"):
            return True
        case Call("add", parts):
            return all(map(_positive, parts))
    return False


def _away_from_zero(e: Expr) -> bool:
    """True if such a sum has a constant: exponentials alone may be 0."""
    match e:
        case Const():
            return True
        case Call("add", parts):
            return any(map(_away_from_zero, parts))
    return False
