"""The interface between agents and a coordinator, in this process or in a broker's.

Input: events of agents.  Output: actions, each given to the agent of its task, and the error of a
task whose action failed.  coordinator.py and broker/remote.py implement it; agents.py uses it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from tilewright.base.errors import HostError, TilewrightError
from tilewright.elastic.interpreter_priority import InterpreterPriority
from tilewright.elastic.policy import (
    Action,
    Allow,
    Begin,
    Critical,
    Event,
    Finished,
    Normal,
    Proceed,
    Reached,
    Recount,
    Refuse,
    TaskEvent,
    Tick,
)

#: The most seconds that a thread may take to end.
ENDS_S = 60.0
#: The owner of actions that serve no task.
NOBODY = ""
#: The hint for messages and actions that are not understood.
ONE_VERSION = "Use one version of Tilewright for the broker and its clients"

Sink = Callable[[Action], None]


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


class ActionDelivery:
    """Gives actions to the agents of their tasks, and keeps the errors of those that fail."""

    def __init__(self) -> None:
        self._sinks: dict[str, Sink] = {}
        #: Tasks of the open critical requests, by request number.
        self._tasks: dict[int, str] = {}
        self.failed = FailedActions()

    def join(self, task: str, sink: Sink) -> None:
        self._sinks[task] = sink

    def leave(self, task: str) -> None:
        """Forgets a task and its requests."""
        self._sinks.pop(task, None)
        for request, owner in self.open_requests:
            if owner == task:
                self.end(request)

    def begin(self, request: int, task: str) -> None:
        """Notes an open critical request."""
        self._tasks[request] = task

    def end(self, request: int) -> None:
        self._tasks.pop(request, None)

    @property
    def open_requests(self) -> list[tuple[int, str]]:
        """Open critical requests with their tasks."""
        return list(self._tasks.items())

    def owner(self, said: Event | Action) -> str:
        """The task to which an event or an action belongs."""
        match said:
            case Tick() | Allow() | Recount():
                return NOBODY
            case Reached() | Finished() | Proceed() | Refuse():
                return self._tasks.get(said.request, NOBODY)
        return said.task

    def give(self, task: str, action: Action) -> None:
        """Gives an action to a task.  An error of its sink is raised when the task posts next, so
        other tasks go on."""
        sink = self._sinks.get(task)
        if sink is None:
            return
        try:
            sink(action)
        except Exception as error:
            self.failed.keep(task, error)


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
