"""The baseline of a critical model, the time that a request takes alone, measured while it runs.

A device's clock falls when it is warm or saves power, and rises again.  Requests then exceed a
bound, which is on the time alone, though normal work is not to blame.  So normal work pauses for a
few requests now and then, and before a curve counts as wrong.  These requests are a *probe*.

Input: requests that were answered.  Output: the task with its time alone as it is now.  Pure
functions; feedback.py has what they mean to the state.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from statistics import median

from tilewright.base.record import changed, slotted
from tilewright.elastic.policy.tasks import Critical

#: Requests of a probe.
REQUESTS = 9
#: Microseconds that normal work waits for them, at most.  Those that came count in the next probe.
MOST_US = 2e6
#: The next probe is due this long after the last one, and at least this multiple of its length:
#: it costs normal work a third of a percent of the time.
AGAIN_US, SELDOM = 10e6, 300
#: The same after a probe that found another time: what changes may change again.
SOON_US, OFTEN = 1e6, 30
#: Times alone that differ by less than this part are the same.
DIFFERENT = 0.02
#: Once a doubt led to a probe, and the time alone was not the reason, a curve may count as wrong
#: within this number of requests.
RECENT = 1000


@slotted
class Baseline:
    """What is known of the time alone of a critical task.

    due: when the next probe begins, at the latest; inf: no request has come yet
    probing: normal work waits;  since: when that began
    alone: microseconds of requests that ran alone, in probes that have found nothing yet
    doubt: the slowdown that led to the probe; 0: it was due
    requests: answered since a probe did not explain a doubt
    """

    due: float = inf
    probing: bool = False
    since: float = 0.0
    alone: tuple[float, ...] = ()
    doubt: float = 0.0
    requests: int = RECENT

    @property
    def believed(self) -> bool:
        """Whether a curve counts as wrong if requests say so."""
        return self.requests < RECENT


def with_probe(baseline: Baseline, now: float, doubt: float = 0.0) -> Baseline:
    """A probe begins."""
    return changed(baseline, probing=True, since=now, doubt=doubt)


def with_answer(baseline: Baseline, took_us: float, shared: bool, now: float) -> Baseline:
    """After one more request.  shared: something else may have been on the device"""
    if not baseline.probing:
        due = now + AGAIN_US if baseline.due == inf else baseline.due
        return changed(baseline, due=due, requests=baseline.requests + 1)
    return baseline if shared else changed(baseline, alone=(*baseline.alone, took_us))


def is_over(baseline: Baseline, now: float) -> bool:
    """Whether a probe has found what it can."""
    return baseline.probing and (len(baseline.alone) >= REQUESTS or now >= baseline.since + MOST_US)


def probed(baseline: Baseline, task: Critical, now: float) -> tuple[Baseline, Critical]:
    """After a probe.  The slowdown that led to it is explained if it keeps the bound over the time
    that was found; if not, the curve is to blame when it is seen again."""
    spent = now - baseline.since
    later = now + max(AGAIN_US, SELDOM * spent)
    if len(baseline.alone) < REQUESTS:
        return changed(baseline, probing=False, due=later), task
    ratio = median(baseline.alone) / task.solo_us
    if abs(ratio - 1) <= DIFFERENT:
        return Baseline(later, requests=0 if baseline.doubt else baseline.requests), task
    explained = baseline.doubt <= ratio * task.max_slowdown
    phases = tuple(replace(phase, solo_us=ratio * phase.solo_us) for phase in task.phases)
    found = Baseline(now + max(SOON_US, OFTEN * spent), requests=RECENT if explained else 0)
    return found, replace(task, phases=phases)
