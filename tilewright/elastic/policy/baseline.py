"""The baseline of a critical model: the time that a request takes alone, measured while it serves.

A device's clock falls when it is warm or saves power, and rises again.  Requests then exceed their
bound, which is a multiple of the time alone, although normal work is not the cause.  So normal work
pauses for a few requests now and then, and before a curve is declared wrong.  These requests are a
*probe*.

Input: requests that were answered.  Output: the task with its present time alone.  These are pure
functions; feedback.py applies them to the state.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from statistics import median

from tilewright.base.fast_records import changed, slotted
from tilewright.elastic.policy.tasks import Critical

#: Requests of a probe.
REQUESTS = 9
#: The most microseconds that normal work waits for them.  Requests so far count in the next probe.
MOST_US = 2e6
#: The least time from one probe to the next: in microseconds, and as a multiple of the probe's
#: length.  Probes so cost normal work a third of a percent of the time.
AGAIN_US, SELDOM = 10e6, 300
#: The same after a probe that found a change, since the time may change again.
SOON_US, OFTEN = 1e6, 30
#: Times alone whose relative difference is smaller count as equal.
DIFFERENT = 0.02
#: After a probe has not explained a doubt, a curve may be declared wrong within this number of
#: requests.
RECENT = 1000


@slotted
class Baseline:
    """The state of the time alone of a critical task.

    due: time of the next probe, at the latest; inf: no request has come yet
    probing: True while normal work waits;  since: when that began
    alone: microseconds of requests that ran alone, in probes that have found nothing yet
    doubt: the slowdown that led to the probe; 0: the probe was due
    requests: number answered since a probe did not explain a doubt
    """

    due: float = inf
    probing: bool = False
    since: float = 0.0
    alone: tuple[float, ...] = ()
    doubt: float = 0.0
    requests: int = RECENT

    @property
    def believed(self) -> bool:
        """True if a curve may be declared wrong when requests exceed it."""
        return self.requests < RECENT


def with_probe(baseline: Baseline, now: float, doubt: float = 0.0) -> Baseline:
    """The baseline as a probe begins."""
    return changed(baseline, probing=True, since=now, doubt=doubt)


def with_answer(baseline: Baseline, took_us: float, shared: bool, now: float) -> Baseline:
    """The baseline after one more request.  shared: other work may have been on the device"""
    if not baseline.probing:
        due = now + AGAIN_US if baseline.due == inf else baseline.due
        return changed(baseline, due=due, requests=baseline.requests + 1)
    return baseline if shared else changed(baseline, alone=(*baseline.alone, took_us))


def is_over(baseline: Baseline, now: float) -> bool:
    """True if a probe has enough requests, or has lasted its longest time."""
    return baseline.probing and (len(baseline.alone) >= REQUESTS or now >= baseline.since + MOST_US)


def probed(baseline: Baseline, task: Critical, now: float) -> tuple[Baseline, Critical]:
    """The baseline and the task after a probe.

    If the slowdown that led to the probe keeps the bound over the new time alone, it is explained.
    If not, the curve is declared wrong when requests exceed it again.
    """
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
