"""The time that a critical model takes alone, found anew while it runs.

A device's clock falls when it is warm or saves power, and rises again.  Requests then exceed a
bound, which is on the time alone, though normal work is not to blame.  So normal work waits for a
few requests now and then, and before a curve counts as wrong: a *look*.

Input: requests that were answered.  Output: the task with its time alone as it is now.  Pure
functions; findings.py has what they mean to the state.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from tilewright.base.record import changed, slotted
from tilewright.elastic.policy.tasks import Critical

#: Requests of a look, and the fewest that tell anything if no more come.
REQUESTS, FEWEST = 9, 3
#: Microseconds that normal work waits for them, at most.
MOST_US = 2e6
#: The next look is due so long after the last one, and so many times as long as that took: of the
#: time of normal work it costs a third of a percent.
AGAIN_US, SELDOM = 10e6, 300
#: The same after a look that found another time: what changes may change again.
SOON_US, OFTEN = 1e6, 30
#: Times alone that differ by less than this part are the same.
DIFFERENT = 0.02
#: After a look that found the same time, a curve may count as wrong within so many requests.
RECENT = 1000


@slotted
class Pace:
    """What is known of the time alone of a critical task.

    due: when the next look begins, at the latest
    alone: while there is a look, microseconds of requests with nothing beside them; else None
    since: when it began
    doubt: the slowdown that led to it; 0: it was due
    requests: answered since the last look that found the same time
    """

    due: float
    alone: tuple[float, ...] | None = None
    since: float = 0.0
    doubt: float = 0.0
    requests: int = RECENT

    @property
    def recent(self) -> bool:
        """Whether the time alone was found to be the same a short time ago."""
        return self.requests < RECENT


def first_pace(now: float) -> Pace:
    """Of a task that has just been measured."""
    return Pace(now + AGAIN_US)


def with_look(pace: Pace, now: float, doubt: float = 0.0) -> Pace:
    """A look begins."""
    return changed(pace, alone=(), since=now, doubt=doubt)


def with_answer(pace: Pace, took_us: float, beside: bool) -> Pace:
    """After one more request.  beside: normal work was in flight when it began"""
    if pace.alone is None:
        return changed(pace, requests=pace.requests + 1)
    return pace if beside else changed(pace, alone=(*pace.alone, took_us))


def is_over(pace: Pace, now: float) -> bool:
    """Whether a look has found what it can."""
    if pace.alone is None:
        return False
    return len(pace.alone) >= REQUESTS or now >= pace.since + MOST_US


def looked(pace: Pace, task: Critical, now: float) -> tuple[Pace, Critical]:
    """After a look.  The slowdown that led to it is explained if it keeps the bound over the time
    that was found; if not, the curve is to blame when it is seen again."""
    spent, alone = now - pace.since, pace.alone or ()
    ratio = median(alone) / task.solo_us if len(alone) >= FEWEST else 1.0
    if abs(ratio - 1) <= DIFFERENT:
        return Pace(now + max(AGAIN_US, SELDOM * spent), requests=0), task
    explained = pace.doubt <= ratio * task.max_slowdown
    phases = tuple(replace(phase, solo_us=ratio * phase.solo_us) for phase in task.phases)
    found = Pace(now + max(SOON_US, OFTEN * spent), requests=RECENT if explained else 0)
    return found, replace(task, phases=phases)
