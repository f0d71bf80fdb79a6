"""A sequential test that finds curves which promise too much, and corrects them.

Input: whether requests under some budgets exceeded the bound that the curve says they keep. Output:
evidence, and phases with corrected curves.  Pure functions.

If a curve is right, at most the share CLAIMED of the requests exceeds a bound that it keeps.  With
budgets of 0 the larger share PROMISED is used, because a wrong curve then ends normal work.  The
test compares this share with several larger shares.  For each of them it sums up the logarithm of
the likelihood ratio, starting at 0 and never below 0 (Page's cumulative sum).  If a curve is right,
the mean ratio reaches ENOUGH at most once in ENOUGH requests on average.  If 5 % of the requests
exceed the bound with budgets of 0, it does so after about 400 requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log

from tilewright.base.fast_records import slotted
from tilewright.elastic.policy.budgets import COVERED, predicted
from tilewright.elastic.policy.tasks import Critical, Curve, Phase

#: The share of requests that may exceed a bound: by the curve, and by our promise.
CLAIMED, PROMISED = 1 - COVERED, 0.01
#: The larger shares of the test, as multiples of these.
MORE = tuple(1.5 * 2**n for n in range(6))
#: The likelihood ratio at which a curve is declared wrong.
ENOUGH = 1e5
#: The most choices of budgets of a task for which evidence is kept; the latest ones stay.
MOST_WATCHED = 64


def ratios(share: float, over: bool) -> tuple[float, ...]:
    """The change of the logarithms of the likelihood ratios by one request."""
    if over:
        return tuple(log(more) for more in MORE)
    return tuple(log((1 - more * share) / (1 - share)) for more in MORE)


@slotted
class Evidence:
    """Evidence against the curve at one choice of budgets.

    logs: logarithms of the likelihood ratios, by MORE
    requests: number since the first that counts;  slowdowns: of those of them over their bound
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
        """The slowdown that covers the same share of these requests as a curve does."""
        left = int(CLAIMED * self.requests)
        return sorted(self.slowdowns, reverse=True)[min(left, len(self.slowdowns) - 1)]

    def after(self, slowdown: float, over: bool) -> Evidence:
        """The evidence after one more request."""
        steps = ratios(CLAIMED if any(self.budgets) else PROMISED, over)
        logs = tuple(max(0.0, was + step) for was, step in zip(self.logs, steps, strict=True))
        if not any(logs):
            return Evidence(self.budgets)
        more = (slowdown,) if over else ()
        return Evidence(self.budgets, logs, self.requests + 1, (*self.slowdowns, *more))


def watched(
    every: tuple[Evidence, ...], budgets: tuple[int, ...], slowdown: float, over: bool
) -> tuple[Evidence, tuple[Evidence, ...]]:
    """The evidence for these budgets after one more request, and for all choices."""
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
    """The task with curves that predict the slowdown `found` for these budgets.

    The phases in which workers stay get the blame, in equal parts; if there are none, all phases
    do.  At higher budgets the slowdown rises as the old curve did.
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
