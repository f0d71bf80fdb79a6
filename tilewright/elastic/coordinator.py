"""The coordinator of one process: holds the policy's state and gives its actions to agents.

Input: events of agents (agents.py).  Output: actions, each given to the agent of its task.  A
watchdog thread advances the time, so that a lease ends even if no agent calls.  The broker
(broker/) has a coordinator for agents of other processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from typing import TypeGuard

from tilewright.elastic.coordination import (
    NOBODY,
    ActionDelivery,
    Sink,
    join_thread,
    now_us,
    typed_error,
)
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
    Recount,
    Refuse,
    Scheduler,
    SchedulerState,
    Tick,
)

#: Seconds between two ticks of the watchdog.
TICK_S = 0.01


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
        self._delivery = ActionDelivery()
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
            self._delivery.failed.check(NOBODY)

    @property
    def state(self) -> SchedulerState:
        return self._state

    def request(self) -> int:
        return next(self._numbers)

    def begin_immediately(self, task: str, request: int) -> Begin | None:
        with self._lock:
            # An error of the task is raised before a request starts, not after its answer.
            if self._claimed is not None or task in self._delivery.failed:
                return None
            begin = self.scheduler.begin_immediately(self._state, task, request)
            if begin is not None:
                self._claimed = request
            return begin

    def join(self, task: Critical | Normal, sink: Sink) -> None:
        with self._lock:
            self._state = self.scheduler.with_task(self._state, task)
            self._delivery.join(task.name, sink)

    def post(self, event: Event) -> None:
        """Reports an event.  All its actions are carried out first.

        Then raises the first error of the event's own task, also one that the watchdog met.  Errors
        of other tasks are raised when those tasks post.  `Finished` raises nothing, since its
        request has been answered.
        """
        with self._lock:
            owner = self._delivery.owner(event)
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
                self._delivery.failed.check(owner)

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
        if event.task not in self._delivery.failed:
            self._step(event)
        error = self._delivery.failed.take(event.task)
        if error is not None:
            refusal = Refuse(event.request, typed_error(error, "a request", task=event.task))
            self._carry_out(event.task, refusal)

    def _step(self, event: Event) -> None:
        """Handles an event.  It raises nothing: each error is kept for its task."""
        match event:
            case Arrived(_, task, request) if self._state.task(task) is not None:
                self._delivery.begin(request, task)
            case Gone(_, task):
                self._delivery.leave(task)
        start = time.thread_time()
        try:
            self._state, actions = self.scheduler.step(self._state, event)
        except Exception as error:
            self._delivery.failed.keep(self._delivery.owner(event), error)
            actions = ()
        if not isinstance(event, Tick):
            self.spent += time.thread_time() - start
            self.events += 1
        owner = NOBODY
        for action in actions:
            # The budget is set because of the overdue request that was reported just before.
            if not isinstance(action, Allow):
                owner = self._delivery.owner(action)
            self._carry_out(owner, action)
        if isinstance(event, Finished):
            self._delivery.end(event.request)

    def _carry_out(self, owner: str, action: Action) -> None:
        try:
            match action:
                case Allow(workers):
                    self._allow(workers)
                case Recount():
                    self._recount()
                case _:
                    self._delivery.give(owner, action)
        except Exception as error:
            self._delivery.failed.keep(owner, error)

    def _watch(self) -> None:
        while not self._closing.wait(TICK_S):
            with self._lock:
                self._step(Tick(now_us()))
