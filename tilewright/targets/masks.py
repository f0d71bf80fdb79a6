"""Masks that hide all keys from some number on: those of causal attention and of caches.

Input: an attention.  Output: the last key that a row sees, as an expression of the row; None if
its mask is of another kind, or later rows may see less.  Keys behind it add nothing to a sum, so
that loops may end there.

    where(key <= past[0] + row, score, -inf)   ->   past[0] + row
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.base.dtypes import I32
from tilewright.kernel.expr import Call, Const, Expr, IndexValue, dtype_of
from tilewright.kernel.form import Attention
from tilewright.kernel.index import Index, Var, index


def last_seen(form: Attention) -> Expr | None:
    """The last key of a row, an i32 from -1 to the number of keys; later rows see no less."""
    mask = form.argument
    if not isinstance(mask, Call) or mask.fn != "where":
        return None
    seen, _, hidden = mask.operands
    if not isinstance(hidden, Const) or hidden.value != float("-inf"):
        return None
    found = (_last(part, form.keys) for part in _all_of(seen))
    return next((last for last in found if last is not None and _grows(last, form.m)), None)


def _all_of(e: Expr) -> Iterator[Expr]:
    """The conditions that hold where `e` does."""
    if isinstance(e, Call) and e.fn == "and":
        for part in e.operands:
            yield from _all_of(part)
    else:
        yield e


def _last(e: Expr, keys: Var) -> Expr | None:
    """`end` of key <= end, kept within what keys there are."""
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
    """The index that an integer is."""
    while isinstance(e, Call) and e.fn == "cast" and dtype_of(e).kind == "int":
        e = e.operands[0]
    return e.index if isinstance(e, IndexValue) else None


def _grows(e: Expr, row: Var) -> bool:
    """Whether an integer is no smaller at later rows."""
    if row not in e.variables:
        return True
    if isinstance(e, IndexValue):
        return e.index.is_affine and e.index.coefficient(row) >= 0
    if not isinstance(e, Call):
        return False
    if e.fn == "sub":
        return row not in e.operands[1].variables and _grows(e.operands[0], row)
    return e.fn in ("add", "min", "max", "cast") and all(_grows(x, row) for x in e.operands)
