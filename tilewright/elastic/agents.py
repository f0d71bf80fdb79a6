"""Who runs models for the coordinator: a critical agent per critical model, one per normal model.

Input: a coordinator, models (models.py).  Output: answered requests, inferences.  A critical
request runs in the thread that asks for it; each normal model has a thread of its own, which starts
what the policy wants and waits for the oldest launch.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.base.errors import HostError, TaskOverdue, TilewrightError
from tilewright.elastic.coordinator import Coordination, joined, now_us
from tilewright.elastic.models import CriticalModel, NormalPlan
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
from tilewright.elastic.quiet import QUIET, in_quiet, watch
from tilewright.hosts.cuda_devices import CudaDevice, Mark

#: The device that a thread works with.
_CURRENT = threading.local()


def _use(device: CudaDevice) -> None:
    """As `device.use`, which is a call of the driver, where it is not what the thread has."""
    if getattr(_CURRENT, "device", None) is not device:
        device.use()
        _CURRENT.device = device


@dataclass(frozen=True)
class Answered:
    """A critical request: microseconds from arrival to its end, and from its begin.

    solo_us: of a request alone, as it was known when this one ended
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
        """The same from the begin, which a bound is on."""
        return self.took_us / self.solo_us


class CriticalAgent:
    """A critical model; requests of several threads wait for each other.

    noticed, recalibrated: what was found of its curves, and of its time alone, while it ran
    """

    def __init__(
        self, coordination: Coordination, task: Critical, model: CriticalModel, by_kernels: bool
    ) -> None:
        self.task, self.model = task, model
        self._coordination, self._by_kernels = coordination, by_kernels
        self.noticed: list[Noticed] = []
        self.recalibrated: list[Recalibrated] = []
        self._told: dict[int, deque[Action]] = {}
        self._changed = threading.Condition()
        self._running = threading.Lock()
        model.prepare(task.phases, by_kernels)
        coordination.join(task, self._sink)

    @property
    def solo_us(self) -> float:
        """Microseconds of a request alone, by what is known now."""
        return self.recalibrated[-1].now_us if self.recalibrated else self.task.solo_us

    def request(
        self, before: Callable[[], None] | None = None, arrived: float | None = None
    ) -> Answered:
        """One inference; returns when it is answered.

        arrived: when it came, in microseconds of now_us; None: now
        before: called when it is the request's turn, before its first kernel, such as to give the
                inputs; None: they are given, and the request may begin before it is decided
        Raises AdmissionRefused, TaskOverdue, and what `before` or the device raises.
        """
        arrived = now_us() if arrived is None else arrived
        _use(self.model.device)
        number = self._coordination.request()
        self._told[number] = deque()
        took = None
        try:
            early = self._coordination.at_once(self.task.name, number) if before is None else None
            begin = early or self._arrive(number, arrived)
            with self._running:
                if before is not None:
                    before()
                begun = now_us()
                if self._by_kernels:
                    self._step_by_step(number)
                else:
                    self._whole(number, begin, arrived if early is not None else None)
            ended = now_us()
            took = ended - begun
            return Answered(ended - arrived, took, self.solo_us)
        finally:
            # also of a request that failed: it must not hold the others back
            with self._changed:  # the sink may be about to tell it something
                del self._told[number]
            # a broker that is gone does not take the answer away: the next request tells of it
            with contextlib.suppress(TilewrightError):
                self._coordination.post(Finished(now_us(), number, took))

    def _arrive(self, number: int, arrived: float) -> Begin:
        with QUIET:
            self._coordination.post(Arrived(now_us(), self.task.name, number, arrived))
        begin = self._next(number)
        assert isinstance(begin, Begin)
        return begin

    def _whole(self, number: int, begin: Begin, arrived: float | None) -> None:
        """arrived: of a request of which the coordinator has not been told yet"""

        failed: Exception | None = None

        def start() -> Mark:
            nonlocal failed
            mark = self.model.start(self.task.phases, begin.budgets, begin.settle_us, begin.beside)
            if arrived is not None:  # the GPU is at work meanwhile; what is decided is known
                try:
                    self._coordination.post(Arrived(now_us(), self.task.name, number, arrived))
                except Exception as error:
                    failed = error
            return mark

        starts = any(begin.budgets)
        in_quiet(start, self.solo_us, lambda: self._check_lease(number), starts)
        if failed is not None:
            raise failed

    def _step_by_step(self, number: int) -> None:
        for kernel in range(len(self.task.kernels)):
            if kernel:
                self._coordination.post(Reached(now_us(), number, kernel))
            action = self._next(number)
            assert isinstance(action, Proceed)
            self.model.start_kernel(action.kernel)
            watch(self.model.device.mark(), lambda: self._check_lease(number))

    def _check_lease(self, number: int) -> None:
        told = self._told[number]
        if told and any(isinstance(action, Overdue) for action in tuple(told)):
            raise self._overdue()

    def _next(self, number: int) -> Action:
        with self._changed:
            self._changed.wait_for(lambda: self._told[number])
            action = self._told[number].popleft()
        if isinstance(action, Refuse):
            raise action.error
        if isinstance(action, Overdue):
            raise self._overdue()
        return action

    def _overdue(self) -> TaskOverdue:
        return TaskOverdue(
            f"a request of {self.task.name} did not end within its lease",
            hint="Normal work goes on. Allow a longer lease, or look at the model's inputs",
            task=self.task.name,
            lease_ms=round(self.task.lease / 1e3, 3),
        )

    def _sink(self, action: Action) -> None:
        if isinstance(action, Noticed):
            self.noticed.append(action)
            return
        if isinstance(action, Recalibrated):
            self.recalibrated.append(action)
            return
        assert isinstance(action, Begin | Proceed | Refuse | Overdue)
        with self._changed:
            if action.request in self._told:
                self._told[action.request].append(action)
                self._changed.notify_all()


@dataclass(frozen=True)
class _Flying:
    action: Enqueue
    mark: Mark


class NormalAgent:
    """A normal model.

    withdrawn: why it may not run any longer, beside a critical model whose bound it breaks; asking
               for more is in vain then
    between: called with the number of inferences so far, after each of them, in the agent's thread;
             the next one may have begun, if it has been asked for.  Where not all normal models run
             at once, its place is free only when it returns
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
        """Wants so many more."""
        for _ in range(inferences):
            arrived = Arrived(now_us(), self.task.name, self._coordination.request())
            self._coordination.post(arrived)

    def close(self) -> None:
        """Leaves; what is in flight ends first.  Raises what the thread failed with."""
        try:
            self._coordination.post(Gone(now_us(), self.task.name))
        finally:
            with self._changed:
                self._closing = True
                self._changed.notify_all()
            joined(self._thread, f"the normal task {self.task.name}")
        self.check()

    def check(self) -> None:
        """Raises what the agent's thread failed with."""
        if isinstance(self._failed, TilewrightError):
            raise self._failed
        if self._failed is not None:
            raise HostError(
                f"the normal task {self.task.name} failed: {self._failed}",
                hint="Report this",
                task=self.task.name,
            ) from self._failed

    def _sink(self, action: Action) -> None:
        assert isinstance(action, Enqueue | Refuse | Withdraw)
        with self._changed:
            match action:
                case Enqueue():
                    self._wanted.append(action)
                case Withdraw():
                    self.withdrawn, self._closing = action.error, True
                case Refuse():
                    self._failed, self._closing = action.error, True
            self._changed.notify_all()

    def _serve(self) -> None:
        try:
            self._device.use()
            self._loop()
        except BaseException as error:
            self._failed = error
            with contextlib.suppress(TilewrightError):
                self._coordination.post(Gone(now_us(), self.task.name))

    def _loop(self) -> None:
        flying: deque[_Flying] = deque()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or flying or self._closing)
                if self._closing and not flying:
                    return
            while self._wanted and QUIET.wait(to_start=not flying) and not self._closing:
                action = self._wanted.popleft()
                if action.begins:
                    self._plan.begin()
                self._plan.start(action.kernel, action.workers, action.plain)
                flying.append(_Flying(action, self._device.mark()))
                self.launches += 1
            if flying:
                first = flying.popleft()
                first.mark.wait()
                QUIET.wait()
                self._ended(self._complete(first.action, flying))

    def _complete(self, ended: Enqueue, behind: Sequence[_Flying]) -> int:
        """Kernels of the inference that are complete, as a launch has ended and others are yet to.

        The host may look late.  So the inference is complete only with its last launch, and a plan
        that is an inference further already is not asked.
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
        self._coordination.post(Ended(now_us(), self.task.name, complete))
