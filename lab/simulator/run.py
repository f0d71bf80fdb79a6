"""Runs a workload on the simulated GPU under a policy, with the same policy functions as on a real
GPU.

Input: a scheduler, tasks with their arrivals, seconds, a seed.  Output: an `Outcome`.  Equal inputs
give equal outcomes, bit by bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Protocol

from lab.simulator.launches import KernelLaunch, KernelRun
from lab.simulator.simulated_gpu import (
    TAKES_A_LAUNCH,
    SimulatedGpu,
    SimulatedWait,
    at_full_clock,
)
from tilewright.base.budget import UNLIMITED
from tilewright.elastic.policy import (
    Allow,
    Arrived,
    Begin,
    Critical,
    Ended,
    Enqueue,
    Event,
    Finished,
    Gpu,
    KernelCost,
    Normal,
    Noticed,
    Overdue,
    Proceed,
    Reached,
    Recalibrated,
    Refuse,
    Scheduler,
    SchedulerState,
    Tick,
    holds,
)
from tilewright.elastic.timeline import BlockSpan

#: Microseconds between two ticks of the watchdog.
TICK_US = 10_000.0
#: The least microseconds between a refusal and the next request of the same client.
LEAST_AGAIN_US = 1.0


class RequestSource(Protocol):
    """A source of requests: gives their times in seconds, as `arrivals.Arrival` does."""

    @property
    def clients(self) -> int: ...

    def times(self, seconds: float, seed: int) -> tuple[float, ...]: ...


@dataclass(frozen=True)
class Served:
    """An answered critical request: its time from arrival, and from the begin of service, to the
    answer."""

    task: str
    latency_us: float
    took_us: float
    late: bool


@dataclass(frozen=True)
class Outcome:
    """The result of a workload.

    served:     the critical requests that were answered
    inferences: by normal task, the number of inferences; a fraction for the unfinished one
    noticed, recalibrated: corrections of curves and of baselines, each with the number of critical
                requests that were answered before
    refused, overdue: numbers of critical requests
    again:      tiles that were computed in vain
    worked:     microseconds of work by task
    held:       threads times microseconds of residency
    """

    gpu: Gpu
    microseconds: float
    served: tuple[Served, ...]
    inferences: dict[str, float]
    noticed: tuple[tuple[int, Noticed], ...]
    recalibrated: tuple[tuple[int, Recalibrated], ...]
    refused: int
    overdue: int
    again: int
    worked: dict[str, float]
    held: float
    spans: tuple[BlockSpan, ...]

    @property
    def occupancy(self) -> float:
        """Resident threads as a share of all threads that the GPU can hold, averaged over time."""
        return self.held / (self.gpu.sms * self.gpu.threads * self.microseconds)


@dataclass
class _NormalRun:
    """A normal task in the run.  begun: the kernels of each inference that has not ended, oldest
    first"""

    task: Normal
    begun: deque[list[KernelRun]] = field(default_factory=deque)
    inferences: int = 0
    again: int = 0

    def begin(self) -> None:
        self.begun.append([KernelRun(cost) for cost in self.task.kernels])

    def launch_ended(self) -> int:
        """The number of complete kernels of the oldest inference; if all are, the inference is
        removed."""
        runs = self.begun[0]
        complete = next((n for n, run in enumerate(runs) if not run.complete), len(runs))
        if complete == len(runs):
            self.inferences += 1
            self.again += sum(run.again for run in self.begun.popleft())
        return complete

    @property
    def progress(self) -> float:
        """The number of inferences; an unfinished one counts as its share of done work."""
        whole = sum(cost.tiles * cost.tile_us for cost in self.task.kernels)
        done = sum(run.done * run.cost.tile_us for runs in self.begun for run in runs)
        return self.inferences + done / whole


class Simulation:
    """One run; `outcome` has its result."""

    def __init__(
        self,
        scheduler: Scheduler,
        tasks: Sequence[tuple[Critical | Normal, RequestSource]],
        seconds: float,
        seed: int,
        keep_spans: bool = False,
        slowed: Callable[[float], float] = at_full_clock,
    ) -> None:
        self._scheduler, self._until = scheduler, seconds * 1e6
        self._gpu = SimulatedGpu(scheduler.gpu, keep_spans, slowed)
        self._state = SchedulerState()
        self._sources: dict[str, RequestSource] = {}
        self._arrived: dict[int, float] = {}
        self._asked_of: dict[int, str] = {}
        self._begun: dict[int, float] = {}
        self._served: list[Served] = []
        self._noticed: list[tuple[int, Noticed]] = []
        self._recalibrated: list[tuple[int, Recalibrated]] = []
        self._counts = {"refused": 0, "overdue": 0}
        self._numbers = count()
        self._normal: dict[str, _NormalRun] = {}
        self._tasks: dict[str, Critical] = {}
        policy, sms = scheduler.policy, scheduler.gpu.sms
        own = round(policy.split * sms)
        self._urgent = self._gpu.stream(policy.urgent, range(own or sms))
        self._streams = {
            task.name: self._gpu.stream(False, range(own, sms))
            for task, _ in tasks
            if isinstance(task, Normal)
        }
        for number, (task, source) in enumerate(tasks):
            self._state = scheduler.with_task(self._state, task)
            self._sources[task.name] = source
            if isinstance(task, Normal):
                self._normal[task.name] = _NormalRun(task)
            else:
                self._tasks[task.name] = task
            for at in source.times(seconds, seed + number):
                self._gpu.after(at * 1e6, self._arrival(task.name))
            for _ in range(source.clients):
                self._gpu.after(0.0, self._arrival(task.name))

    def run(self) -> Outcome:
        ticks = int(self._until / TICK_US)
        for n in range(1, ticks + 1):
            self._gpu.after(n * TICK_US, lambda: self._post(Tick(self._gpu.now)))
        self._gpu.advance(self._until)
        return Outcome(
            self._scheduler.gpu,
            self._until,
            tuple(self._served),
            {name: run.progress for name, run in self._normal.items()},
            tuple(self._noticed),
            tuple(self._recalibrated),
            self._counts["refused"],
            self._counts["overdue"],
            sum(
                run.again + sum(k.again for runs in run.begun for k in runs)
                for run in self._normal.values()
            ),
            self._gpu.worked,
            self._gpu.held,
            tuple(self._gpu.spans),
        )

    def _arrival(self, task: str) -> Callable[[], None]:
        def arrive() -> None:
            number = next(self._numbers)
            self._arrived[number], self._asked_of[number] = self._gpu.now, task
            self._post(Arrived(self._gpu.now, task, number))

        return arrive

    def _post(self, event: Event) -> None:
        self._state, actions = self._scheduler.step(self._state, event)
        for action in actions:
            match action:
                case Begin() | Proceed() | Enqueue():
                    self._submit(action)
                case Allow(workers):
                    self._gpu.allow(workers)
                case Refuse(request):
                    self._refused(request)
                case Noticed():
                    self._noticed.append((len(self._served), action))
                case Recalibrated():
                    self._recalibrated.append((len(self._served), action))
                case Overdue():
                    self._counts["overdue"] += 1

    def _refused(self, request: int) -> None:
        """Counts a refusal; a client in a closed loop asks again as soon as a host could."""
        self._counts["refused"] += 1
        del self._arrived[request]
        task = self._asked_of.pop(request)
        if self._sources[task].clients:
            again = max(LEAST_AGAIN_US, self._scheduler.gpu.submit_us)
            self._gpu.after(again, self._arrival(task))

    def _submit(self, action: Begin | Proceed | Enqueue) -> None:
        """Starts an action on the GPU after the time that a call of the host takes."""
        self._gpu.after(self._scheduler.gpu.submit_us, lambda: self._start(action))

    def _start(self, action: Begin | Proceed | Enqueue) -> None:
        match action:
            case Begin():
                self._begin(action)
            case Proceed(request, kernel):
                self._proceed(request, kernel)
            case Enqueue():
                self._enqueue(action)

    def _begin(self, begin: Begin) -> None:
        put, task, request = self._gpu.put, self._tasks[begin.task], begin.request
        put(self._urgent, lambda: self._begun.update({request: self._gpu.now}))
        self._running = task
        if self._scheduler.policy.by_kernels:
            return
        for hold in holds(task.phases, begin.budgets, begin.settle_us):
            put(self._urgent, partial(self._write, hold.budget))
            if hold.waits:
                put(self._urgent, SimulatedWait(hold.budget * begin.concurrent, begin.settle_us))
            for cost in task.kernels[hold.first : hold.last]:
                put(self._urgent, _plain(task, cost))
        put(self._urgent, partial(self._write, UNLIMITED))
        put(self._urgent, lambda: self._finish(request, task))

    def _write(self, budget: int) -> object:
        self._gpu.allow(budget)
        return TAKES_A_LAUNCH

    def _proceed(self, request: int, kernel: int) -> None:
        task = self._running
        self._gpu.put(self._urgent, _plain(task, task.kernels[kernel]))
        last = kernel + 1 == len(task.kernels)

        def over() -> None:
            if last:
                self._finish(request, task)
            else:
                self._post(Reached(self._gpu.now, request, kernel + 1))

        self._gpu.put(self._urgent, over)

    def _finish(self, request: int, task: Critical) -> None:
        now = self._gpu.now
        latency, took = now - self._arrived.pop(request), now - self._begun.pop(request)
        late = task.deadline_us is not None and latency > task.deadline_us
        self._served.append(Served(task.name, latency, took, late))
        self._post(Finished(now, request, took))
        if self._sources[task.name].clients:
            self._arrival(task.name)()

    def _enqueue(self, action: Enqueue) -> None:
        normal = self._normal[action.task]
        leave = "never" if action.plain else self._scheduler.policy.leave
        if action.begins:
            normal.begin()
        run, before = normal.begun[-1][action.kernel], normal.begun[-1][: action.kernel]
        self._gpu.put(
            self._streams[action.task],
            KernelLaunch(
                action.task,
                run,
                min(action.workers, run.cost.residents(self._scheduler.gpu))
                if leave in ("chunk", "tile")
                else run.cost.tiles,
                lambda: self._ended(normal),
                leave=leave,
                ready=lambda: all(r.complete for r in before),
                tiles=action.tiles or UNLIMITED,
                fold=action.fold,
            ),
        )

    def _ended(self, normal: _NormalRun) -> None:
        complete, name = normal.launch_ended(), normal.task.name
        self._post(Ended(self._gpu.now, name, complete))
        if complete == len(normal.task.kernels) and self._sources[name].clients:
            self._arrival(name)()


def _plain(task: Critical, cost: KernelCost) -> KernelLaunch:
    return KernelLaunch(task.name, KernelRun(cost), cost.tiles, _nothing, critical=True)


def _nothing() -> None:
    """Does nothing when a kernel ends: the next item of the stream reports the end."""


def simulate(
    scheduler: Scheduler,
    tasks: Sequence[tuple[Critical | Normal, RequestSource]],
    seconds: float,
    seed: int = 0,
    keep_spans: bool = False,
    slowed: Callable[[float], float] = at_full_clock,
) -> Outcome:
    """Simulates the tasks for some seconds.  Raises AdmissionRefused.

    slowed: from the time in microseconds to the factor by which all work takes longer, as at a
            lower clock
    """
    return Simulation(scheduler, tasks, seconds, seed, keep_spans, slowed).run()
