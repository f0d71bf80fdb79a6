"""Which normal task goes on, or begins an inference: by priority, by turns, and so many at once.

Input: the state.  Output: the tasks that may, by their numbers.  What it may have beside a
critical request is the design's to say (designs.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.base.record import changed
from tilewright.elastic.policy.designs import Design
from tilewright.elastic.policy.state import Shares


def most_beside(together: int, state: Shares) -> int:
    """Normal tasks that a critical request may have beside it."""
    return min(together or len(state.normal), len(state.normal))


def in_turn(design: Design, state: Shares) -> list[int]:
    """The tasks with work that no other one goes before: their numbers."""
    wanting = [n for n, p in enumerate(state.normal) if p.backlog]
    if design.turns:
        return [n for n in wanting if state.normal[n].task.name == state.turn]
    first = max((state.normal[n].task.priority for n in wanting), default=0)
    return [n for n in wanting if state.normal[n].task.priority == first]


def with_place(together: int, state: Shares, tasks: Sequence[int]) -> Collection[int]:
    """Those of which an inference may begin: if more have work than may run at once, whoever has
    waited longest gets the next place.

    together: places; 0: as many as there are tasks
    tasks: `in_turn`; others, of a lower priority, cannot go on and take no place
    """
    if not together or len(tasks) <= together:
        return tasks
    waiting = [n for n in tasks if not state.normal[n].busy]
    free = max(0, together - (len(tasks) - len(waiting)))
    return sorted(waiting, key=lambda n: state.normal[n].began)[:free]


def turned(state: Shares) -> Shares:
    """Sequential: whoever has the turn keeps it through an inference, then the next one with work
    gets it."""
    if state.running is not None or any(p.busy for p in state.normal):
        return state
    asked = {request.task for request in state.waiting}
    wanting = {task.name: task.name in asked for task in state.critical}
    wanting |= {p.task.name: p.backlog > 0 for p in state.normal}
    names = list(wanting)
    first = names.index(state.turn) + 1 if state.turn in wanting else 0
    following = (name for name in names[first:] + names[:first] if wanting[name])
    return changed(state, turn=next(following, state.turn))
