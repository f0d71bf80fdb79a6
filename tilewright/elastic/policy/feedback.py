"""Draws conclusions from answered requests: the device's speed has changed, or a curve is wrong.

Input: the state, a request and its time.  Output: the state, and actions that report changes.
After a process died, its workers stay in the count, and each critical request would wait for them:
`Recount` is the action once no launch is in flight.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.base.fast_records import changed
from tilewright.elastic.policy.admission import disturbing, keeps
from tilewright.elastic.policy.baseline import Baseline, is_over, probed, with_answer, with_probe
from tilewright.elastic.policy.events import Action, Noticed, Recalibrated, Recount, Withdraw
from tilewright.elastic.policy.sequential_test import Evidence, expected, watched, with_found
from tilewright.elastic.policy.state import (
    CriticalState,
    Running,
    SchedulerState,
    with_critical,
)

Transition = tuple[SchedulerState, tuple[Action, ...]]


def on_request_answered(
    state: SchedulerState, found: CriticalState, running: Running, took_us: float
) -> Transition:
    """The state after a request of a task with a bound."""
    # Kernels of tasks that left, and of requests that outlived their lease, may still run.
    unknown = state.recount is not None or bool(state.overdue)
    baseline = with_answer(found.baseline, took_us, running.shared or unknown, state.now)
    found = changed(found, baseline=baseline)
    state = with_critical(state, found)
    if baseline.probing:
        return state, ()
    if state.normal and state.now >= baseline.due:
        return _probe(state, found), ()
    return _compared(state, found, running.budgets, took_us) if running.shared else (state, ())


def probing(state: SchedulerState) -> bool:
    """True if normal launches wait because the time alone of a task is being probed."""
    return any(one.baseline.probing for one in state.critical)


def runs_though_late(state: SchedulerState, baseline: Baseline) -> bool:
    """True if a request of a task with this baseline runs although it seems too late.

    That is so if its lateness follows from a time alone that is being probed now, or should be.
    """
    free = state.running is None and not state.waiting
    return free and (baseline.probing or state.now >= baseline.due)


def probes_ended(state: SchedulerState) -> Transition:
    """Ends probes that have enough requests, or for which no requests come."""
    actions: tuple[Action, ...] = ()
    for one in state.critical:
        if is_over(one.baseline, state.now):
            state, more = _probe_ended(state, one)
            actions += more
    return state, actions


def _probe(state: SchedulerState, found: CriticalState, doubt: float = 0.0) -> SchedulerState:
    return with_critical(
        state, changed(found, baseline=with_probe(found.baseline, state.now, doubt))
    )


def _probe_ended(state: SchedulerState, found: CriticalState) -> Transition:
    """The state after a probe.  If the time alone has changed, evidence from the old time is
    dropped."""
    baseline, task = probed(found.baseline, found.task, state.now)
    if task is found.task:
        return with_critical(state, changed(found, baseline=baseline)), ()
    state = with_critical(state, CriticalState(task, due=found.due, baseline=baseline))
    return state, (Recalibrated(task.name, found.task.solo_us, task.solo_us),)


def _compared(
    state: SchedulerState, found: CriticalState, budgets: tuple[int, ...], took_us: float
) -> Transition:
    """Updates the evidence against curves with a request that had normal work beside it."""
    task = found.task
    slowdown, over = took_us / task.solo_us, took_us > task.longest_us
    new, others = watched(found.evidence, budgets, slowdown, over)
    if not new.enough:
        return with_critical(state, changed(found, evidence=(*others, new))), ()
    found = changed(found, evidence=others)
    state = with_critical(state, found)
    if not found.baseline.believed:
        return _probe(state, found, new.found), ()
    return _with_curves_corrected(state, found, new)


def _with_curves_corrected(
    state: SchedulerState, found: CriticalState, evidence: Evidence
) -> Transition:
    """Corrects curves by the evidence.  If no budget keeps the bound, normal work ends: even a
    budget of 0 does not stop what disturbs the critical model."""
    task = found.task
    better = with_found(task, evidence.budgets, evidence.found)
    notice = Noticed(
        task.name, evidence.budgets, evidence.requests, len(evidence.slowdowns),
        expected(task.phases, evidence.budgets), evidence.found, keeps(better),
    )  # fmt: skip
    state = with_critical(state, changed(found, task=better))
    if notice.attainable:
        return state, (notice,)
    ended = (
        Withdraw(progress.task.name, error)
        for progress in state.normal
        if (error := disturbing(progress.task.name, state.critical_tasks)) is not None
    )
    state = after_leaving(state, [progress.task.name for progress in state.normal])
    return changed(state, normal=()), (notice, *ended)


#: Microseconds after which no kernel of a task that has left still runs.
DEAD_US = 1e6
#: The most microseconds that normal launches pause for a recount; later it is tried again.
PAUSE_US = 100_000.0


def after_leaving(
    state: SchedulerState, tasks: Collection[str], died: bool = False
) -> SchedulerState:
    """The state after normal tasks have left with launches in flight.

    died: their process has ended, so their workers stay in the count.  Workers of tasks that only
          left count themselves out later, so a due recount waits for them, too
    """
    flying = any(p.flying for p in state.normal if p.task.name in tasks)
    if flying and (died or state.recount is not None):
        return changed(state, recount=state.now + DEAD_US)
    return state


def awaits_recount(state: SchedulerState) -> bool:
    """True if normal launches wait for a recount."""
    return state.recount is not None and state.now >= state.recount


def recount_if_due(state: SchedulerState) -> Transition:
    if state.recount is None or state.now < state.recount:
        return state, ()
    if not any(progress.flying for progress in state.normal):
        return changed(state, recount=None), (Recount(),)
    if state.now >= state.recount + PAUSE_US:
        return changed(state, recount=state.now + DEAD_US), ()
    return state, ()
