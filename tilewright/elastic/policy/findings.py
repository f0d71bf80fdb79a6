"""What answered requests say: a device that has become slower or faster, curves that promise too
much.

Input: the state, a request and what it took.  Output: the state, and what is told of it.
"""

from __future__ import annotations

from tilewright.base.record import changed
from tilewright.elastic.policy.admission import disturbing, keeps
from tilewright.elastic.policy.events import Action, Noticed, Recalibrated, Withdraw
from tilewright.elastic.policy.notices import Evidence, expected, watched, with_found
from tilewright.elastic.policy.pace import is_over, looked, with_answer, with_look
from tilewright.elastic.policy.recounts import left
from tilewright.elastic.policy.state import Running, Shares, with_item

Answer = tuple[Shares, tuple[Action, ...]]


def answered(state: Shares, running: Running, took_us: float) -> Answer:
    """After a request of a task with a bound."""
    task = state.task(running.request.task)
    if task is None:
        return state, ()
    number = state.critical.index(task)
    # of tasks that left, and of requests that outlived their lease, nobody knows what still runs
    unknown = state.recount is not None or bool(state.overdue)
    pace = with_answer(state.paces[number], took_us, running.beside or unknown, state.now)
    state = changed(state, paces=with_item(state.paces, number, pace))
    if pace.looking:
        return state, ()
    if state.normal and state.now >= pace.due:
        return _look(state, number), ()
    return _watched(state, number, running.budgets, took_us) if running.beside else (state, ())


def looking(state: Shares) -> bool:
    """Whether normal launches wait, since some task is looked at alone."""
    return any(pace.looking for pace in state.paces)


def tried(state: Shares, number: int) -> bool:
    """Whether a request of a task runs though it may be too late for its deadline: by the time
    alone that was found last it is, but that is looked at now, or should be."""
    pace = state.paces[number]
    free = state.running is None and not state.waiting
    return free and (pace.looking or state.now >= pace.due)


def looks_ended(state: Shares) -> Answer:
    """Without looks that have found what they can, or for which no requests come."""
    told: tuple[Action, ...] = ()
    for number, pace in enumerate(state.paces):
        if is_over(pace, state.now):
            state, more = _look_ended(state, number)
            told += more
    return state, told


def _look(state: Shares, number: int, doubt: float = 0.0) -> Shares:
    pace = with_look(state.paces[number], state.now, doubt)
    return changed(state, paces=with_item(state.paces, number, pace))


def _look_ended(state: Shares, number: int) -> Answer:
    """After a look.  With another time alone, what was found by the old one counts no longer."""
    was = state.critical[number]
    pace, task = looked(state.paces[number], was, state.now)
    state = changed(state, paces=with_item(state.paces, number, pace))
    if task is was:
        return state, ()
    state = changed(
        state,
        critical=with_item(state.critical, number, task),
        margins=with_item(state.margins, number, 1.0),
        evidence=with_item(state.evidence, number, ()),
    )
    return state, (Recalibrated(task.name, was.solo_us, task.solo_us),)


def _watched(state: Shares, number: int, budgets: tuple[int, ...], took_us: float) -> Answer:
    """What a request with normal work beside it says of its curves."""
    task = state.critical[number]
    slowdown, over = took_us / task.solo_us, took_us > task.longest_us
    found, others = watched(state.evidence[number], budgets, slowdown, over)
    if not found.enough:
        return changed(state, evidence=with_item(state.evidence, number, (*others, found))), ()
    state = changed(state, evidence=with_item(state.evidence, number, others))
    if not state.paces[number].believed:
        return _look(state, number, found.found), ()
    return _corrected(state, number, found)


def _corrected(state: Shares, number: int, found: Evidence) -> Answer:
    """With curves that say what was found.  A bound that nothing keeps ends normal work, for what
    disturbs the critical model is there as long as any is."""
    task = state.critical[number]
    better = with_found(task, found.budgets, found.found)
    notice = Noticed(
        task.name, found.budgets, found.requests, len(found.slowdowns),
        expected(task.phases, found.budgets), found.found, keeps(better),
    )  # fmt: skip
    state = changed(state, critical=with_item(state.critical, number, better))
    if notice.kept:
        return state, (notice,)
    ended = (
        Withdraw(progress.task.name, error)
        for progress in state.normal
        if (error := disturbing(progress.task.name, state.critical)) is not None
    )
    state = left(state, [progress.task.name for progress in state.normal])
    return changed(state, normal=()), (notice, *ended)
