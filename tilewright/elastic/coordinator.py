"""The coordinator of one process: the policy's state behind a lock, its decisions to who acts.

Input: events of agents (agents.py).  Output: actions, given to the agent of their task.  A watchdog
lets time pass, so that a lease ends even if nobody calls.  The broker (broker/) has one of these
for agents of other processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Protocol, TypeGuard

from tilewright.base.errors import HostError
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
    Shares,
    Tick,
)

#: Seconds between two ticks of the watchdog.
TICK_S = 0.01
#: Seconds within which a thread ends that was told to.
ENDS_S = 60.0

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


class Coordination(Protocol):
    """What an agent needs of a coordinator, here or in another process."""

    def join(self, task: Critical | Normal, sink: Sink) -> None:
        """Raises AdmissionRefused.  sink: is given the actions of the task, and returns at once."""

    def post(self, event: Event) -> None: ...

    def request(self) -> int:
        """A new number of a request."""

    def at_once(self, task: str, request: int) -> Begin | None:
        """A critical request that may begin now, before its `Arrived`: that, or its `Finished` if
        it comes to nothing, must follow.  None: post `Arrived`, and wait for its turn."""


class Coordinator:
    """allow: sets the budget word at once, whatever the streams have to do
    recount: sets the count of workers to 0 before it returns; only processes that die need it

    Close it, or use it in a `with` statement.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        allow: Callable[[int], None],
        recount: Callable[[], None] = lambda: None,
    ) -> None:
        self.scheduler, self._allow, self._recount = scheduler, allow, recount
        self._state = Shares()
        self._sinks: dict[str, Sink] = {}
        #: Critical requests that are open, and their tasks.
        self._tasks: dict[int, str] = {}
        #: The first error of an action that nobody has been told of, by the task that it was for;
        #: under "" that of the coordinator's own actions.
        self._errors: dict[str, Exception] = {}
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closing.set()
        joined(self._watchdog, "the watchdog of the coordinator")

    @property
    def state(self) -> Shares:
        return self._state

    def request(self) -> int:
        return next(self._numbers)

    def at_once(self, task: str, request: int) -> Begin | None:
        with self._lock:
            if self._claimed is not None:
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
        """Raises the first error of an action for the task that the event is of, also one that the
        watchdog met; all actions are carried out before.  An arrival also raises an error of the
        coordinator's own actions.  `Finished` raises nothing: the request has its answer.
        """
        with self._lock:
            owner = self._owner(event)
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
                    self._step(each)
            if isinstance(event, Finished):
                return
            for whose in (owner, "") if isinstance(event, Arrived) else (owner,):
                if (error := self._errors.pop(whose, None)) is not None:
                    raise error

    def _owner(self, said: Event | Action) -> str:
        """The task that an event or an action is of; "" if it is of none."""
        match said:
            case Tick() | Allow() | Recount():
                return ""
            case Reached() | Finished() | Proceed() | Refuse():
                return self._tasks.get(said.request, "")
        return said.task

    def _comes_later(self, event: Event) -> TypeGuard[Arrived]:
        """Whether it is a critical request, and another one has begun before its event."""
        return (
            self._claimed is not None
            and isinstance(event, Arrived)
            and event.request != self._claimed
            and self._state.task(event.task) is not None
        )

    def _step(self, event: Event) -> None:
        """Errors of actions are kept, the first one of each task."""
        match event:
            case Arrived(_, task, request) if self._state.task(task) is not None:
                self._tasks[request] = task
            case Gone(_, task):
                self._sinks.pop(task, None)
                self._tasks = {r: t for r, t in self._tasks.items() if t != task}
        start = time.thread_time()
        self._state, actions = self.scheduler.step(self._state, event)
        if not isinstance(event, Tick):
            self.spent += time.thread_time() - start
            self.events += 1
        for action in actions:
            owner = self._owner(action)
            try:
                self._carry_out(owner, action)
            except Exception as error:
                self._errors.setdefault(owner, error)
        if isinstance(event, Finished):
            self._tasks.pop(event.request, None)

    def _carry_out(self, task: str, action: Action) -> None:
        match action:
            case Allow(workers):
                self._allow(workers)
            case Recount():
                self._recount()
            case _:
                sink = self._sinks.get(task)
                if sink is not None:
                    sink(action)

    def _watch(self) -> None:
        while not self._closing.wait(TICK_S):
            with self._lock:
                try:
                    self._step(Tick(now_us()))
                except Exception as error:
                    self._errors.setdefault("", error)
