"""Draws conclusions from answered requests: the device's speed has changed, or a curve is wrong.

Input: the state, a request and its time.  Output: the state, and actions that report changes.
After a process died, its workers stay in the count, and each critical request would wait for them:
`Recount` is the action once no launch is in flight.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.base.fast_records import changed
from tilewright.elastic.policy.admission import disturbing, keeps
from tilewright.elastic.policy.baseline import is_over, probed, with_answer, with_probe
from tilewright.elastic.policy.events import Action, Noticed, Recalibrated, Recount, Withdraw
from tilewright.elastic.policy.sequential_test import Evidence, expected, watched, with_found
from tilewright.elastic.policy.state import Running, SchedulerState, with_item

Answer = tuple[SchedulerState, tuple[Action, ...]]


def answered(state: SchedulerState, running: Running, took_us: float) -> Answer:
    """The state after a request of a task with a bound."""
    task = state.task(running.request.task)
    if task is None:
        return state, ()
    number = state.critical.index(task)
    # Kernels of tasks that left, and of requests that outlived their lease, may still run.
    unknown = state.recount is not None or bool(state.overdue)
    baseline = with_answer(state.baselines[number], took_us, running.shared or unknown, state.now)
    state = changed(state, baselines=with_item(state.baselines, number, baseline))
    if baseline.probing:
        return state, ()
    if state.normal and state.now >= baseline.due:
        return _probe(state, number), ()
    return _watched(state, number, running.budgets, took_us) if running.shared else (state, ())


def probing(state: SchedulerState) -> bool:
    """True if normal launches wait because the time alone of a task is being probed."""
    return any(baseline.probing for baseline in state.baselines)


def runs_though_late(state: SchedulerState, number: int) -> bool:
    """True if a request runs although it seems too late for its deadline.

    That is so if its lateness follows from a time alone that is being probed now, or should be.
    """
    baseline = state.baselines[number]
    free = state.running is None and not state.waiting
    return free and (baseline.probing or state.now >= baseline.due)


def probes_ended(state: SchedulerState) -> Answer:
    """Ends probes that have enough requests, or for which no requests come."""
    told: tuple[Action, ...] = ()
    for number, baseline in enumerate(state.baselines):
        if is_over(baseline, state.now):
            state, more = _probe_ended(state, number)
            told += more
    return state, told


def _probe(state: SchedulerState, number: int, doubt: float = 0.0) -> SchedulerState:
    baseline = with_probe(state.baselines[number], state.now, doubt)
    return changed(state, baselines=with_item(state.baselines, number, baseline))


def _probe_ended(state: SchedulerState, number: int) -> Answer:
    """The state after a probe.  If the time alone has changed, evidence from the old time is
    dropped."""
    was = state.critical[number]
    baseline, task = probed(state.baselines[number], was, state.now)
    state = changed(state, baselines=with_item(state.baselines, number, baseline))
    if task is was:
        return state, ()
    state = changed(
        state,
        critical=with_item(state.critical, number, task),
        margins=with_item(state.margins, number, 1.0),
        evidence=with_item(state.evidence, number, ()),
    )
    return state, (Recalibrated(task.name, was.solo_us, task.solo_us),)


def _watched(
    state: SchedulerState, number: int, budgets: tuple[int, ...], took_us: float
) -> Answer:
    """Updates the evidence against curves with a request that had normal work beside it."""
    task = state.critical[number]
    slowdown, over = took_us / task.solo_us, took_us > task.longest_us
    found, others = watched(state.evidence[number], budgets, slowdown, over)
    if not found.enough:
        return changed(state, evidence=with_item(state.evidence, number, (*others, found))), ()
    state = changed(state, evidence=with_item(state.evidence, number, others))
    if not state.baselines[number].believed:
        return _probe(state, number, found.found), ()
    return _corrected(state, number, found)


def _corrected(state: SchedulerState, number: int, found: Evidence) -> Answer:
    """Corrects curves by the evidence.  If no budget keeps the bound, normal work ends: even a
    budget of 0 does not stop what disturbs the critical model."""
    task = state.critical[number]
    better = with_found(task, found.budgets, found.found)
    notice = Noticed(
        task.name, found.budgets, found.requests, len(found.slowdowns),
        expected(task.phases, found.budgets), found.found, keeps(better),
    )  # fmt: skip
    state = changed(state, critical=with_item(state.critical, number, better))
    if notice.attainable:
        return state, (notice,)
    ended = (
        Withdraw(progress.task.name, error)
        for progress in state.normal
        if (error := disturbing(progress.task.name, state.critical)) is not None
    )
    state = departed(state, [progress.task.name for progress in state.normal])
    return changed(state, normal=()), (notice, *ended)


#: Microseconds after which no kernel of a task that has left still runs.
DEAD_US = 1e6
#: The most microseconds that normal launches pause for a recount; later it is tried again.
PAUSE_US = 100_000.0


def departed(state: SchedulerState, tasks: Collection[str], died: bool = False) -> SchedulerState:
    """The state after normal tasks have left with launches in flight.

    died: their process has ended, so their workers stay in the count.  Workers of tasks that only
          left count themselves out later, so a due recount waits for them, too
    """
    flying = any(p.flying for p in state.normal if p.task.name in tasks)
    if flying and (died or state.recount is not None):
        return changed(state, recount=state.now + DEAD_US)
    return state


def paused(state: SchedulerState) -> bool:
    """True if normal launches wait for a recount."""
    return state.recount is not None and state.now >= state.recount


def recounted(state: SchedulerState) -> tuple[SchedulerState, tuple[Action, ...]]:
    if state.recount is None or state.now < state.recount:
        return state, ()
    if not any(progress.flying for progress in state.normal):
        return changed(state, recount=None), (Recount(),)
    if state.now >= state.recount + PAUSE_US:
        return changed(state, recount=state.now + DEAD_US), ()
    return state, ()
