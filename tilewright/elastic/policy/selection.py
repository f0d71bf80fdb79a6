"""Selects the normal tasks that go on or begin an inference: by priority, in rotation, by number.

Input: the state.  Output: the tasks that may, by their numbers.  What it may have beside a
critical request is the design's to say (designs.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.base.record import changed
from tilewright.elastic.policy.designs import Design
from tilewright.elastic.policy.state import SchedulerState


def most_concurrent(together: int, state: SchedulerState) -> int:
    """Normal tasks that a critical request may have beside it."""
    return min(together or len(state.normal), len(state.normal))


def eligible(design: Design, state: SchedulerState) -> list[int]:
    """The tasks with work that come first, by priority or rotation: their numbers."""
    wanting = [n for n, p in enumerate(state.normal) if p.backlog]
    if design.exclusive:
        return [n for n in wanting if state.normal[n].task.name == state.holder]
    first = max((state.normal[n].task.priority for n in wanting), default=0)
    return [n for n in wanting if state.normal[n].task.priority == first]


def may_begin(together: int, state: SchedulerState, tasks: Sequence[int]) -> Collection[int]:
    """The tasks of which an inference may begin: if more have work than may run at once, the one
    that has waited longest is next.

    together: how many may run at once; 0: all
    tasks: `eligible`; others, of a lower priority, cannot go on and do not count
    """
    if not together or len(tasks) <= together:
        return tasks
    waiting = [n for n in tasks if not state.normal[n].busy]
    free = max(0, together - (len(tasks) - len(waiting)))
    return sorted(waiting, key=lambda n: state.normal[n].began)[:free]


def passed_on(state: SchedulerState) -> SchedulerState:
    """The device passed on to the next task with work, where one inference runs at a time: its
    holder keeps it through an inference."""
    if state.running is not None or any(p.busy for p in state.normal):
        return state
    asked = {request.task for request in state.waiting}
    wanting = {task.name: task.name in asked for task in state.critical}
    wanting |= {p.task.name: p.backlog > 0 for p in state.normal}
    names = list(wanting)
    first = names.index(state.holder) + 1 if state.holder in wanting else 0
    following = (name for name in names[first:] + names[:first] if wanting[name])
    return changed(state, holder=next(following, state.holder))
