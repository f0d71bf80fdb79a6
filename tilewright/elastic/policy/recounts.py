"""When workers are counted anew: those of a process that died never count themselves out, and each
critical request would wait for them.

Input: the state and its time.  Output: the state, and the action once no launch is in flight.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.elastic.policy.events import Action, Recount
from tilewright.elastic.policy.state import Shares

#: Microseconds after which no kernel of a process that died runs any more.
DEAD_US = 1e6
#: Normal launches pause so long for a count, at most; then they go on, and it is tried again.
PAUSE_US = 100_000.0


def died(state: Shares, task: str) -> Shares:
    """A task's process has ended; what it had in flight did not count itself out."""
    if any(progress.task.name == task and progress.flying for progress in state.normal):
        return replace(state, recount=state.now + DEAD_US)
    return state


def paused(state: Shares) -> bool:
    """Whether normal launches wait for a count."""
    return state.recount is not None and state.now >= state.recount


def recounted(state: Shares) -> tuple[Shares, tuple[Action, ...]]:
    if state.recount is None or state.now < state.recount:
        return state, ()
    if not any(progress.flying for progress in state.normal):
        return replace(state, recount=None), (Recount(),)
    if state.now >= state.recount + PAUSE_US:
        return replace(state, recount=state.now + DEAD_US), ()
    return state, ()
