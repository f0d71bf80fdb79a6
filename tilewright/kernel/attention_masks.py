"""Recognises masks that hide all keys after some number, as causal attention and caches use.

Input: an attention.  Output: the last visible key as an expression of the row, or None if the mask
has another form or if a later row may see fewer keys.  Keys after it add nothing to a sum, so loops
may end there.

    where(key <= past[0] + row, score, -inf)   ->   past[0] + row
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.base.dtypes import I32
from tilewright.kernel.expr import Call, Const, Expr, IndexValue, dtype_of
from tilewright.kernel.form import Attention
from tilewright.kernel.index import Index, Var, index


def last_seen(form: Attention) -> Expr | None:
    """The last key that a row sees, an i32 from -1 to the last key; it never falls from row to
    row."""
    mask = form.argument
    if not isinstance(mask, Call) or mask.fn != "where":
        return None
    seen, _, hidden = mask.operands
    if not isinstance(hidden, Const) or hidden.value != float("-inf"):
        return None
    found = (_last(part, form.keys) for part in _all_of(seen))
    return next((last for last in found if last is not None and _grows(last, form.m)), None)


def _all_of(e: Expr) -> Iterator[Expr]:
    """Conditions that hold whenever `e` does."""
    if isinstance(e, Call) and e.fn == "and":
        for part in e.operands:
            yield from _all_of(part)
    else:
        yield e


def _last(e: Expr, keys: Var) -> Expr | None:
    """The `end` of a condition key <= end, clamped to the keys that exist; None for other
    conditions."""
    less = isinstance(e, Call) and e.fn in ("le", "lt")
    if not isinstance(e, Call) or not less or keys in e.operands[1].variables:
        return None
    place = _place(e.operands[0])
    if place is None or place != index(keys):
        return None
    end, dtype = e.operands[1], dtype_of(e.operands[1])
    end = Call("min", (end, Const(keys.extent, dtype)), dtype)
    end = Call("max", (end, Const(-1 if e.fn == "le" else 0, dtype)), dtype)
    end = end if dtype == I32 else Call("cast", (end,), I32)
    return end if e.fn == "le" else Call("sub", (end, Const(1, I32)), I32)


def _place(e: Expr) -> Index | None:
    """The index whose value an integer expression is; None for other expressions."""
    while isinstance(e, Call) and e.fn == "cast" and dtype_of(e).kind == "int":
        e = e.operands[0]
    return e.index if isinstance(e, IndexValue) else None


def _grows(e: Expr, row: Var) -> bool:
    """True if an integer expression never falls from a row to a later one."""
    if row not in e.variables:
        return True
    if isinstance(e, IndexValue):
        return e.index.is_affine and e.index.coefficient(row) >= 0
    if not isinstance(e, Call):
        return False
    if e.fn == "sub":
        return row not in e.operands[1].variables and _grows(e.operands[0], row)
    return e.fn in ("add", "min", "max", "cast") and all(_grows(x, row) for x in e.operands)
