"""The parts of a critical request, each with the budget of normal work meanwhile.

Input: phases, and the policy's decision (`Begin`).  Output: `Hold`s in order, for the executor and
the simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.budget import EVERYBODY
from tilewright.elastic.policy.tasks import Phase


@dataclass(frozen=True)
class Hold:
    """Kernels [first, last) of a critical model under a budget.

    waits: True if they begin when the workers beyond the budget have left, or after the `settle_us`
           of the request's `Begin`
    """

    budget: int
    first: int
    last: int
    waits: bool = False


def holds(phases: Sequence[Phase], budgets: Sequence[int], settle_us: float) -> list[Hold]:
    """A `Hold` for each phase.  Kernels wait only where the budget falls, since else no worker
    leaves.

    settle_us: as in `Begin`
    """
    found, first, before = list[Hold](), 0, EVERYBODY
    for phase, budget in zip(phases, budgets, strict=True):
        last = first + phase.kernels
        found.append(Hold(budget, first, last, settle_us > 0 and budget < before))
        first, before = last, budget
    return found
