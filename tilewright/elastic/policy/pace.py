"""The time that a critical model takes alone, found anew while it runs.

A device's clock falls when it is warm or saves power, and rises again.  Requests then exceed a
bound, which is on the time alone, though normal work is not to blame.  So normal work waits for a
few requests now and then, and before a curve counts as wrong: a *look*.

Input: requests that were answered.  Output: the task with its time alone as it is now.  Pure
functions; findings.py has what they mean to the state.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from statistics import median

from tilewright.base.record import changed, slotted
from tilewright.elastic.policy.tasks import Critical

#: Requests of a look.
REQUESTS = 9
#: Microseconds that normal work waits for them, at most.  Those that came count in the next look.
MOST_US = 2e6
#: The next look is due so long after the last one, and so many times as long as that took: of the
#: time of normal work it costs a third of a percent.
AGAIN_US, SELDOM = 10e6, 300
#: The same after a look that found another time: what changes may change again.
SOON_US, OFTEN = 1e6, 30
#: Times alone that differ by less than this part are the same.
DIFFERENT = 0.02
#: Once a doubt was looked into, and the time alone was not the reason, a curve may count as wrong
#: within so many requests.
RECENT = 1000


@slotted
class Pace:
    """What is known of the time alone of a critical task.

    due: when the next look begins, at the latest; inf: nobody has asked yet
    looking: normal work waits;  since: when that began
    alone: microseconds of requests with nothing beside them, in looks that have found nothing yet
    doubt: the slowdown that led to the look; 0: it was due
    requests: answered since a doubt was looked into in vain
    """

    due: float = inf
    looking: bool = False
    since: float = 0.0
    alone: tuple[float, ...] = ()
    doubt: float = 0.0
    requests: int = RECENT

    @property
    def believed(self) -> bool:
        """Whether a curve counts as wrong if requests say so."""
        return self.requests < RECENT


def with_look(pace: Pace, now: float, doubt: float = 0.0) -> Pace:
    """A look begins."""
    return changed(pace, looking=True, since=now, doubt=doubt)


def with_answer(pace: Pace, took_us: float, beside: bool, now: float) -> Pace:
    """After one more request.  beside: something else may have been on the device"""
    if not pace.looking:
        due = now + AGAIN_US if pace.due == inf else pace.due
        return changed(pace, due=due, requests=pace.requests + 1)
    return pace if beside else changed(pace, alone=(*pace.alone, took_us))


def is_over(pace: Pace, now: float) -> bool:
    """Whether a look has found what it can."""
    return pace.looking and (len(pace.alone) >= REQUESTS or now >= pace.since + MOST_US)


def looked(pace: Pace, task: Critical, now: float) -> tuple[Pace, Critical]:
    """After a look.  The slowdown that led to it is explained if it keeps the bound over the time
    that was found; if not, the curve is to blame when it is seen again."""
    spent = now - pace.since
    later = now + max(AGAIN_US, SELDOM * spent)
    if len(pace.alone) < REQUESTS:
        return changed(pace, looking=False, due=later), task
    ratio = median(pace.alone) / task.solo_us
    if abs(ratio - 1) <= DIFFERENT:
        return Pace(later, requests=0 if pace.doubt else pace.requests), task
    explained = pace.doubt <= ratio * task.max_slowdown
    phases = tuple(replace(phase, solo_us=ratio * phase.solo_us) for phase in task.phases)
    found = Pace(now + max(SOON_US, OFTEN * spent), requests=RECENT if explained else 0)
    return found, replace(task, phases=phases)
