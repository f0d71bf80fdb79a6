"""Which normal task goes on, or begins an inference: by priority, by turns, and so many at once.

Input: the state, a normal task's progress.  Output: whether it may.  What it may have beside a
critical request is the design's to say (designs.py).
"""

from __future__ import annotations

from tilewright.base.record import changed
from tilewright.elastic.policy.designs import Design
from tilewright.elastic.policy.state import Progress, Shares


def most_beside(together: int, state: Shares) -> int:
    """Normal tasks that a critical request may have beside it."""
    return min(together or len(state.normal), len(state.normal))


def in_turn(design: Design, state: Shares, progress: Progress) -> bool:
    """Whether no other task goes first."""
    if design.turns:
        return state.turn == progress.task.name
    return all(not p.backlog or p.task.priority <= progress.task.priority for p in state.normal)


def has_place(together: int, state: Shares, progress: Progress) -> bool:
    """Whether an inference may begin: if more tasks have work than may run at once, whoever has
    waited longest gets the next place.  Tasks of a lower priority, which cannot go on, take none.

    together: places; 0: as many as there are tasks
    """
    own = progress.task.priority
    others = [p for p in state.normal if p is not progress and p.backlog and p.task.priority >= own]
    if not together or len(others) < together:
        return True
    ahead = sum(p.busy or p.began < progress.began for p in others)
    return not progress.busy and ahead < together


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
