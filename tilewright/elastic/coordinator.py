"""The coordinator of one process: holds the policy's state and gives its actions to agents.

Input: events of agents (agents.py).  Output: actions, each given to the agent of its task.  A
watchdog thread advances the time, so that a lease ends even if no agent calls.  The broker
(broker/) has a coordinator for agents of other processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Protocol, TypeGuard

from tilewright.base.errors import HostError, TilewrightError
from tilewright.elastic.interpreter_priority import InterpreterPriority
from tilewright.elastic.policy import (
    Action,
    Allow,
    Arrived,
    Begin,
    Critical,
    Event,
    Finished,
    Gone,
    Normal,
    Proceed,
    Reached,
    Recount,
    Refuse,
    Scheduler,
    SchedulerState,
    TaskEvent,
    Tick,
)

#: Seconds between two ticks of the watchdog.
TICK_S = 0.01
#: The most seconds that a thread may take to end.
ENDS_S = 60.0
#: The owner of actions that serve no task.
NOBODY = ""
#: The hint for messages and actions that are not understood.
ONE_VERSION = "Use one version of Tilewright for the broker and its clients"

Sink = Callable[[Action], None]


def now_us() -> float:
    return time.monotonic_ns() / 1e3


def join_thread(thread: threading.Thread, what: str, seconds: float = ENDS_S) -> None:
    """Waits for a thread that was told to end.  Raises HostError if it does not end in time."""
    thread.join(seconds)
    if thread.is_alive():
        raise HostError(
            f"{what} did not end within {seconds:g} s",
            hint="Something that it waits for hangs, such as a kernel: end this process",
        )


def typed_error(error: BaseException, what: str, **facts: object) -> TilewrightError:
    """The error itself, or a HostError with its text if it is not a TilewrightError.

    what: the operation that failed;  facts: of the HostError
    """
    if isinstance(error, TilewrightError):
        return error
    made = HostError(f"{what} failed: {error}", hint="Report this", **facts)
    made.__cause__ = error
    return made


def unexpected(action: Action, task: str) -> HostError:
    """The error of an agent that got an action for another kind of task."""
    return HostError(
        f"{type(action).__name__} is not an action for {task}",
        hint=ONE_VERSION,
        task=task,
    )


class FailedActions:
    """Errors of actions by task: the first error of each task, until it is raised."""

    def __init__(self) -> None:
        self._errors: dict[str, Exception] = {}

    def __contains__(self, task: str) -> bool:
        return task in self._errors

    def keep(self, task: str, error: Exception) -> None:
        self._errors.setdefault(task, error)

    def take(self, task: str) -> Exception | None:
        return self._errors.pop(task, None)

    def check(self, task: str) -> None:
        """Raises the task's error, if there is one."""
        error = self.take(task)
        if error is not None:
            raise error


def owner_of(said: Event | Action, tasks: Mapping[int, str]) -> str:
    """The task to which an event or an action belongs.

    tasks: tasks of the open requests
    """
    match said:
        case Tick() | Allow() | Recount():
            return NOBODY
        case Reached() | Finished() | Proceed() | Refuse():
            return tasks.get(said.request, NOBODY)
    return said.task


class Coordination(Protocol):
    """The interface that agents use: a coordinator in this process or in another one.

    interpreter: shared by all agents of the coordinator
    """

    interpreter: InterpreterPriority

    def join(self, task: Critical | Normal, sink: Sink) -> None:
        """Adds a task.  Raises AdmissionRefused.  sink: called with the task's actions; must not
        block"""

    def post(self, event: TaskEvent) -> None:
        """Reports an event.  Raises the first error of the event's own task, but not for
        `Finished`."""

    def request(self) -> int:
        """A new request number."""

    def begin_immediately(self, task: str, request: int) -> Begin | None:
        """Lets a critical request begin before its `Arrived`, or returns None.

        After a `Begin`, its `Arrived` must follow, or its `Finished` if the request fails.  After
        None, post `Arrived` and wait for `Begin`.
        """


class Coordinator:
    """The coordinator of one process.  Close it, or use it in a `with` statement.

    allow: sets the budget word at once, whatever the streams are doing
    recount: sets the count of workers to 0 before it returns; needed only when a process has died
    interpreter: shared with other coordinators of this process; None: one of its own
    """

    def __init__(
        self,
        scheduler: Scheduler,
        allow: Callable[[int], None],
        recount: Callable[[], None] = lambda: None,
        interpreter: InterpreterPriority | None = None,
    ) -> None:
        self.scheduler, self._allow, self._recount = scheduler, allow, recount
        self.interpreter = interpreter or InterpreterPriority()
        self._state = SchedulerState()
        self._sinks: dict[str, Sink] = {}
        #: Tasks of the open critical requests, by request number.
        self._tasks: dict[int, str] = {}
        self._failed = FailedActions()
        #: The request that began before its event; arrivals of other requests wait for that event.
        self._claimed: int | None = None
        self._deferred: list[Arrived] = []
        self._numbers = count()
        self._lock = threading.RLock()
        self._closing = threading.Event()
        #: Processor seconds spent in decisions, and the number of events; ticks are not counted.
        self.spent, self.events = 0.0, 0
        self._watchdog = threading.Thread(target=self._watch, daemon=True)
        self._watchdog.start()

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> None:
        self._end()
        if raised is None:
            self.check()

    def close(self) -> None:
        """Stops the watchdog.  Raises as `check` does."""
        self._end()
        self.check()

    def _end(self) -> None:
        self._closing.set()
        join_thread(self._watchdog, "the watchdog of the coordinator")

    def check(self) -> None:
        """Raises the first error of an action that serves no task, such as a count of workers."""
        with self._lock:
            self._failed.check(NOBODY)

    @property
    def state(self) -> SchedulerState:
        return self._state

    def request(self) -> int:
        return next(self._numbers)

    def begin_immediately(self, task: str, request: int) -> Begin | None:
        with self._lock:
            # An error of the task is raised before a request starts, not after its answer.
            if self._claimed is not None or task in self._failed:
                return None
            begin = self.scheduler.begin_immediately(self._state, task, request)
            if begin is not None:
                self._claimed = request
            return begin

    def join(self, task: Critical | Normal, sink: Sink) -> None:
        with self._lock:
            self._state = self.scheduler.with_task(self._state, task)
            self._sinks[task.name] = sink

    def post(self, event: Event) -> None:
        """Reports an event.  All its actions are carried out first.

        Then raises the first error of the event's own task, also one that the watchdog met.  Errors
        of other tasks are raised when those tasks post.  `Finished` raises nothing, since its
        request has been answered.
        """
        with self._lock:
            owner = owner_of(event, self._tasks)
            if self._comes_later(event):
                self._deferred.append(event)
                return
            if isinstance(event, Finished):
                self._deferred = [e for e in self._deferred if e.request != event.request]
            self._step(event)
            if isinstance(event, Arrived | Finished) and event.request == self._claimed:
                self._claimed, deferred = None, self._deferred
                self._deferred = []
                for each in deferred:
                    self._step_deferred(each)
            if owner != NOBODY and not isinstance(event, Finished):
                self._failed.check(owner)

    def _comes_later(self, event: Event) -> TypeGuard[Arrived]:
        """True for the arrival of a critical request while another one has begun before its
        event."""
        return (
            self._claimed is not None
            and isinstance(event, Arrived)
            and event.request != self._claimed
            and self._state.task(event.task) is not None
        )

    def _step_deferred(self, event: Arrived) -> None:
        """Handles an arrival whose `post` has returned already; on an error its request is refused
        with that error."""
        if event.task not in self._failed:
            self._step(event)
        error = self._failed.take(event.task)
        if error is not None:
            refusal = Refuse(event.request, typed_error(error, "a request", task=event.task))
            self._carry_out(event.task, refusal)

    def _step(self, event: Event) -> None:
        """Handles an event.  It raises nothing: each error is kept for its task."""
        match event:
            case Arrived(_, task, request) if self._state.task(task) is not None:
                self._tasks[request] = task
            case Gone(_, task):
                self._sinks.pop(task, None)
                self._tasks = {r: t for r, t in self._tasks.items() if t != task}
        start = time.thread_time()
        try:
            self._state, actions = self.scheduler.step(self._state, event)
        except Exception as error:
            self._failed.keep(owner_of(event, self._tasks), error)
            actions = ()
        if not isinstance(event, Tick):
            self.spent += time.thread_time() - start
            self.events += 1
        owner = NOBODY
        for action in actions:
            # The budget is set because of the overdue request that was reported just before.
            if not isinstance(action, Allow):
                owner = owner_of(action, self._tasks)
            self._carry_out(owner, action)
        if isinstance(event, Finished):
            self._tasks.pop(event.request, None)

    def _carry_out(self, owner: str, action: Action) -> None:
        try:
            match action:
                case Allow(workers):
                    self._allow(workers)
                case Recount():
                    self._recount()
                case _:
                    sink = self._sinks.get(owner)
                    if sink is not None:
                        sink(action)
        except Exception as error:
            self._failed.keep(owner, error)

    def _watch(self) -> None:
        while not self._closing.wait(TICK_S):
            with self._lock:
                self._step(Tick(now_us()))
