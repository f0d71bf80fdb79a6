"""Recounts workers after a process died: its workers stay in the count, and each critical request
would wait for them.

Input: the state and its time.  Output: the state, and the action `Recount` once no launch is in
flight.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.base.fast_records import changed
from tilewright.elastic.policy.events import Action, Recount
from tilewright.elastic.policy.state import SchedulerState

#: Microseconds after which no kernel of a task that has left still runs.
DEAD_US = 1e6
#: The most microseconds that normal launches pause for a recount; later it is tried again.
PAUSE_US = 100_000.0


def left(state: SchedulerState, tasks: Collection[str], died: bool = False) -> SchedulerState:
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
