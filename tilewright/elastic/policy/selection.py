"""Selects the normal tasks that continue or begin an inference: by priority, rotation and number.

Input: the state.  Output: the numbers of these tasks.  The design decides what a task gets beside a
critical request (designs.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.base.fast_records import changed
from tilewright.elastic.policy.designs import Design
from tilewright.elastic.policy.state import SchedulerState


def most_concurrent(together: int, state: SchedulerState) -> int:
    """The most normal tasks beside a critical request."""
    return min(together or len(state.normal), len(state.normal))


def eligible(design: Design, state: SchedulerState) -> list[int]:
    """Numbers of the tasks with work that come first, by priority or rotation."""
    wanting = [n for n, p in enumerate(state.normal) if p.backlog]
    if design.exclusive:
        return [n for n in wanting if state.normal[n].task.name == state.holder]
    first = max((state.normal[n].task.priority for n in wanting), default=0)
    return [n for n in wanting if state.normal[n].task.priority == first]


def may_begin(together: int, state: SchedulerState, tasks: Sequence[int]) -> Collection[int]:
    """Numbers of the tasks that may begin an inference.

    If more tasks have work than may run at once, the one that has waited longest is next.
    together: how many may run at once; 0: all
    tasks: from `eligible`; tasks of a lower priority cannot continue and do not count
    """
    if not together or len(tasks) <= together:
        return tasks
    waiting = [n for n in tasks if not state.normal[n].busy]
    free = max(0, together - (len(tasks) - len(waiting)))
    return sorted(waiting, key=lambda n: state.normal[n].began)[:free]


def passed_on(state: SchedulerState) -> SchedulerState:
    """Passes the device to the next task with work.  For designs that run one inference at a time,
    whose task keeps the device until the inference ends."""
    if state.running is not None or any(p.busy for p in state.normal):
        return state
    asked = {request.task for request in state.waiting}
    wanting = {task.name: task.name in asked for task in state.critical}
    wanting |= {p.task.name: p.backlog > 0 for p in state.normal}
    names = list(wanting)
    first = names.index(state.holder) + 1 if state.holder in wanting else 0
    following = (name for name in names[first:] + names[:first] if wanting[name])
    return changed(state, holder=next(following, state.holder))
