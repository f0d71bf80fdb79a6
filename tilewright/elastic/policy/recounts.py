"""When workers are counted anew: those of a process that died never count themselves out, and each
critical request would wait for them.

Input: the state and its time.  Output: the state, and the action once no launch is in flight.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.base.record import changed
from tilewright.elastic.policy.events import Action, Recount
from tilewright.elastic.policy.state import Shares

#: Microseconds after which no kernel of a task that has left runs any more.
DEAD_US = 1e6
#: Normal launches pause so long for a count, at most; then they go on, and it is tried again.
PAUSE_US = 100_000.0


def left(state: Shares, tasks: Collection[str], died: bool = False) -> Shares:
    """The state's count, when normal tasks leave it with what they have in flight.

    died: their process has ended, so these workers never count themselves out.  Others do, but
          nobody tells when: a count that is due comes after them, for it would miss them then
    """
    flying = any(p.flying for p in state.normal if p.task.name in tasks)
    if flying and (died or state.recount is not None):
        return changed(state, recount=state.now + DEAD_US)
    return state


def paused(state: Shares) -> bool:
    """Whether normal launches wait for a count."""
    return state.recount is not None and state.now >= state.recount


def recounted(state: Shares) -> tuple[Shares, tuple[Action, ...]]:
    if state.recount is None or state.now < state.recount:
        return state, ()
    if not any(progress.flying for progress in state.normal):
        return changed(state, recount=None), (Recount(),)
    if state.now >= state.recount + PAUSE_US:
        return changed(state, recount=state.now + DEAD_US), ()
    return state, ()
