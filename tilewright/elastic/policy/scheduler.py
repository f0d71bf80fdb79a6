"""The coordinator as a pure function: state and event in, new state and actions out.

Input: a design (designs.py), the GPU, tasks.  Output: decisions (events.py).  It reads no clock and
does nothing itself: the executor, the simulator and the tests share it.

One critical request runs at a time, in order of priority, then deadline, then arrival: a bound is
on the time alone, and two critical models side by side would have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

from tilewright.base.budget import EVERYBODY
from tilewright.base.errors import AdmissionRefused
from tilewright.elastic.policy.admission import admit, disturbing, keeps, late
from tilewright.elastic.policy.budgets import corrected
from tilewright.elastic.policy.designs import ALL, Allotment, Beside, Design
from tilewright.elastic.policy.events import (
    Action,
    Allow,
    Arrived,
    Begin,
    Ended,
    Enqueue,
    Event,
    Finished,
    Gone,
    Noticed,
    Overdue,
    Proceed,
    Reached,
    Refuse,
    Tick,
    Withdraw,
)
from tilewright.elastic.policy.notices import expected, watched, with_found
from tilewright.elastic.policy.recounts import left, paused, recounted
from tilewright.elastic.policy.state import Flight, Progress, Request, Running, Shares
from tilewright.elastic.policy.tasks import Critical, Gpu, KernelCost, Normal

#: A clock that jumps further than this between two events has jumped: time counts up to here.
MOST_STEP_US = 200_000.0

T = TypeVar("T")
Answer = tuple[Shares, tuple[Action, ...]]


@dataclass(frozen=True)
class Scheduler:
    """ahead: launches of a normal task in flight, so that the GPU does not wait for the host"""

    design: Design
    gpu: Gpu
    ahead: int = 2

    def joined(self, state: Shares, task: Critical | Normal) -> Shares:
        """The state with one more task.  Raises AdmissionRefused."""
        names = [t.name for t in state.critical] + [p.task.name for p in state.normal]
        if task.name in names:
            raise AdmissionRefused(
                f"there is a task {task.name} already",
                hint="Give each task a name of its own",
                task=task.name,
            )
        if isinstance(task, Normal):
            refusal = disturbing(task.name, state.critical) if self.design.promises else None
            if refusal is not None:
                raise refusal
            return replace(state, normal=(*state.normal, Progress(task)))
        if self.design.promises:
            admit(task, state.critical)
        return replace(
            state,
            critical=(*state.critical, task),
            margins=(*state.margins, 1.0),
            evidence=(*state.evidence, ()),
        )

    def step(self, state: Shares, event: Event) -> Answer:
        """What follows from an event.  Events of tasks and requests that are not known are none."""
        passed = min(max(0.0, event.now - state.now), MOST_STEP_US)
        state = replace(state, now=max(state.now, event.now))
        if state.running is not None:
            spent = state.running.spent_us + passed
            state = replace(state, running=replace(state.running, spent_us=spent))
        match event:
            case Arrived():
                state, actions = self._arrived(state, event)
            case Reached():
                state, actions = self._reached(state, event), ()
            case Finished():
                state, actions = self._finished(state, event)
            case Ended():
                state, actions = _ended(state, event), ()
            case Tick():
                state, actions = _overdue(state)
            case Gone():
                state, actions = _gone(state, event)
        state, more = self._go_on(state)
        return state, (*actions, *more)

    def _arrived(self, state: Shares, event: Arrived) -> Answer:
        task = state.task(event.task)
        if task is None:
            more = tuple(
                replace(p, backlog=p.backlog + 1) if p.task.name == event.task else p
                for p in state.normal
            )
            return replace(state, normal=more), ()
        came = event.now if event.came is None else min(event.came, event.now)
        deadline = None if task.deadline_us is None else came + task.deadline_us
        request = Request(event.request, task.name, came, deadline)
        waiting = tuple(sorted((*state.waiting, request), key=lambda r: _order(state, r)))
        refusal = late(list(_ends(state, waiting)), task.name)
        if self.design.promises and refusal is not None:
            return state, (Refuse(event.request, refusal),)
        return replace(state, waiting=waiting), ()

    def _reached(self, state: Shares, event: Reached) -> Shares:
        running = state.running
        if running is None or running.request.number != event.request:
            return state
        return replace(state, running=replace(running, kernel=event.kernel, held=True))

    def _finished(self, state: Shares, event: Finished) -> Answer:
        waiting = tuple(r for r in state.waiting if r.number != event.request)
        state = replace(state, waiting=waiting, overdue=state.overdue - {event.request})
        running = state.running
        if running is None or running.request.number != event.request:
            return state, ()
        margins = tuple(
            corrected(margin, event.took_us > task.longest_us)
            if task.name == running.request.task
            else margin
            for task, margin in zip(state.critical, state.margins, strict=True)
        )
        state = replace(state, running=None, margins=margins)
        return _noticed(state, running, event.took_us) if self.design.promises else (state, ())

    def _go_on(self, state: Shares) -> Answer:
        """Starts what may start now."""
        state, counted = recounted(state)
        actions = [*counted]
        if self.design.turns:
            state = _turned(state)
        if state.running is None and state.waiting and self._critical_turn(state):
            first, *rest = state.waiting
            task = state.task(first.task)
            assert task is not None, "requests leave with their task"
            margin = state.margins[state.critical.index(task)]
            budgets = self.design.budgets(task, margin)
            beside = any(progress.flying for progress in state.normal)
            running = Running(first, budgets, held=self.design.by_kernels, beside=beside)
            state = replace(state, waiting=tuple(rest), running=running)
            actions.append(
                Begin(first.number, task.name, budgets, self.design.settle_us, len(state.normal))
            )
        if state.running is not None and state.running.held and self._passes(state):
            running = replace(state.running, held=False)
            state = replace(state, running=running)
            actions.append(Proceed(running.request.number, running.kernel))
        normal, everybody = list(state.normal), self._everybody_stays(state)
        for number, progress in enumerate(normal):
            for part, kernel in self._launches(state, progress):
                now = normal[number]
                plain = everybody and kernel >= now.elastic and all(f.plain for f in now.flying)
                flight = Flight(kernel, part.workers, plain)
                normal[number] = replace(
                    now,
                    flying=(*now.flying, flight),
                    elastic=now.elastic if plain else max(now.elastic, kernel + 1),
                )
                state = replace(state, normal=tuple(normal))
                actions.append(
                    Enqueue(progress.task.name, kernel, part.workers, part.tiles, part.fold, plain)
                )
        return state, tuple(actions)

    def _critical_turn(self, state: Shares) -> bool:
        return not self.design.turns or state.task(state.turn) is not None

    def _passes(self, state: Shares) -> bool:
        return not self.design.barriers or not any(p.flying for p in state.normal)

    def _launches(self, state: Shares, progress: Progress) -> Iterator[tuple[Allotment, int]]:
        """Kernels of a normal task that start now."""
        if not progress.backlog or paused(state) or not self._normal_turn(state, progress):
            return
        kernels, flying = progress.task.kernels, len(progress.flying)
        kernel = progress.following
        while flying < self._most_ahead(state) and kernel < len(kernels):
            part = self._part(state, progress, kernels[kernel])
            if part is None or (part.tiles and flying):
                return
            yield part, kernel
            if part.tiles:
                return
            flying, kernel = flying + 1, kernel + 1

    def _normal_turn(self, state: Shares, progress: Progress) -> bool:
        if self.design.turns:
            return state.turn == progress.task.name
        return all(not p.backlog or p.task.priority <= progress.task.priority for p in state.normal)

    def _everybody_stays(self, state: Shares) -> bool:
        """Whether the budgets of all critical tasks let everybody stay, also of those without a
        request now."""
        return self.design.plain and all(
            budget == EVERYBODY
            for task, margin in zip(state.critical, state.margins, strict=True)
            for budget in self.design.budgets(task, margin)
        )

    def _most_ahead(self, state: Shares) -> int:
        return 1 if self.design.barriers and state.running is not None else self.ahead

    def _part(self, state: Shares, progress: Progress, kernel: KernelCost) -> Allotment | None:
        running = state.running
        if running is None:
            return ALL
        if running.held and self.design.barriers:
            return None
        task = state.task(running.request.task)
        critical = None
        if task is not None and self.design.by_kernels and running.kernel < len(task.kernels):
            critical = task.kernels[running.kernel]
        flights = [(p.task.kernels[f.kernel], f) for p in state.normal for f in p.flying]
        return self.design.beside(
            Beside(
                self.gpu,
                kernel,
                critical,
                max(running.budgets, default=0),
                sum(min(f.workers, k.residents(self.gpu), k.tiles) for k, f in flights),
                sum(k.tile_us * -(-k.tiles // k.residents(self.gpu)) for k, _ in flights),
                0.0 if task is None else task.solo_us,
            )
        )


def _order(state: Shares, request: Request) -> tuple[int, float, float, int]:
    """Priority, then the earliest deadline, then arrival."""
    task = state.task(request.task)
    deadline = inf if request.deadline is None else request.deadline
    return (-task.priority if task else 0, deadline, request.arrived, request.number)


def _ends(state: Shares, waiting: tuple[Request, ...]) -> Iterator[tuple[str, float, float | None]]:
    """When each request ends at the latest."""
    end = state.now
    if state.running is not None:
        task = state.task(state.running.request.task)
        end += max(0.0, task.longest_us - state.running.spent_us) if task else 0.0
        yield state.running.request.task, end, None
    for request in waiting:
        task = state.task(request.task)
        end += task.longest_us if task else 0.0
        yield request.task, end, request.deadline


def _ended(state: Shares, event: Ended) -> Shares:
    normal = []
    for progress in state.normal:
        if progress.task.name == event.task and progress.flying:
            done = event.complete >= len(progress.task.kernels)
            progress = replace(
                progress,
                flying=progress.flying[1:],
                complete=0 if done else max(progress.complete, event.complete),
                elastic=0 if done else progress.elastic,
                backlog=max(0, progress.backlog - done),
            )
        normal.append(progress)
    return replace(state, normal=tuple(normal))


def _noticed(state: Shares, running: Running, took_us: float) -> Answer:
    """What a request says of its curves.  A bound that nothing keeps ends normal work, for what
    disturbs the critical model is there as long as any is."""
    task, budgets = state.task(running.request.task), running.budgets
    if task is None or not running.beside:
        return state, ()
    number, over = state.critical.index(task), took_us > task.longest_us
    found, others = watched(state.evidence[number], budgets, took_us / task.solo_us, over)
    if not found.enough:
        return replace(state, evidence=_with(state.evidence, number, (*others, found))), ()
    better = with_found(task, budgets, found.found)
    notice = Noticed(
        task.name, budgets, found.requests, len(found.slowdowns), expected(task.phases, budgets),
        found.found, keeps(better),
    )  # fmt: skip
    state = replace(
        state,
        critical=_with(state.critical, number, better),
        evidence=_with(state.evidence, number, others),
    )
    if notice.kept:
        return state, (notice,)
    ended = (
        Withdraw(progress.task.name, error)
        for progress in state.normal
        if (error := disturbing(progress.task.name, state.critical)) is not None
    )
    state = left(state, [progress.task.name for progress in state.normal])
    return replace(state, normal=()), (notice, *ended)


def _with(values: tuple[T, ...], number: int, value: T) -> tuple[T, ...]:
    return (*values[:number], value, *values[number + 1 :])


def _overdue(state: Shares) -> Answer:
    """A request that outlives its lease gives back what it held."""
    running = state.running
    task = None if running is None else state.task(running.request.task)
    if running is None or task is None or running.spent_us <= task.lease:
        return state, ()
    number = running.request.number
    state = replace(state, running=None, overdue=state.overdue | {number})
    return state, (Overdue(number, task.name), Allow(EVERYBODY))


def _gone(state: Shares, event: Gone) -> Answer:
    """Without the task.  If its request ran, everybody may stay again."""
    kept = [n for n, task in enumerate(state.critical) if task.name != event.task]
    ran = state.running is not None and state.running.request.task == event.task
    state = replace(
        left(state, [event.task], event.died),
        critical=tuple(state.critical[n] for n in kept),
        margins=tuple(state.margins[n] for n in kept),
        evidence=tuple(state.evidence[n] for n in kept),
        normal=tuple(p for p in state.normal if p.task.name != event.task),
        waiting=tuple(r for r in state.waiting if r.task != event.task),
        running=None if ran else state.running,
    )
    return state, (Allow(EVERYBODY),) if ran else ()


def _turned(state: Shares) -> Shares:
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
    return replace(state, turn=next(following, state.turn))
