"""Fast divisions for results that are rounded anyway, by the device's own instruction.

Input: a kernel. Output: the same kernel with fast divisions. WGSL's division may be off by 2.5 ULP,
so other kernels compute quotients exactly, in about 150 operations. The error of a product of f16
or bytes is much larger, so there the fast division is accurate enough.

    x / y   ->   x / 4 * reciprocal(y / 4),   where the reciprocal of an infinity is 0
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.dtypes import BOOL, F32
from tilewright.kernel.expr import Call, Const, Expr, Reciprocal
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite

#: WGSL guarantees its accuracy for divisors from 2^-126 to 2^126.  The reciprocal of a larger one
#: is subnormal, and devices may flush it to 0.  A quarter of the largest f32 is within that range.
QUARTER, SMALL, LARGEST = 0.25, 2.0**-124, 3.4028234663852886e38


def fast_division(kernel: Kernel) -> Kernel:
    """The same kernel, with fast divisions by sums of exponentials and constants in what it stores.
    Infinities and NaN give the results of an exact division."""
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
    """True if such a sum has a constant; exponentials alone may be 0."""
    match e:
        case Const():
            return True
        case Call("add", parts):
            return any(map(_away_from_zero, parts))
    return False
