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
from typing import Protocol

from tilewright.elastic.policy import (
    Action,
    Allow,
    Arrived,
    Begin,
    Critical,
    Enqueue,
    Event,
    Finished,
    Gone,
    Normal,
    Overdue,
    Scheduler,
    Shares,
    Tick,
)

#: Seconds between two ticks of the watchdog.
TICK_S = 0.01

Sink = Callable[[Action], None]


def now_us() -> float:
    return time.monotonic_ns() / 1e3


class Coordination(Protocol):
    """What an agent needs of a coordinator, here or in another process."""

    def join(self, task: Critical | Normal, sink: Sink) -> None:
        """Raises AdmissionRefused.  sink: is given the actions of the task, and returns at once."""

    def post(self, event: Event) -> None: ...

    def request(self) -> int:
        """A new number of a request."""


class Coordinator:
    """allow: sets the budget word at once, whatever the streams have to do

    Close it, or use it in a `with` statement.
    """

    def __init__(self, scheduler: Scheduler, allow: Callable[[int], None]) -> None:
        self.scheduler, self._allow = scheduler, allow
        self._state = Shares()
        self._sinks: dict[str, Sink] = {}
        self._tasks: dict[int, str] = {}
        self._numbers = count()
        self._lock = threading.RLock()
        self._closing = threading.Event()
        #: Time spent in decisions, in seconds, and how many events they were for.
        self.spent, self.events = 0.0, 0
        self._watchdog = threading.Thread(target=self._watch, daemon=True)
        self._watchdog.start()

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closing.set()
        self._watchdog.join()

    @property
    def state(self) -> Shares:
        return self._state

    def request(self) -> int:
        return next(self._numbers)

    def join(self, task: Critical | Normal, sink: Sink) -> None:
        with self._lock:
            self._state = self.scheduler.joined(self._state, task)
            self._sinks[task.name] = sink

    def post(self, event: Event) -> None:
        with self._lock:
            match event:
                case Arrived(_, task, request):
                    self._tasks[request] = task
                case Gone(_, task):
                    self._sinks.pop(task, None)
            start = time.perf_counter()
            self._state, actions = self.scheduler.step(self._state, event)
            self.spent += time.perf_counter() - start
            self.events += 1
            for action in actions:
                self._carry_out(action)
            if isinstance(event, Finished):
                self._tasks.pop(event.request, None)

    def _carry_out(self, action: Action) -> None:
        match action:
            case Allow(workers):
                self._allow(workers)
            case Enqueue(task):
                self._give(task, action)
            case Begin(_, task) | Overdue(_, task):
                self._give(task, action)
            case _:
                self._give(self._tasks.get(action.request, ""), action)

    def _give(self, task: str, action: Action) -> None:
        sink = self._sinks.get(task)
        if sink is not None:
            sink(action)

    def _watch(self) -> None:
        while not self._closing.wait(TICK_S):
            self.post(Tick(now_us()))
