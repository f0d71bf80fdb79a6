"""Who runs models for the coordinator: a critical agent per critical model, one per normal model.

Input: a coordinator, models (models.py).  Output: answered requests, inferences.  A critical
request runs in the thread that asks for it; each normal model has a thread of its own, which starts
what the policy wants and waits for the oldest launch.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.base.errors import HostError, TaskOverdue, TilewrightError
from tilewright.elastic.coordinator import Coordination, now_us
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
    Refuse,
    Withdraw,
)
from tilewright.hosts.cuda_devices import CudaDevice, Mark

#: Seconds for which a critical thread looks without rest whether its request has ended.
SPIN_S = 0.02
#: Between two looks after that.
REST_S = 1e-4


class Quiet:
    """Threads of normal models stay out of the interpreter while it is entered.

    Threads of Python run by turns, and each turn costs the other one more than a kernel takes.  So
    nobody else takes turns while a critical request is started, or runs alone.
    """

    def __init__(self) -> None:
        self._lock, self._over, self._entered = threading.Lock(), threading.Event(), 0
        self._over.set()

    def __enter__(self) -> None:
        with self._lock:
            self._entered += 1
            self._over.clear()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._entered -= 1
            if not self._entered:
                self._over.set()

    def wait(self) -> None:
        """Until nobody has entered it."""
        self._over.wait()


#: Of this process, as the interpreter is.
QUIET = Quiet()


def in_quiet(
    device: CudaDevice, start: Callable[[], None], wait: Callable[[Mark], None], alone: bool
) -> None:
    """Starts a critical request and waits for its end.

    alone: no normal work may run meanwhile, so nobody needs the interpreter
    """
    with QUIET:
        start()
        mark = device.mark()
        if alone:
            wait(mark)
            # one more look would give others their turn before the caller reads the clock
            return
    wait(mark)


@dataclass(frozen=True)
class Answered:
    """A critical request: microseconds from arrival to its end, and from its begin."""

    latency_us: float
    took_us: float


class CriticalAgent:
    """A critical model; requests of several threads wait for each other.

    noticed: what was found of its curves while it ran
    """

    def __init__(
        self, coordination: Coordination, task: Critical, model: CriticalModel, by_kernels: bool
    ) -> None:
        self.task, self.model = task, model
        self._coordination, self._by_kernels = coordination, by_kernels
        self.noticed: list[Noticed] = []
        self._told: dict[int, deque[Action]] = {}
        self._changed = threading.Condition()
        self._running = threading.Lock()
        model.prepare(task.phases, by_kernels)
        coordination.join(task, self._sink)

    def request(
        self, before: Callable[[], None] = lambda: None, arrived: float | None = None
    ) -> Answered:
        """One inference; returns when it is answered.

        arrived: when it came, in microseconds of now_us; None: now
        before: called when it is the request's turn, before its first kernel, such as to give the
                inputs
        Raises AdmissionRefused, TaskOverdue, and what `before` or the device raises.
        """
        self.model.device.use()
        number = self._coordination.request()
        arrived = now_us() if arrived is None else arrived
        self._told[number] = deque()
        begun = None
        try:
            with QUIET:
                self._coordination.post(Arrived(now_us(), self.task.name, number, arrived))
            begin = self._next(number)
            assert isinstance(begin, Begin)
            with self._running:
                before()
                begun = now_us()
                if self._by_kernels:
                    self._step_by_step(number)
                else:
                    self._at_once(number, begin)
            ended = now_us()
            return Answered(ended - arrived, ended - begun)
        finally:
            # also of a request that failed: it must not hold the others back
            ended = now_us()
            took = 0.0 if begun is None else ended - begun
            with self._changed:  # the sink may be about to tell it something
                del self._told[number]
            self._coordination.post(Finished(ended, number, took))

    def _at_once(self, number: int, begin: Begin) -> None:
        def start() -> None:
            self.model.start(self.task.phases, begin.budgets, begin.settle_us, begin.beside)

        alone = not any(begin.budgets)
        in_quiet(self.model.device, start, lambda mark: self._wait(number, mark), alone)

    def _step_by_step(self, number: int) -> None:
        for kernel in range(len(self.task.kernels)):
            if kernel:
                self._coordination.post(Reached(now_us(), number, kernel))
            action = self._next(number)
            assert isinstance(action, Proceed)
            self.model.start_kernel(action.kernel)
            self._wait(number, self.model.device.mark())

    def _wait(self, number: int, mark: Mark) -> None:
        start = time.perf_counter()
        while not mark.passed():
            if any(isinstance(action, Overdue) for action in tuple(self._told[number])):
                raise self._overdue()
            if time.perf_counter() - start > SPIN_S:
                time.sleep(REST_S)

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
        assert isinstance(action, Begin | Proceed | Refuse | Overdue)
        with self._changed:
            if action.request in self._told:
                self._told[action.request].append(action)
                self._changed.notify_all()


@dataclass(frozen=True)
class _Flying:
    kernel: int
    mark: Mark


class NormalAgent:
    """A normal model.

    withdrawn: why it may not run any longer, beside a critical model whose bound it breaks; asking
               for more is in vain then
    between: called with the number of inferences so far, after each of them, in the agent's thread
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
            self._thread.join()
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
            self._plan.begin()
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
                wanted = list(self._wanted)
                self._wanted.clear()
            QUIET.wait()
            for action in wanted:
                self._plan.start(action.kernel, action.workers, action.plain)
                flying.append(_Flying(action.kernel, self._device.mark()))
                self.launches += 1
            if flying:
                first = flying.popleft()
                first.mark.wait()
                QUIET.wait()
                self._ended(self._plan.complete_after(first.kernel))

    def _ended(self, complete: int) -> None:
        if complete == len(self._plan.ends):
            self.inferences += 1
            self._between(self.inferences)
            self._plan.begin()
        self._coordination.post(Ended(now_us(), self.task.name, complete))
