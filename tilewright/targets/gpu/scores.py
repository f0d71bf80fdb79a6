"""What attention makes of scores and sums, whoever has computed them.

Input: an attention, results of its stages as expressions.  Output: expressions at a point.  How
threads share the work is the business of attention.py and head_row_tile.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.base.dtypes import BOOL, F32
from tilewright.kernel.builder import Values
from tilewright.kernel.expr import Acc, Bound, Call, Const, Expr
from tilewright.kernel.form import Attention
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite
from tilewright.targets.gpu.staging import guarded


def argument(form: Attention, dot: Expr, at: Values, ends: tuple[Bound, ...]) -> Expr:
    """What softmax is applied to at a row and a key; -inf where these ends do not hold.

    dot: the product of both
    """
    return guarded(_with({form.scores: dot}, form.argument, at), ends, float("-inf"))


def power(score: Expr, top: Expr) -> Expr:
    """exp(score - top)"""
    return Call("exp", (Call("sub", (score, top), F32),), F32)


def divisor(total: Expr) -> Expr:
    """The sum of a row's powers, with which its context is divided."""
    # no finite score: exp(-inf - -inf) is what the specification says
    none = Call("eq", (total, Const(0.0, F32)), BOOL)
    return Call("where", (none, Const(float("nan"), F32), total), F32)


def result(kernel: Kernel, form: Attention, total: Expr, context: Expr, at: Values) -> Expr:
    """What is stored of a column.  total: as `divisor` gives it"""
    return _with({form.total: total, form.context: context}, kernel.value, at)


def _with(known: Mapping[int, Expr], value: Expr, at: Values) -> Expr:
    """The value at a point, where results of these stages are known."""
    return rewrite(value, lambda e: known[e.stage] if isinstance(e, Acc) else e, at)
