"""The larger of two magnitudes, by comparing them as integers.

Non-negative floats have the same order as their bits, with NaN above all. So no test for NaN is
needed, and vectors can be compared. Input: an expression. Output: its text if it is such a maximum,
otherwise None.
"""

from __future__ import annotations

from tilewright.base.dtypes import F32
from tilewright.kernel.expr import Call, Const, Expr


def larger(e: Call, args: list[str]) -> str | None:
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
