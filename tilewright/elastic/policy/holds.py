"""How a critical request holds normal work back: parts of its kernels, each under a budget.

Input: phases, and what the policy decided (`Begin`).  Output: `Hold`s in their order, for executor
and simulator alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.budget import EVERYBODY
from tilewright.elastic.policy.tasks import Phase


@dataclass(frozen=True)
class Hold:
    """Kernels [first, last) of a critical model under a budget.

    waits: they begin when the workers that must leave have left, or after as long as the request's
           `Begin` says
    """

    budget: int
    first: int
    last: int
    waits: bool = False


def holds(phases: Sequence[Phase], budgets: Sequence[int], settle_us: float) -> list[Hold]:
    """One for each phase.  Who may stay under a larger budget than before need not be waited for.

    settle_us: as of `Begin`
    """
    found, first, before = list[Hold](), 0, EVERYBODY
    for phase, budget in zip(phases, budgets, strict=True):
        last = first + phase.kernels
        found.append(Hold(budget, first, last, settle_us > 0 and budget < before))
        first, before = last, budget
    return found
