"""Curves that promise too much: noticed by requests over their bound, and corrected.

Input: whether requests under some budgets exceeded the bound that the curve says they keep.
Output: evidence, and phases whose curves say what was found.  Pure functions.

It is a sequential test.  A curve covers all but a share of CLAIMED, so no more may exceed a bound
that it keeps.  With budgets of 0 it is PROMISED that counts, since normal work ends then.  For some
larger shares the likelihood ratio of what was seen is kept, from the request on where it was 1
(Page's cumulative sum).  Beside a right curve their mean reaches ENOUGH no more than once in ENOUGH
requests on average; where 5 % exceed the bound with budgets of 0, it does after about 400.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log

from tilewright.base.record import slotted
from tilewright.elastic.policy.budgets import predicted
from tilewright.elastic.policy.curves import COVERED
from tilewright.elastic.policy.tasks import Critical, Curve, Phase

#: Of requests whose bound is kept, those that may exceed it: by the curve, and as promised.
CLAIMED, PROMISED = 1 - COVERED, 0.01
#: Shares that these are tested against, as multiples of them.
MORE = tuple(1.5 * 2**n for n in range(6))
#: Evidence by which a curve counts as wrong.
ENOUGH = 1e5
#: Choices of budgets of one task that are watched: those of late.
MOST_WATCHED = 64


def ratios(share: float, over: bool) -> tuple[float, ...]:
    """By how much one request changes the logs of the likelihood ratios to this share."""
    if over:
        return tuple(log(more) for more in MORE)
    return tuple(log((1 - more * share) / (1 - share)) for more in MORE)


@slotted
class Evidence:
    """Against the curve at one choice of budgets.

    logs: of the likelihood ratios, by MORE;  requests: since the first that counts
    slowdowns: of those over their bound among them
    """

    budgets: tuple[int, ...]
    logs: tuple[float, ...] = (0.0,) * len(MORE)
    requests: int = 0
    slowdowns: tuple[float, ...] = ()

    @property
    def enough(self) -> bool:
        return sum(map(exp, self.logs)) >= ENOUGH * len(MORE)

    @property
    def found(self) -> float:
        """The slowdown that covers as many of the requests as a curve does."""
        left = int(CLAIMED * self.requests)
        return sorted(self.slowdowns, reverse=True)[min(left, len(self.slowdowns) - 1)]

    def after(self, slowdown: float, over: bool) -> Evidence:
        """With one more request."""
        steps = ratios(CLAIMED if any(self.budgets) else PROMISED, over)
        logs = tuple(max(0.0, was + step) for was, step in zip(self.logs, steps, strict=True))
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
