"""Formulas that all attention tiles share: scale and mask, exponentials, normalisation.

Input: an attention, and the results of earlier stages as expressions. Output: expressions at a row
and key, and the number of key blocks that a tile needs. some_rows.py, one_row.py and many_rows.py
divide the work among threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from tilewright.base.dtypes import BOOL, F32, I32
from tilewright.kernel.attention_masks import last_seen
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import (
    Acc,
    Bound,
    Call,
    Const,
    Expr,
    Lane,
    Lanes,
    Reciprocal,
    Reg,
    lanes_of,
)
from tilewright.kernel.form import Attention, rounds_to_f16
from tilewright.kernel.index import Index, index
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite
from tilewright.targets.vectors import guarded


def softmax_argument(form: Attention, dot: Expr, at: Values, ends: tuple[Bound, ...]) -> Expr:
    """Softmax's argument at a row and a key; -inf where one of the bounds `ends` does not hold.

    dot: the dot product of query and key
    """
    return guarded(_with({form.scores: dot}, form.argument, at), ends, float("-inf"))


def exponential(score: Expr, top: Expr) -> Expr:
    """exp(score - top)"""
    return Call("exp", (Call("sub", (score, top), F32),), F32)


def normaliser(kernel: Kernel, total: Expr) -> Expr:
    """The sum of a row's powers, by which its context is divided.

    It is the sum's reciprocal where operands may be rounded to f16, since an exact division takes
    many operations (product/fast_division.py).
    """
    # A row without a finite score gives exp(-inf - -inf), as specified; any other sum is at least
    # 1.
    none = Call("eq", (total, Const(0.0, F32)), BOOL)
    found = Reciprocal(total) if rounds_to_f16(kernel) else total
    return Call("where", (none, Const(float("nan"), F32), found), F32)


def stored_value(kernel: Kernel, form: Attention, scaled: Expr, context: Expr, at: Values) -> Expr:
    """The value that is stored for a column.  scaled: the result of `normaliser`"""
    if not rounds_to_f16(kernel):
        return _with({form.total: scaled, form.context: context}, kernel.value, at)

    def times(e: Expr) -> Expr:
        match e:
            case Call("div", (over, Acc(form.total))):
                return Call("mul", (over, scaled), F32)
        return e

    # Keep the sum where the kernel tests it, to store 0 in rows without a key: their sum is NaN.
    known = {form.total: Reciprocal(scaled), form.context: context}
    return _with(known, rewrite(kernel.value, times), at)


def _with(known: Mapping[int, Expr], value: Expr, at: Values) -> Expr:
    """The value at a point, with these results of earlier stages put in."""
    return rewrite(value, lambda e: known[e.stage] if isinstance(e, Acc) else e, at)


def lane(e: Reg, i: int) -> Expr:
    """A lane of a vector, or the number itself if it has one lane."""
    return Lane(e, i) if e.lanes > 1 else e


def vector(values: Sequence[Expr]) -> Expr:
    """The vector of several numbers; a single number is returned as it is."""
    return Lanes(tuple(values)) if len(values) > 1 else values[0]


def add(a: Expr, b: Expr) -> Expr:
    """a + b, of vectors or numbers."""
    return Call("add", (a, b), F32, lanes_of(a))


def blocks_seen(b: Builder, form: Attention, at: Values, last_row: Index, y1: int) -> Index:
    """The number of blocks of y1 keys that this row, or a row before it, sees a key of.

    at: values of the other axes
    """
    last, blocks = last_seen(form), ceil(form.keys.extent / y1)
    if last is None or blocks == 1:
        return index(blocks)
    row = {form.m: b.let_min(last_row, index(form.m.extent - 1))}
    # A last key of -1 gives 0 blocks.
    key, size = last.substitute(at | row), Const(y1, I32)
    whole = Call("div", (Call("add", (key, size), I32), size), I32)
    return b.uniform(whole, blocks + 1, "blocks")
