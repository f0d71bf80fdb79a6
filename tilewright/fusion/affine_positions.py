"""Turns positions that a model computes by counting into indices: kernels need not check them.

Input: the expression of a position.  Output: the `Index` that it equals, if that is certain to lie
in range.  Positions that are read from memory stay expressions, and kernels check them.

    int(i) * 4 + int(j)  ->  i*4 + j        int(i) // 2  ->  i//2
"""

from __future__ import annotations

from tilewright.base.dtypes import I32, I64
from tilewright.kernel.expr import Call, Const, Expr, IndexValue
from tilewright.kernel.index import Index


def counted_index(e: Expr, extent: int) -> Index | None:
    """The index that `e` equals, if no value of it leaves [0, extent)."""
    found = _counted(e)
    if found is None:
        return None
    low, high = found.bounds
    return found if low >= 0 and high < extent else None


def _counted(e: Expr) -> Index | None:
    match e:
        case IndexValue(index):
            return index
        case Const(value, dtype) if dtype in (I32, I64):
            return Index((), int(value))
        case Call(fn, operands, dtype, _) if dtype in (I32, I64):
            parts = [_counted(x) for x in operands]
            known = [p for p in parts if p is not None]
            return _computed(fn, known) if len(known) == len(parts) else None
    return None


def _computed(fn: str, parts: list[Index]) -> Index | None:
    match fn, parts:
        case "cast", [a]:
            low, high = a.bounds
            return a if low >= -(2**31) and high < 2**31 else None
        case "add", [a, b]:
            return a + b
        case "sub", [a, b]:
            return a - b
        case "mul", [a, b] if a.is_const or b.is_const:
            return b * a.const if a.is_const else a * b.const
        case "div", [a, b] if b.is_const and b.const > 0 and a.bounds[0] >= 0:
            return a // b.const
    return None
