"""Vectors of four 32-bit elements: where memory has them, and expressions on their lanes.

Input: an index or an expression of a kernel. Output: whether vectors can be loaded along an axis;
the expression on a vector; a value that is only loaded within bounds. This file does not choose
which axis becomes a vector.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base.abi import VECTOR_WORDS
from tilewright.base.errors import CompilerBug
from tilewright.kernel.expr import (
    Bound,
    Call,
    Const,
    Expr,
    Guard,
    Join,
    Load,
    Reg,
    Splat,
    dtype_of,
    lanes_of,
)
from tilewright.kernel.index import Index, Var, index, is_multiple, stride

#: Elements of a vector.
LANES = VECTOR_WORDS


def are_whole_vectors(at: Index, axis: Var) -> bool:
    """True if elements along an axis are adjacent, as whole vectors."""
    return axis.extent % LANES == 0 and begins_whole_vectors(at, axis)


def begins_whole_vectors(at: Index, axis: Var) -> bool:
    """True if whole vectors can be loaded along the axis: its elements are adjacent and begin at a
    multiple of a vector.  The last vector may be partly used."""
    q = index(Var("q", -(-axis.extent // LANES))) * LANES
    return stride(at, axis) == 1 and is_multiple(at.substitute({axis: q}), LANES)


def in_lanes(e: Expr, of_load: Callable[[Load], Expr]) -> Expr:
    """The expression on LANES neighbours: `of_load` replaces its loads, and registers are the same
    for all."""
    match e:
        case Const(value, dtype, _):
            return Const(value, dtype, LANES)
        case Load():
            return of_load(e)
        case Reg():
            return Splat(e, LANES)
        case Call(fn, operands, dtype, _):
            return Call(fn, tuple(in_lanes(x, of_load) for x in operands), dtype, LANES)
    raise CompilerBug(f"no vector of {type(e).__name__}")


def guarded(value: Expr, ends: tuple[Bound, ...], default: float = 0) -> Expr:
    """The value if all bounds hold, else the default in all lanes."""
    unsure = tuple(end for end in ends if not end.always)
    dtype, lanes = dtype_of(value), lanes_of(value)
    if lanes > LANES:
        other: Expr = Join((Const(default, dtype, LANES),) * (lanes // LANES))
    else:
        other = Const(default, dtype, lanes)
    return Guard(unsure, value, other) if unsure else value
