"""Budgets of a critical model's phases, and their correction by what requests really took.

Input: phases with slowdown curves, a bound.  Output: workers that normal kernels may keep in each
phase, so that the predicted slowdown of the whole request stays under the bound.  Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import exp, log

from tilewright.elastic.policy.tasks import Critical, Phase

#: Share of requests over their bound that the correction steers to, below the 1 % that is promised.
OVER = 0.005
#: How much one request over its bound counts: a factor of e in the margin.
STEP = 1.0
#: From this margin on the budget is 0.
MOST_MARGIN = 1000.0
#: Margins are told apart by a factor of e^(1 / STEPS), so that few bounds are ever asked for.
STEPS = 20
#: A slowdown this near to the bound meets it: differences of times are rounded.
ROUNDING = 1e-11


@lru_cache(maxsize=4096)
def budgets(phases: tuple[Phase, ...], bound: float) -> tuple[int, ...]:
    """One for each phase.

    The work that normal kernels get is workers times time.  Each step takes the rise of a budget
    that gives the most of it for the time that it costs, as long as the sum stays within the bound.
    Where nothing fits they are all 0: it is admission that refuses a bound (admission.py).
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


def bounded(task: Critical, margin: float) -> tuple[int, ...]:
    """The budgets of a task after correction: a margin of 2 halves what the bound leaves."""
    if margin >= MOST_MARGIN:
        return (0,) * len(task.phases)
    steps = round(STEPS * log(margin))
    return budgets(task.phases, 1 + (task.max_slowdown - 1) / exp(steps / STEPS))


def corrected(margin: float, over: bool) -> float:
    """The margin after one request.

    Over its bound: up by a factor of e^(STEP (1 - OVER)); else down by e^(-STEP OVER), as in
    adaptive quantile estimation.  Whatever the curves were worth, of n requests in a row at most
    OVER n + log(MOST_MARGIN) / STEP + 1 exceed their bound while normal work runs beside them.
    """
    factor = exp(STEP * (1 - OVER)) if over else exp(-STEP * OVER)
    # it may go a step beyond the largest margin, so that each request over its bound counts in full
    return min(MOST_MARGIN * exp(STEP), max(1.0, margin * factor))
