"""Chooses the budgets of a critical model's phases, and corrects them by measured requests.

Input: phases with slowdown curves, a bound.  Output: for each phase the number of workers that
normal kernels may keep, such that the predicted slowdown of the whole request stays under the
bound; the parts of a request with their budgets (`Hold`).  Pure functions.

It also says how curves are measured, on a device and in the simulator alike: the budgets to try,
the gaps between requests, and the quantile of their times that counts.  measure_curves.py and
lab/simulator/measure.py measure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from math import exp, log

from tilewright.base.budget import UNLIMITED
from tilewright.base.quantiles import quantile
from tilewright.elastic.policy.tasks import Critical, Phase

#: The share of requests that a curve's slowdown covers; it exceeds the promised 99 %.
COVERED = 0.995
#: The number of requests from which that share is estimated.
REQUESTS = 200
#: Points of a curve besides 0.
LEVELS = 6
#: The shortest and the longest gap before a request, relative to their mean.
GAPS = (1 / 3, 5 / 3)
#: The golden ratio.  The fractional parts of its multiples fill [0, 1) evenly (Weyl), in an order
#: that no periodic kernel can stay in step with.
GOLDEN = (5**0.5 - 1) / 2


def covering_time(times: Sequence[float]) -> float:
    """The time that covers the share COVERED of requests; the longest if they are few."""
    return quantile(times, COVERED)


def gaps(mean: float) -> Iterator[float]:
    """Gaps between requests, without end; the same sequence each time.

    They are long enough for normal kernels to fill the device again, and irregular enough for
    requests to meet them at all stages.
    """
    least, most = GAPS
    for number in count(1):
        yield mean * (least + (most - least) * (number * number * GOLDEN % 1))


def levels_of(workers: int, steps: int) -> tuple[int, ...]:
    """Budgets to try besides 0: all workers, halved repeatedly.

    The first few workers matter most: one on each multiprocessor slows the critical model nearly as
    much as eight do (decision 55).
    """
    parts = (max(1, workers >> n) for n in range(steps, 1, -1))
    return tuple(dict.fromkeys((*parts, UNLIMITED)))


#: The share of requests over their bound that the correction aims at; the promise is 1 %.
OVER = 0.005
#: The weight of one request over its bound: it multiplies the margin by about e.
STEP = 1.0
#: From this margin on the budget is 0.
MOST_MARGIN = 1000.0
#: Margins are rounded to factors of e^(1 / STEPS), so that few different bounds are evaluated.
STEPS = 20
#: A slowdown that exceeds the bound by less still meets it: differences of times are rounded.
ROUNDING = 1e-11


@lru_cache(maxsize=4096)
def budgets(phases: tuple[Phase, ...], bound: float) -> tuple[int, ...]:
    """The budget of each phase.

    The gain is the work of normal kernels, workers times time.  Each step raises the budget with
    the most gain per lost time, while the predicted slowdown stays within the bound.  If nothing
    fits, all budgets are 0; admission refuses a bound that cannot be kept (admission.py).
    """
    chosen = [0] * len(phases)
    room = (bound + ROUNDING - predicted(phases, [0] * len(phases))) * _solo(phases)
    while rises := [
        rise for n, phase in enumerate(phases) for rise in _rises(n, phase, chosen[n], room)
    ]:
        cost, _, number, level = min(rises)
        room -= cost[1]
        chosen[number] = level
    return tuple(phase.curve.levels[n][0] for phase, n in zip(phases, chosen, strict=True))


def _rises(
    number: int, phase: Phase, level: int, room: float
) -> list[tuple[tuple[float, float], float, int, int]]:
    """((time per gain, time), -gain, phase, level) of the higher levels that fit."""
    workers, slowdown = phase.curve.levels[level]
    found = []
    for higher in range(level + 1, len(phase.curve.levels)):
        more, slower = phase.curve.levels[higher]
        time = phase.solo_us * (slower - slowdown)
        gain = phase.solo_us * (slower * more - slowdown * workers)
        if time <= room and gain > 0:
            found.append(((time / gain, time), -gain, number, higher))
    return found


def predicted(phases: Sequence[Phase], levels: Sequence[int]) -> float:
    """The slowdown of a whole request with each phase at a level of its curve."""
    taken = sum(p.solo_us * p.curve.levels[n][1] for p, n in zip(phases, levels, strict=True))
    return taken / _solo(phases)


def _solo(phases: Sequence[Phase]) -> float:
    return sum(phase.solo_us for phase in phases)


def budgets_for(task: Critical, margin: float) -> tuple[int, ...]:
    """The budgets of a task with a safety margin: a margin of 2 halves the slowdown that is
    allowed."""
    if margin >= MOST_MARGIN:
        return (0,) * len(task.phases)
    steps = round(STEPS * log(margin))
    return budgets(task.phases, 1 + (task.max_slowdown - 1) / exp(steps / STEPS))


def next_margin(margin: float, over: bool) -> float:
    """The margin after one request.

    If it was over its bound, the margin grows by a factor of e^(STEP (1 - OVER)), otherwise it
    shrinks by e^(-STEP OVER), as in adaptive quantile estimation.  So even with wrong curves, of n
    consecutive requests beside normal work at most OVER n + log(MOST_MARGIN) / STEP + 1 exceed
    their bound.
    """
    factor = exp(STEP * (1 - OVER)) if over else exp(-STEP * OVER)
    # It may exceed the largest margin by one step, so that each request over its bound counts in
    # full.
    return min(MOST_MARGIN * exp(STEP), max(1.0, margin * factor))


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
    found, first, before = list[Hold](), 0, UNLIMITED
    for phase, budget in zip(phases, budgets, strict=True):
        last = first + phase.kernels
        found.append(Hold(budget, first, last, settle_us > 0 and budget < before))
        first, before = last, budget
    return found
