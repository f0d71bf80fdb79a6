"""Curves that promise too much: noticed by requests over their bound, and corrected.

Input: whether requests under some budgets exceeded the bound that the curve says they keep.
Output: evidence, and phases whose curves say what was found.  Pure functions.

It is a sequential test.  A curve covers all but a share of CLAIMED, so no more than that may exceed
a bound that it keeps.  For each larger share that it could really be, the likelihood ratio of what
was seen is kept, from the request on where it was 1 (Page's cumulative sum).  Beside a right curve
their mean reaches ENOUGH no more than once in ENOUGH requests on average; beside one that leaves
the least of SHARES or more it does after a while: 12 requests over the bound, or 4 in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log

from tilewright.base.record import slotted
from tilewright.elastic.policy.budgets import predicted
from tilewright.elastic.policy.curves import COVERED
from tilewright.elastic.policy.tasks import Critical, Curve, Phase

#: Of requests that a curve says keep their bound, those that may exceed it.
CLAIMED = 1 - COVERED
#: Shares that it is tested against.
SHARES = tuple(0.01 * 2**n for n in range(7))
#: Evidence by which a curve counts as wrong.
ENOUGH = 1e6
#: Choices of budgets of one task that are watched: those of late.
MOST_WATCHED = 64

_OVER = tuple(log(share / CLAIMED) for share in SHARES)
_WITHIN = tuple(log((1 - share) / (1 - CLAIMED)) for share in SHARES)


@slotted
class Evidence:
    """Against the curve at one choice of budgets.

    logs: of the likelihood ratios, by SHARES;  requests: since the first that counts
    slowdowns: of those over their bound among them
    """

    budgets: tuple[int, ...]
    logs: tuple[float, ...] = (0.0,) * len(SHARES)
    requests: int = 0
    slowdowns: tuple[float, ...] = ()

    @property
    def enough(self) -> bool:
        return sum(map(exp, self.logs)) >= ENOUGH * len(SHARES)

    @property
    def found(self) -> float:
        """The slowdown that covers as many of the requests as a curve does."""
        left = int(CLAIMED * self.requests)
        return sorted(self.slowdowns, reverse=True)[min(left, len(self.slowdowns) - 1)]

    def after(self, slowdown: float, over: bool) -> Evidence:
        """With one more request."""
        steps = _OVER if over else _WITHIN
        logs = tuple(max(0.0, log + step) for log, step in zip(self.logs, steps, strict=True))
        if not any(logs):
            return Evidence(self.budgets)
        more = (slowdown,) if over else ()
        return Evidence(self.budgets, logs, self.requests + 1, (*self.slowdowns, *more))


def watched(
    every: tuple[Evidence, ...], budgets: tuple[int, ...], slowdown: float, over: bool
) -> tuple[Evidence, tuple[Evidence, ...]]:
    """That of these budgets after one more request, and the others."""
    known = next((e for e in every if e.budgets == budgets), Evidence(budgets))
    others = tuple(e for e in every if e.budgets != budgets)
    return known.after(slowdown, over), others[1 - MOST_WATCHED :]


def expected(phases: Sequence[Phase], budgets: Sequence[int]) -> float:
    """The slowdown of a request under these budgets, by the curves."""
    return predicted(phases, _levels(phases, budgets))


def _levels(phases: Sequence[Phase], budgets: Sequence[int]) -> list[int]:
    return [
        [workers for workers, _ in phase.curve.levels].index(budget)
        for phase, budget in zip(phases, budgets, strict=True)
    ]


def with_found(task: Critical, budgets: Sequence[int], found: float) -> Critical:
    """The task with curves by which a request under these budgets is slowed down so much.

    Phases beside which somebody stays are to blame, all alike; if there is none, all phases.  More
    workers than there were disturb by as much more as the curve said before.
    """
    blamed = [budget > 0 or not any(budgets) for budget in budgets]
    levels = _levels(task.phases, budgets)
    slowdowns = [p.curve.levels[n][1] for p, n in zip(task.phases, levels, strict=True)]
    times = [p.solo_us * s for p, s in zip(task.phases, slowdowns, strict=True)]
    theirs = sum(time for time, blame in zip(times, blamed, strict=True) if blame)
    factor = 1 + (found * task.solo_us - sum(times)) / theirs
    phases = tuple(
        _raised(phase, level, factor) if blame else phase
        for phase, level, blame in zip(task.phases, levels, blamed, strict=True)
    )
    return replace(task, phases=phases)


def _raised(phase: Phase, level: int, factor: float) -> Phase:
    points = tuple(
        (workers, slowdown * factor if n >= level else slowdown)
        for n, (workers, slowdown) in enumerate(phase.curve.levels)
    )
    return replace(phase, curve=Curve(points))
