"""The coordinator as a pure function: state and event in, new state and actions out.

Input: a design (designs.py), the GPU, tasks.  Output: decisions (events.py).  It reads no clock and
does nothing itself: the executor, the simulator and the tests share it.

One critical request runs at a time, in order of priority, then deadline, then arrival: a bound is
on the time alone, and two critical models side by side would have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from tilewright.base.budget import EVERYBODY
from tilewright.base.errors import AdmissionRefused
from tilewright.base.record import changed
from tilewright.elastic.policy.admission import admit, disturbing, late
from tilewright.elastic.policy.budgets import corrected
from tilewright.elastic.policy.designs import ALL, Allotment, Beside, Design
from tilewright.elastic.policy.events import (
    Allow,
    Arrived,
    Begin,
    Ended,
    Enqueue,
    Event,
    Finished,
    Gone,
    Overdue,
    Proceed,
    Reached,
    Refuse,
    Tick,
)
from tilewright.elastic.policy.findings import Answer, answered, looking, looks_ended, tried
from tilewright.elastic.policy.pace import Pace
from tilewright.elastic.policy.recounts import left, paused, recounted
from tilewright.elastic.policy.state import (
    Flight,
    Progress,
    Request,
    Running,
    Shares,
    pending_us,
    with_item,
)
from tilewright.elastic.policy.tasks import Critical, Gpu, KernelCost, Normal
from tilewright.elastic.policy.turns import in_turn, most_beside, turned, with_place

#: A clock that jumps further than this between two events has jumped: time counts up to here.
MOST_STEP_US = 200_000.0
#: Kernels that nobody leaves have ended so long before a request may come: it may be told late of
#: the one before it, and kernels take a little longer than alone.
LEAD_US, LONGER = 100.0, 1.1


@dataclass(frozen=True)
class Scheduler:
    """ahead: launches of a normal task in flight, so that the GPU does not wait for the host
    together: normal tasks whose inferences run at once, at most, unless all budgets let everybody
              stay or the design has turns; 0: all (decision 58)
    """

    design: Design
    gpu: Gpu
    ahead: int = 2
    together: int = 0

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
            return changed(state, normal=(*state.normal, Progress(task)))
        if self.design.promises:
            admit(task, state.critical)
        return changed(
            state,
            critical=(*state.critical, task),
            margins=(*state.margins, 1.0),
            due=(*state.due, state.now),
            evidence=(*state.evidence, ()),
            paces=(*state.paces, Pace()),
        )

    def step(self, state: Shares, event: Event) -> Answer:
        """What follows from an event.  Events of tasks and requests that are not known are none."""
        passed = min(max(0.0, event.now - state.now), MOST_STEP_US)
        state = changed(state, now=max(state.now, event.now))
        if state.running is not None:
            spent = state.running.spent_us + passed
            state = changed(state, running=changed(state.running, spent_us=spent))
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

    def at_once(self, state: Shares, task: str, request: int) -> Begin | None:
        """What `Arrived` will lead to, if nothing stands in the way of a request that came now.  To
        ask this takes a tenth of the time of a step.  None: ask by the event."""
        critical, design = state.task(task), self.design
        if critical is None or critical.deadline_us is not None or state.running or state.waiting:
            return None
        if design.turns or design.by_kernels:
            return None
        budgets = design.budgets(critical, state.margins[state.critical.index(critical)])
        return self._begin(state, request, critical, budgets)

    def _begin(
        self, state: Shares, request: int, task: Critical, budgets: tuple[int, ...]
    ) -> Begin:
        beside = most_beside(self.together, state)
        return Begin(request, task.name, budgets, self.design.settle_us, beside)

    def _arrived(self, state: Shares, event: Arrived) -> Answer:
        task = state.task(event.task)
        if task is None:
            more = tuple(
                changed(p, backlog=p.backlog + 1) if p.task.name == event.task else p
                for p in state.normal
            )
            return changed(state, normal=more), ()
        came = event.now if event.came is None else min(event.came, event.now)
        number = state.critical.index(task)
        due = with_item(state.due, number, came + task.gap_us)
        state = changed(state, due=due)
        deadline = None if task.deadline_us is None else came + task.deadline_us
        request = Request(event.request, task.name, came, deadline)
        waiting = tuple(sorted((*state.waiting, request), key=lambda r: _order(state, r)))
        refusal = late(list(_ends(state, waiting)), task.name)
        if self.design.promises and refusal is not None and not tried(state, number):
            return state, (Refuse(event.request, refusal),)
        return changed(state, waiting=waiting), ()

    def _reached(self, state: Shares, event: Reached) -> Shares:
        running = state.running
        if running is None or running.request.number != event.request:
            return state
        return changed(state, running=changed(running, kernel=event.kernel, held=True))

    def _finished(self, state: Shares, event: Finished) -> Answer:
        waiting = tuple(r for r in state.waiting if r.number != event.request)
        overdue = tuple(r for r in state.overdue if r.number != event.request)
        state = changed(state, waiting=waiting, overdue=overdue)
        running = state.running
        if running is None or running.request.number != event.request:
            return state, ()
        if event.took_us is None:
            return changed(state, running=None), ()
        margins = tuple(
            corrected(margin, event.took_us > task.longest_us)
            if task.name == running.request.task
            else margin
            for task, margin in zip(state.critical, state.margins, strict=True)
        )
        state = changed(state, running=None, margins=margins)
        return answered(state, running, event.took_us) if self.design.promises else (state, ())

    def _go_on(self, state: Shares) -> Answer:
        """Starts what may start now."""
        state, counted = recounted(state)
        state, told = looks_ended(state)
        actions = [*counted, *told]
        if self.design.turns:
            state = turned(state)
        if state.running is None and state.waiting and self._critical_turn(state):
            first, *rest = state.waiting
            task = state.task(first.task)
            assert task is not None, "requests leave with their task"
            margin = state.margins[state.critical.index(task)]
            budgets = self.design.budgets(task, margin)
            beside = any(progress.flying for progress in state.normal)
            running = Running(first, budgets, held=self.design.by_kernels, beside=beside)
            state = changed(state, waiting=tuple(rest), running=running)
            actions.append(self._begin(state, first.number, task, budgets))
        if state.running is not None and state.running.held and self._passes(state):
            running = changed(state.running, held=False)
            state = changed(state, running=running)
            actions.append(Proceed(running.request.number, running.kernel))
        tasks = [] if paused(state) or looking(state) else in_turn(self.design, state)
        everybody = bool(tasks) and self._everybody_stays(state)
        together = 0 if everybody or self.design.turns else self.together
        placed = with_place(together, state, tasks)
        for number in tasks:
            begins = number in placed
            while launch := self._launch(state, state.normal[number], everybody, begins):
                progress = self._with_launch(state.normal[number], launch, state.now)
                state = changed(state, normal=with_item(state.normal, number, progress))
                actions.append(launch)
                # where others wait, the next inference does not follow at once
                begins = begins and len(placed) == len(tasks)
                if launch.tiles:
                    break
        return state, tuple(actions)

    def _critical_turn(self, state: Shares) -> bool:
        return not self.design.turns or state.task(state.turn) is not None

    def _passes(self, state: Shares) -> bool:
        return not self.design.barriers or not any(p.flying for p in state.normal)

    def _launch(
        self, state: Shares, progress: Progress, everybody: bool, may_begin: bool
    ) -> Enqueue | None:
        """The kernel of a normal task that starts now.  may_begin: also an inference's first one"""
        if len(progress.flying) >= self._most_ahead(state):
            return None
        task, never = progress.task, self.design.leave == "never"
        ahead, kernel = divmod(progress.following, len(task.kernels))
        begins = not kernel and (ahead > 0 or not progress.elastic)
        if ahead >= progress.backlog or (begins and not may_begin):
            return None
        part = self._part(state, progress, task.kernels[kernel])
        if part is None or (part.tiles and progress.flying):
            return None
        quiet = everybody or self._quiet(state, task.kernels[kernel])
        follows = all(flight.stays for flight in progress.flying)
        # what was started in elastic form may be done in part, and the plain form begins anew
        fresh = ahead > 0 or kernel >= progress.elastic
        plain = quiet and follows and fresh
        if ahead and (self.design.turns or not (plain or never)):
            return None
        if quiet and fresh and not (plain or everybody):
            return None  # those in flight end soon, and then it is plain
        return Enqueue(task.name, kernel, part.workers, part.tiles, part.fold, plain, begins)

    def _with_launch(self, progress: Progress, launch: Enqueue, now: float) -> Progress:
        stays = launch.plain or self.design.leave == "never"
        return changed(
            progress,
            flying=(*progress.flying, Flight(launch.kernel, launch.workers, stays)),
            elastic=progress.elastic if stays else max(progress.elastic, launch.kernel + 1),
            began=now if launch.begins else progress.began,
        )

    def _quiet(self, state: Shares, kernel: KernelCost) -> bool:
        """Whether this kernel ends before a critical request may come, behind those in flight."""
        if not self.design.plain or state.running is not None or state.waiting:
            return False
        left = min(state.due, default=inf) - state.now - LEAD_US
        if left <= 0:
            return False
        return LONGER * (pending_us(self.gpu, state.normal) + kernel.alone_us(self.gpu)) <= left

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
        return self.design.beside(
            Beside(
                self.gpu,
                kernel,
                critical,
                max(running.budgets, default=0),
                0.0 if task is None else task.solo_us,
                state.normal,
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
            progress = changed(
                progress,
                flying=progress.flying[1:],
                complete=0 if done else max(progress.complete, event.complete),
                elastic=0 if done else progress.elastic,
                backlog=max(0, progress.backlog - done),
            )
        normal.append(progress)
    return changed(state, normal=tuple(normal))


def _overdue(state: Shares) -> Answer:
    """A request that outlives its lease gives back what it held."""
    running = state.running
    task = None if running is None else state.task(running.request.task)
    if running is None or task is None or running.spent_us <= task.lease:
        return state, ()
    state = changed(state, running=None, overdue=(*state.overdue, running.request))
    return state, (Overdue(running.request.number, task.name), Allow(EVERYBODY))


def _gone(state: Shares, event: Gone) -> Answer:
    """Without the task and its requests, also those that outlived their lease: nobody would tell
    when they finish.  If its request ran, everybody may stay again."""
    kept = [n for n, task in enumerate(state.critical) if task.name != event.task]
    ran = state.running is not None and state.running.request.task == event.task
    state = changed(
        left(state, [event.task], event.died),
        critical=tuple(state.critical[n] for n in kept),
        margins=tuple(state.margins[n] for n in kept),
        due=tuple(state.due[n] for n in kept),
        evidence=tuple(state.evidence[n] for n in kept),
        paces=tuple(state.paces[n] for n in kept),
        normal=tuple(p for p in state.normal if p.task.name != event.task),
        waiting=tuple(r for r in state.waiting if r.task != event.task),
        overdue=tuple(r for r in state.overdue if r.task != event.task),
        running=None if ran else state.running,
    )
    return state, (Allow(EVERYBODY),) if ran else ()
