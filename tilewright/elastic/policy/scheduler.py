"""The coordinator as a pure function: from a state and an event to a new state and actions.

Input: a policy (policies.py), the GPU, tasks.  Output: decisions (events.py).  It reads no clock
and has no side effects, so that the executor, the simulator and the tests can share it.

One critical request runs at a time, ordered by priority, then deadline, then arrival.  A bound is a
multiple of the time alone, and two critical models side by side could not keep one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from tilewright.base.budget import UNLIMITED
from tilewright.base.errors import AdmissionRefused, CompilerBug
from tilewright.base.fast_records import changed
from tilewright.elastic.policy.admission import admit, disturbing, late
from tilewright.elastic.policy.budgets import next_margin
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
from tilewright.elastic.policy.feedback import (
    Transition,
    after_leaving,
    awaits_recount,
    on_request_answered,
    probes_ended,
    probing,
    recount_if_due,
    runs_though_late,
)
from tilewright.elastic.policy.policies import (
    ALL,
    Allotment,
    LaunchContext,
    Policy,
    eligible,
    may_begin,
    most_concurrent,
    pass_device_on,
)
from tilewright.elastic.policy.state import (
    CriticalState,
    Flight,
    Progress,
    Request,
    Running,
    SchedulerState,
    pending_us,
    with_critical,
    with_item,
)
from tilewright.elastic.policy.tasks import Critical, Gpu, KernelCost, Normal

#: A larger step between two events is a jump of the clock and counts as this much.
MOST_STEP_US = 200_000.0
#: Plain kernels must end this many microseconds before the next request may come, even if they take
#: `LONGER` times their time alone: the coordinator may hear late of the last request.
LEAD_US, LONGER = 100.0, 1.1


@dataclass(frozen=True)
class Scheduler:
    """A policy on one GPU.

    ahead: launches of a normal task in flight, so that the GPU does not wait for the host
    max_concurrent: the most normal tasks that run inferences at once; 0: all.  It does not apply if
                    all budgets let all workers stay, or if the policy is exclusive (decision 58)
    """

    policy: Policy
    gpu: Gpu
    ahead: int = 2
    max_concurrent: int = 0

    def with_task(self, state: SchedulerState, task: Critical | Normal) -> SchedulerState:
        """The state with one more task.  Raises AdmissionRefused."""
        names = [t.name for t in state.critical_tasks] + [p.task.name for p in state.normal]
        if task.name in names:
            raise AdmissionRefused(
                f"there is a task {task.name} already",
                hint="Give each task a name of its own",
                task=task.name,
            )
        if isinstance(task, Normal):
            refusal = disturbing(task.name, state.critical_tasks) if self.policy.promises else None
            if refusal is not None:
                raise refusal
            return changed(state, normal=(*state.normal, Progress(task)))
        if self.policy.promises:
            admit(task, state.critical_tasks)
        new = CriticalState(task, due=state.now)
        return changed(state, critical=(*state.critical, new))

    def step(self, state: SchedulerState, event: Event) -> Transition:
        """The state and actions after an event; unknown tasks and requests are ignored."""
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

    def begin_immediately(self, state: SchedulerState, task: str, request: int) -> Begin | None:
        """The `Begin` that `Arrived` would lead to if a request came now; None: post the event.

        This takes a tenth of the time of a step.  The result is None unless the request can begin
        at once.
        """
        found, policy = state.critical_state(task), self.policy
        if found is None or state.running or state.waiting:
            return None
        if policy.exclusive or policy.by_kernels or found.task.deadline_us is not None:
            return None
        budgets = policy.budgets(found.task, found.margin)
        return self._begin(state, request, found.task, budgets)

    def _begin(
        self, state: SchedulerState, request: int, task: Critical, budgets: tuple[int, ...]
    ) -> Begin:
        concurrent = most_concurrent(self.max_concurrent, state)
        return Begin(request, task.name, budgets, self.policy.settle_us, concurrent)

    def _arrived(self, state: SchedulerState, event: Arrived) -> Transition:
        found = state.critical_state(event.task)
        if found is None:
            more = tuple(
                changed(p, backlog=p.backlog + 1) if p.task.name == event.task else p
                for p in state.normal
            )
            return changed(state, normal=more), ()
        came = event.now if event.came is None else min(event.came, event.now)
        task = found.task
        state = with_critical(state, changed(found, due=came + task.gap_us))
        deadline = None if task.deadline_us is None else came + task.deadline_us
        request = Request(event.request, task.name, came, deadline)
        waiting = tuple(sorted((*state.waiting, request), key=lambda r: _order(state, r)))
        refusal = late(list(_ends(state, waiting)), task.name)
        if (
            self.policy.promises
            and refusal is not None
            and not runs_though_late(state, found.baseline)
        ):
            return state, (Refuse(event.request, refusal),)
        return changed(state, waiting=waiting), ()

    def _reached(self, state: SchedulerState, event: Reached) -> SchedulerState:
        running = state.running
        if running is None or running.request.number != event.request:
            return state
        return changed(state, running=changed(running, kernel=event.kernel, held=True))

    def _finished(self, state: SchedulerState, event: Finished) -> Transition:
        waiting = tuple(r for r in state.waiting if r.number != event.request)
        overdue = tuple(r for r in state.overdue if r.number != event.request)
        state = changed(state, waiting=waiting, overdue=overdue)
        running = state.running
        if running is None or running.request.number != event.request:
            return state, ()
        if event.took_us is None:
            return changed(state, running=None), ()
        state = changed(state, running=None)
        found = state.critical_state(running.request.task)
        if found is None:
            return state, ()
        found = changed(
            found, margin=next_margin(found.margin, event.took_us > found.task.longest_us)
        )
        state = with_critical(state, found)
        return (
            on_request_answered(state, found, running, event.took_us)
            if self.policy.promises
            else (state, ())
        )

    def _go_on(self, state: SchedulerState) -> Transition:
        """Starts all that may start now."""
        state, counted = recount_if_due(state)
        state, probed = probes_ended(state)
        actions = [*counted, *probed]
        if self.policy.exclusive:
            state = pass_device_on(state)
        if state.running is None and state.waiting and self._critical_may_go(state):
            first, *rest = state.waiting
            found = state.critical_state(first.task)
            if found is None:
                raise CompilerBug("a request has outlived its task", task=first.task)
            task = found.task
            budgets = self.policy.budgets(task, found.margin)
            shared = any(progress.flying for progress in state.normal)
            running = Running(first, budgets, held=self.policy.by_kernels, shared=shared)
            state = changed(state, waiting=tuple(rest), running=running)
            actions.append(self._begin(state, first.number, task, budgets))
        if state.running is not None and state.running.held and self._passes(state):
            running = changed(state.running, held=False)
            state = changed(state, running=running)
            actions.append(Proceed(running.request.number, running.kernel))
        tasks = [] if awaits_recount(state) or probing(state) else eligible(self.policy, state)
        all_stay = bool(tasks) and self._all_stay(state)
        most = 0 if all_stay or self.policy.exclusive else self.max_concurrent
        placed = may_begin(most, state, tasks)
        for number in tasks:
            begins = number in placed
            while launch := self._launch(state, state.normal[number], all_stay, begins):
                progress = self._with_launch(state.normal[number], launch, state.now)
                state = changed(state, normal=with_item(state.normal, number, progress))
                actions.append(launch)
                # If others wait, the next inference does not follow at once.
                begins = begins and len(placed) == len(tasks)
                if launch.tiles:
                    break
        return state, tuple(actions)

    def _critical_may_go(self, state: SchedulerState) -> bool:
        return not self.policy.exclusive or state.task(state.holder) is not None

    def _passes(self, state: SchedulerState) -> bool:
        return not self.policy.barriers or not any(p.flying for p in state.normal)

    def _launch(
        self, state: SchedulerState, progress: Progress, all_stay: bool, may_begin: bool
    ) -> Enqueue | None:
        """The kernel of a normal task that starts now; None if none does.  may_begin: it may begin
        an inference"""
        if len(progress.flying) >= self._most_ahead(state):
            return None
        task, never = progress.task, self.policy.leave == "never"
        ahead, kernel = divmod(progress.following, len(task.kernels))
        begins = not kernel and (ahead > 0 or not progress.elastic)
        if ahead >= progress.backlog or (begins and not may_begin):
            return None
        part = self._part(state, task.kernels[kernel])
        if part is None or (part.tiles and progress.flying):
            return None
        undisturbed = all_stay or self._ends_before_requests(state, task.kernels[kernel])
        follows = all(flight.stays for flight in progress.flying)
        # A kernel started in elastic form may be partly computed, and the plain form starts from
        # scratch.
        fresh = ahead > 0 or kernel >= progress.elastic
        plain = undisturbed and follows and fresh
        if ahead and (self.policy.exclusive or not (plain or never)):
            return None
        if undisturbed and fresh and not (plain or all_stay):
            return None  # the launches in flight end soon, and then it can be plain
        return Enqueue(task.name, kernel, part.workers, part.tiles, part.fold, plain, begins)

    def _with_launch(self, progress: Progress, launch: Enqueue, now: float) -> Progress:
        stays = launch.plain or self.policy.leave == "never"
        return changed(
            progress,
            flying=(*progress.flying, Flight(launch.kernel, launch.workers, stays)),
            elastic=progress.elastic if stays else max(progress.elastic, launch.kernel + 1),
            began=now if launch.begins else progress.began,
        )

    def _ends_before_requests(self, state: SchedulerState, kernel: KernelCost) -> bool:
        """True if this kernel ends before a critical request may come, after the launches in
        flight."""
        if not self.policy.plain or state.running is not None or state.waiting:
            return False
        left = min((one.due for one in state.critical), default=inf) - state.now - LEAD_US
        if left <= 0:
            return False
        return LONGER * (pending_us(self.gpu, state.normal) + kernel.alone_us(self.gpu)) <= left

    def _all_stay(self, state: SchedulerState) -> bool:
        """True if the budgets of all critical tasks, with or without a request now, let all workers
        stay."""
        return self.policy.plain and all(
            budget == UNLIMITED
            for one in state.critical
            for budget in self.policy.budgets(one.task, one.margin)
        )

    def _most_ahead(self, state: SchedulerState) -> int:
        return 1 if self.policy.barriers and state.running is not None else self.ahead

    def _part(self, state: SchedulerState, kernel: KernelCost) -> Allotment | None:
        running = state.running
        if running is None:
            return ALL
        if running.held and self.policy.barriers:
            return None
        task = state.task(running.request.task)
        critical = None
        if task is not None and self.policy.by_kernels and running.kernel < len(task.kernels):
            critical = task.kernels[running.kernel]
        return self.policy.allotment(
            LaunchContext(
                self.gpu,
                kernel,
                critical,
                max(running.budgets, default=0),
                0.0 if task is None else task.solo_us,
                state.normal,
            )
        )


def _order(state: SchedulerState, request: Request) -> tuple[int, float, float, int]:
    """The order of requests: priority, then the earliest deadline, then arrival."""
    task = state.task(request.task)
    deadline = inf if request.deadline is None else request.deadline
    return (-task.priority if task else 0, deadline, request.arrived, request.number)


def _ends(
    state: SchedulerState, waiting: tuple[Request, ...]
) -> Iterator[tuple[str, float, float | None]]:
    """The latest end of each request."""
    end = state.now
    if state.running is not None:
        task = state.task(state.running.request.task)
        end += max(0.0, task.longest_us - state.running.spent_us) if task else 0.0
        yield state.running.request.task, end, None
    for request in waiting:
        task = state.task(request.task)
        end += task.longest_us if task else 0.0
        yield request.task, end, request.deadline


def _ended(state: SchedulerState, event: Ended) -> SchedulerState:
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


def _overdue(state: SchedulerState) -> Transition:
    """Takes back what a request that outlived its lease holds."""
    running = state.running
    task = None if running is None else state.task(running.request.task)
    if running is None or task is None or running.spent_us <= task.effective_lease_us:
        return state, ()
    state = changed(state, running=None, overdue=(*state.overdue, running.request))
    return state, (Overdue(running.request.number, task.name), Allow(UNLIMITED))


def _gone(state: SchedulerState, event: Gone) -> Transition:
    """The state without the task and its requests.  If one of them was running, all workers may
    stay again."""
    ran = state.running is not None and state.running.request.task == event.task
    state = changed(
        after_leaving(state, [event.task], event.died),
        critical=tuple(one for one in state.critical if one.task.name != event.task),
        normal=tuple(p for p in state.normal if p.task.name != event.task),
        waiting=tuple(r for r in state.waiting if r.task != event.task),
        overdue=tuple(r for r in state.overdue if r.task != event.task),
        running=None if ran else state.running,
    )
    return state, (Allow(UNLIMITED),) if ran else ()
