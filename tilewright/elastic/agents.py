"""Agents run models for the coordinator: one agent for each critical and each normal model.

Input: a coordinator, models (critical.py, plans.py).  Output: answered requests, inferences.  A
critical request runs in the thread that asks for it.  Each normal model has its own thread, which
starts the launches that the policy decides on and waits for the oldest one.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tilewright.base.errors import TaskOverdue, TilewrightError
from tilewright.elastic.coordination import (
    Coordination,
    join_thread,
    now_us,
    typed_error,
    unexpected,
)
from tilewright.elastic.critical import CriticalModel
from tilewright.elastic.plans import NormalPlan
from tilewright.elastic.policy import (
    Action,
    Arrived,
    Begin,
    Critical,
    Ended,
    Enqueue,
    Finished,
    Gone,
    Normal,
    Noticed,
    Overdue,
    Proceed,
    Reached,
    Recalibrated,
    Refuse,
    Withdraw,
)
from tilewright.hosts.cuda_devices import CudaDevice, DeviceEvent

A = TypeVar("A", bound=Action)


@dataclass(frozen=True)
class RequestTimes:
    """A critical request: microseconds from arrival to end, and from the start of its run to its
    end.

    solo_us: the time of a request alone, as known when this request ended
    """

    latency_us: float
    took_us: float
    solo_us: float

    @property
    def waited(self) -> float:
        """The latency as a multiple of the time alone."""
        return self.latency_us / self.solo_us

    @property
    def slowdown(self) -> float:
        """The running time as a multiple of the time alone.  A bound limits this figure."""
        return self.took_us / self.solo_us


class CriticalAgent:
    """Runs requests of a critical model; requests of several threads run one after the other.

    noticed, recalibrated: corrections of its curves, and of its time alone, so far
    """

    def __init__(
        self, coordination: Coordination, task: Critical, model: CriticalModel, by_kernels: bool
    ) -> None:
        self.task, self.model = task, model
        self._coordination, self._by_kernels = coordination, by_kernels
        self.noticed: list[Noticed] = []
        self.recalibrated: list[Recalibrated] = []
        self._inbox: dict[int, deque[Action]] = {}
        self._changed = threading.Condition()
        self._running = threading.Lock()
        model.prepare(task.phases, by_kernels)
        coordination.join(task, self._sink)

    @property
    def solo_us(self) -> float:
        """Microseconds of a request alone, as known now."""
        return self.recalibrated[-1].now_us if self.recalibrated else self.task.solo_us

    def request(
        self, before: Callable[[], None] | None = None, arrived: float | None = None
    ) -> RequestTimes:
        """Runs one inference; returns when it has ended.

        arrived: its arrival in microseconds of now_us; None: now
        before: called when the request begins, before its first kernel, for example to write the
                inputs; None: the inputs are ready, and the request may begin before the policy has
                decided

        Raises AdmissionRefused and TaskOverdue, and errors of `before`, of the device or of an
        earlier action of this agent; never the error of another agent.
        """
        arrived = now_us() if arrived is None else arrived
        self.model.device.ensure_current()
        number = self._coordination.request()
        self._inbox[number] = deque()
        took = None
        try:
            begin, reported = self._begin(number, arrived, ready=before is None)
            with self._running:
                if before is not None:
                    before()
                    self.model.device.ensure_current()
                begun = now_us()
                if self._by_kernels:
                    self._step_by_step(number)
                elif reported:
                    self._run(number, begin, lambda: None)
                else:
                    self._run(number, begin, lambda: self._report_arrival(number, arrived))
            ended = now_us()
            took = ended - begun
            return RequestTimes(ended - arrived, took, self.solo_us)
        finally:
            # A request that failed must not block the others either.
            with self._changed:  # the sink may be writing there
                del self._inbox[number]
            # The answer counts even if the broker is gone; the next request raises the error.
            with contextlib.suppress(TilewrightError):
                self._coordination.post(Finished(now_us(), number, took))

    def _begin(self, number: int, arrived: float, ready: bool) -> tuple[Begin, bool]:
        """The decision to begin, and whether the arrival was reported for it.

        ready: the inputs are there, so the request may begin before its arrival is reported
        """
        if ready:
            begin = self._coordination.begin_immediately(self.task.name, number)
            if begin is not None:
                return begin, False
        with self._coordination.interpreter:
            self._report_arrival(number, arrived)
        return self._next(number, Begin), True

    def _report_arrival(self, number: int, arrived: float) -> None:
        self._coordination.post(Arrived(now_us(), self.task.name, number, arrived))

    def _run(self, number: int, begin: Begin, meanwhile: Callable[[], None]) -> None:
        """Runs a request by one call.

        meanwhile: called while the GPU works; its error is raised when the request has ended
        """
        failed = list[Exception]()

        def start() -> DeviceEvent:
            mark = self.model.start(
                self.task.phases, begin.budgets, begin.settle_us, begin.concurrent
            )
            try:
                meanwhile()
            except Exception as error:
                failed.append(error)
            return mark

        starts = any(begin.budgets)
        interpreter = self._coordination.interpreter
        interpreter.run(start, self.solo_us, lambda: self._check_lease(number), starts)
        if failed:
            raise failed[0]

    def _step_by_step(self, number: int) -> None:
        """Runs a request kernel by kernel, for policies that decide between kernels."""
        interpreter = self._coordination.interpreter
        for kernel in range(len(self.task.kernels)):
            if kernel:
                self._coordination.post(Reached(now_us(), number, kernel))
            self.model.start_kernel(self._next(number, Proceed).kernel)
            interpreter.watch(self.model.device.mark(), lambda: self._check_lease(number))

    def _check_lease(self, number: int) -> None:
        inbox = self._inbox[number]
        if inbox and any(isinstance(action, Overdue) for action in tuple(inbox)):
            raise self._overdue()

    def _next(self, number: int, kind: type[A]) -> A:
        """The next action for a request, which must be of this kind."""
        with self._changed:
            self._changed.wait_for(lambda: self._inbox[number])
            action = self._inbox[number].popleft()
        if isinstance(action, Refuse):
            raise action.error
        if isinstance(action, Overdue):
            raise self._overdue()
        if not isinstance(action, kind):
            raise unexpected(action, self.task.name)
        return action

    def _overdue(self) -> TaskOverdue:
        return TaskOverdue(
            f"a request of {self.task.name} did not end within its lease",
            hint="Normal work continues. Allow a longer lease, or check the model's inputs",
            task=self.task.name,
            lease_ms=round(self.task.effective_lease_us / 1e3, 3),
        )

    def _sink(self, action: Action) -> None:
        match action:
            case Noticed():
                self.noticed.append(action)
            case Recalibrated():
                self.recalibrated.append(action)
            case Begin(request) | Proceed(request) | Refuse(request) | Overdue(request):
                with self._changed:
                    if request in self._inbox:
                        self._inbox[request].append(action)
                        self._changed.notify_all()
            case _:
                raise unexpected(action, self.task.name)


@dataclass(frozen=True)
class _Flying:
    """A launch that has not ended, as far as the host knows."""

    action: Enqueue
    mark: DeviceEvent


class NormalAgent:
    """Runs inferences of a normal model in its own thread.

    withdrawn: why the model may no longer run: it breaks the bound of a critical model.  Later
        requests for inferences are then ignored.
    between: called in the agent's thread after each inference, with their number so far.  The next
             inference may have begun, if it was asked for.  If not all normal models run at once,
             another model begins only after this call has returned.
    """

    def __init__(
        self,
        coordination: Coordination,
        task: Normal,
        plan: NormalPlan,
        device: CudaDevice,
        between: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.task, self.inferences = task, 0
        self.launches = 0
        self.withdrawn: TilewrightError | None = None
        self._coordination, self._plan, self._device = coordination, plan, device
        self._between = between
        self._wanted: deque[Enqueue] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._failed: BaseException | None = None
        coordination.join(task, self._sink)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def ask(self, inferences: int = 1) -> None:
        """Asks for more inferences."""
        for _ in range(inferences):
            arrived = Arrived(now_us(), self.task.name, self._coordination.request())
            self._coordination.post(arrived)

    def close(self) -> None:
        """Waits for the launches to end, and ends the thread.  Raises the thread's error."""
        try:
            self._coordination.post(Gone(now_us(), self.task.name))
        finally:
            with self._changed:
                self._closing = True
                self._changed.notify_all()
            join_thread(self._thread, f"the normal task {self.task.name}")
        self.check()

    def check(self) -> None:
        """Raises the error of the agent's thread, if there is one."""
        if self._failed is not None:
            name = self.task.name
            raise typed_error(self._failed, f"the normal task {name}", task=name)

    def _sink(self, action: Action) -> None:
        with self._changed:
            match action:
                case Enqueue():
                    self._wanted.append(action)
                case Withdraw():
                    self.withdrawn, self._closing = action.error, True
                case Refuse():
                    self._failed, self._closing = action.error, True
                case _:
                    raise unexpected(action, self.task.name)
            self._changed.notify_all()

    def _serve(self) -> None:
        try:
            self._device.use()
            self._loop()
        except BaseException as error:
            self._failed = error
            with contextlib.suppress(Exception):  # the first error is reported
                self._coordination.post(Gone(now_us(), self.task.name))

    def _loop(self) -> None:
        interpreter = self._coordination.interpreter
        flying: deque[_Flying] = deque()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or flying or self._closing)
                if self._closing and not flying:
                    return
            while self._wanted and interpreter.wait(to_start=not flying) and not self._closing:
                action = self._wanted.popleft()
                if action.begins:
                    self._plan.begin()
                self._plan.start(action.kernel, action.workers, action.plain)
                flying.append(_Flying(action, self._device.mark()))
                self.launches += 1
            if flying:
                first = flying.popleft()
                first.mark.wait()
                interpreter.wait()
                self._ended(self._complete(first.action, flying))

    def _complete(self, ended: Enqueue, behind: Sequence[_Flying]) -> int:
        """The number of complete kernels of the inference, now that a launch has ended.

        behind: launches that have not ended, as far as the host knows

        The host may see the end late, when the plan has already begun its next inference.  So an
        inference counts as complete only when its last launch has ended.
        """
        if ended.plain:
            return ended.kernel + 1
        complete = self._plan.complete_after(ended.kernel)
        if behind and not behind[0].action.begins:
            return min(complete, len(self._plan.ends) - 1)
        return complete

    def _ended(self, complete: int) -> None:
        if complete == len(self._plan.ends):
            self.inferences += 1
            self._between(self.inferences)
            self._device.ensure_current()
        self._coordination.post(Ended(now_us(), self.task.name, complete))
