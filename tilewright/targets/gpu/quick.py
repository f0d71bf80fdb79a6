"""Divisions of results that are rounded anyway, by the device's own instruction.

Input: a kernel.  Output: the same with quick divisions.  WGSL's division may be wrong by 2.5 ULP,
so elsewhere quotients are computed exactly, in some 150 operations; but what a product of halves
or bytes gives is wrong by far more.

    silu(x) = x / (1 + exp(-x))   ->   x * reciprocal(1 + exp(-x))
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.dtypes import F32
from tilewright.kernel.expr import Call, Const, Expr, Reciprocal
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite

#: The largest number: devices need not have infinities, nor their reciprocals.
LARGEST = 3.4028234663852886e38


def quick(kernel: Kernel) -> Kernel:
    """The same kernel; what it stores is divided by positive numbers with multiplications."""
    return replace(kernel, value=rewrite(kernel.value, _quick))


def _quick(e: Expr) -> Expr:
    if not isinstance(e, Call) or e.fn != "div" or e.dtype != F32 or not _positive(e.operands[1]):
        return e
    within = Call("min", (e.operands[1], Const(LARGEST, F32)), F32)
    return Call("mul", (e.operands[0], Reciprocal(within)), F32)


def _positive(e: Expr) -> bool:
    """True for sums of exponentials and positive constants, which may be NaN."""
    if isinstance(e, Const):
        return float(e.value) > 0
    if not isinstance(e, Call):
        return False
    return e.fn == "exp" or (e.fn == "add" and all(map(_positive, e.operands)))
