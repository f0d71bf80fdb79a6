"""How a critical request holds normal work back: parts of its kernels, each under a budget.

Input: phases, and what the policy decided (`Begin`).  Output: `Hold`s in their order, for executor
and simulator alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from tilewright.base.budget import EVERYBODY
from tilewright.elastic.policy.tasks import Phase


@dataclass(frozen=True)
class Hold:
    """Kernels [first, last) of a critical model under a budget.

    beside: normal tasks, each of which may have as many workers alive as the budget when the
            kernels begin; None: they wait for nobody
    settle_us: the longest that they wait
    """

    budget: int
    first: int
    last: int
    beside: int | None = None
    settle_us: float = 0.0


def hold(
    budget: int, kernels: tuple[int, int], settle_us: float, beside: int, before: int = EVERYBODY
) -> Hold:
    """before: the budget until then; who may stay under a larger one need not be waited for"""
    if settle_us <= 0 or budget >= before:
        return Hold(budget, *kernels)
    return Hold(budget, *kernels, beside, settle_us)


def holds(
    phases: Sequence[Phase], budgets: Sequence[int], settle_us: float, beside: int
) -> list[Hold]:
    """Neighbours with one budget are one part.  settle_us, beside: as of `Begin`"""
    found, first, before = list[Hold](), 0, EVERYBODY
    for budget, group in groupby(zip(phases, budgets, strict=True), key=lambda pair: pair[1]):
        last = first + sum(phase.kernels for phase, _ in group)
        found.append(hold(budget, (first, last), settle_us, beside, before))
        first, before = last, budget
    return found
