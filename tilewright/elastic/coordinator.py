"""The coordinator of one process: the policy's state behind a lock, its actions given to agents.

Input: events of agents (agents.py).  Output: actions, given to the agent of their task.  A watchdog
lets time pass, so that a lease ends even if no agent calls.  The broker (broker/) has one of these
for agents of other processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Protocol, TypeGuard

from tilewright.base.errors import HostError, TilewrightError
from tilewright.elastic.interpreter import InterpreterPriority
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
#: Seconds within which a thread ends that was told to.
ENDS_S = 60.0
#: The owner of actions that serve no task.
NOBODY = ""
#: What to do about messages and actions that do not fit.
ONE_VERSION = "Use one version of Tilewright for the broker and its clients"

Sink = Callable[[Action], None]


def now_us() -> float:
    return time.monotonic_ns() / 1e3


def joined(thread: threading.Thread, what: str, seconds: float = ENDS_S) -> None:
    """Waits until a thread that was told to end has ended.  Raises HostError if it does not."""
    thread.join(seconds)
    if thread.is_alive():
        raise HostError(
            f"{what} did not end within {seconds:g} s",
            hint="Something that it waits for hangs, such as a kernel: end this process",
        )


def typed(error: BaseException, what: str, task: str) -> TilewrightError:
    """The error itself, or a HostError with the same text if it is none of ours.

    what: what failed with it
    """
    if isinstance(error, TilewrightError):
        return error
    made = HostError(f"{what} failed: {error}", hint="Report this", task=task)
    made.__cause__ = error
    return made


def unexpected(action: Action, task: str) -> HostError:
    """The error of an agent that was given an action of another kind of task."""
    return HostError(
        f"{type(action).__name__} is not an action for {task}",
        hint=ONE_VERSION,
        task=task,
    )


class FailedActions:
    """Errors of actions, each kept for the task that it belongs to: the first one, until told."""

    def __init__(self) -> None:
        self._errors: dict[str, Exception] = {}

    def __contains__(self, task: str) -> bool:
        return task in self._errors

    def keep(self, task: str, error: Exception) -> None:
        self._errors.setdefault(task, error)

    def take(self, task: str) -> Exception | None:
        return self._errors.pop(task, None)

    def check(self, task: str) -> None:
        """Raises the task's error."""
        error = self.take(task)
        if error is not None:
            raise error


def owner_of(said: Event | Action, tasks: Mapping[int, str]) -> str:
    """The task that an event or an action belongs to.

    tasks: those of the requests that are open
    """
    match said:
        case Tick() | Allow() | Recount():
            return NOBODY
        case Reached() | Finished() | Proceed() | Refuse():
            return tasks.get(said.request, NOBODY)
    return said.task


class Coordination(Protocol):
    """What an agent needs of a coordinator, here or in another process.

    interpreter: shared by all agents of the coordinator
    """

    interpreter: InterpreterPriority

    def join(self, task: Critical | Normal, sink: Sink) -> None:
        """Raises AdmissionRefused.  sink: is given the actions of the task, and returns at once."""

    def post(self, event: TaskEvent) -> None:
        """Raises what failed of the event's own task; `Finished` raises nothing of the kind."""

    def request(self) -> int:
        """A new number of a request."""

    def at_once(self, task: str, request: int) -> Begin | None:
        """A critical request that may begin now, before its `Arrived`: that, or its `Finished` if
        it comes to nothing, must follow.  None: post `Arrived`, and wait for `Begin`."""


class Coordinator:
    """allow: sets the budget word at once, whatever the streams have to do
    recount: sets the count of workers to 0 before it returns; only processes that die need it
    interpreter: shared with other coordinators of this process; None: one of its own

    Close it, or use it in a `with` statement.
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
        #: Critical requests that are open, and their tasks.
        self._tasks: dict[int, str] = {}
        self._failed = FailedActions()
        #: The request that has begun before its event; arrivals of others come after that.
        self._claimed: int | None = None
        self._deferred: list[Arrived] = []
        self._numbers = count()
        self._lock = threading.RLock()
        self._closing = threading.Event()
        #: Processor time spent in decisions, in seconds, and for how many events; ticks apart.
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
        """Raises what `check` does."""
        self._end()
        self.check()

    def _end(self) -> None:
        self._closing.set()
        joined(self._watchdog, "the watchdog of the coordinator")

    def check(self) -> None:
        """Raises the first error of an action that serves no task, such as a count of workers."""
        with self._lock:
            self._failed.check(NOBODY)

    @property
    def state(self) -> SchedulerState:
        return self._state

    def request(self) -> int:
        return next(self._numbers)

    def at_once(self, task: str, request: int) -> Begin | None:
        with self._lock:
            # an error of the task is told before a request starts, not after its answer
            if self._claimed is not None or task in self._failed:
                return None
            begin = self.scheduler.at_once(self._state, task, request)
            if begin is not None:
                self._claimed = request
            return begin

    def join(self, task: Critical | Normal, sink: Sink) -> None:
        with self._lock:
            self._state = self.scheduler.joined(self._state, task)
            self._sinks[task.name] = sink

    def post(self, event: Event) -> None:
        """Raises the first error that belongs to the event's task, also one that the watchdog met;
        all actions are carried out before.  Errors of other tasks wait until these tasks post.
        `Finished` raises nothing: the request has its answer.
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
        """Whether it is a critical request, and another one has begun before its event."""
        return (
            self._claimed is not None
            and isinstance(event, Arrived)
            and event.request != self._claimed
            and self._state.task(event.task) is not None
        )

    def _step_deferred(self, event: Arrived) -> None:
        """An arrival whose `post` has returned already: its request is refused with the error that
        `post` would have raised."""
        if event.task not in self._failed:
            self._step(event)
        error = self._failed.take(event.task)
        if error is not None:
            refusal = Refuse(event.request, typed(error, "a request", event.task))
            self._carry_out(event.task, refusal)

    def _step(self, event: Event) -> None:
        """Raises nothing: each error is kept for the task that it belongs to."""
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
            # the budget is set because of the overdue request that was told just before
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
