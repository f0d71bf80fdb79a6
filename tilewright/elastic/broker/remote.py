"""The client side of a broker: a coordinator for the agents of this process.

Input: the path of a broker's socket.  Output: actions for tasks, as `Coordinator` gives them.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from tilewright.base.errors import HostError, InputError, TilewrightError
from tilewright.elastic.broker.messages import (
    OWN_BITS,
    BrokerWelcome,
    JoinAnswer,
    Message,
    Refused,
    Withdrawn,
    encoded,
    receive,
)
from tilewright.elastic.coordination import (
    NOBODY,
    ONE_VERSION,
    ActionDelivery,
    Sink,
    join_thread,
    now_us,
    typed_error,
)
from tilewright.elastic.interpreter_priority import InterpreterPriority
from tilewright.elastic.policy import (
    Arrived,
    Begin,
    Critical,
    Enqueue,
    Finished,
    Gone,
    Normal,
    Noticed,
    Overdue,
    Proceed,
    Recalibrated,
    Refuse,
    TaskEvent,
    Withdraw,
)

#: The most seconds until a broker admits or refuses a task.
ANSWERS_S = 60.0


class RemoteCoordinator:
    """A coordinator that asks a broker.

    welcome: the broker's first message
    interpreter: shared with other coordinators of this process; None: one of its own

    When the connection ends, open requests fail with a HostError. Raises HostError if no broker
    serves the socket, or the broker has its most clients.
    """

    def __init__(self, path: Path, interpreter: InterpreterPriority | None = None) -> None:
        self.interpreter = interpreter or InterpreterPriority()
        self._link = socket.socket(socket.AF_UNIX)
        try:
            self._link.connect(str(path))
        except OSError as error:
            self._link.close()
            raise HostError(
                f"no broker serves {path}: {error.strerror}",
                hint="Start one: tilewright broker SOCKET",
            ) from error
        try:
            self.welcome = self._welcomed(path)
        except TilewrightError:
            self._link.close()
            raise
        self._numbers: Iterator[int] = count(self.welcome.client << OWN_BITS)
        self._delivery = ActionDelivery()
        self._joined: dict[str, Critical | Normal] = {}
        self._sending, self._joining = threading.Lock(), threading.Lock()
        #: The task that waits for its answer, if any; the lock guards both.
        self._pending: str | None = None
        self._answer: JoinAnswer | None = None
        self._answering, self._join_answered = threading.Lock(), threading.Event()
        self._ended: TilewrightError | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _welcomed(self, path: Path) -> BrokerWelcome:
        try:
            first = receive(self._link)
        except HostError as error:
            raise HostError(
                f"the broker of {path} accepts no more clients, or has ended",
                hint="Close one of its clients, or check that the broker still runs",
                path=path,
            ) from error
        if not isinstance(first, BrokerWelcome):
            raise InputError(
                f"the broker of {path} began with {type(first).__name__}", hint=ONE_VERSION
            )
        return first

    def __enter__(self) -> RemoteCoordinator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnects; the broker then forgets this client's tasks."""
        with contextlib.suppress(OSError):  # the connection may have ended already
            self._link.shutdown(socket.SHUT_RDWR)
        join_thread(self._thread, "the link to the broker")
        self._link.close()

    def request(self) -> int:
        return next(self._numbers)

    def begin_immediately(self, task: str, request: int) -> Begin | None:
        """Always None: only the broker can decide."""
        return None

    def join(self, task: Critical | Normal, sink: Sink) -> None:
        with self._joining:
            self._delivery.join(task.name, sink)
            self._join_answered.clear()
            self._pending, self._answer = task.name, None
            self._send(task)
            in_time = self._join_answered.wait(ANSWERS_S)
            with self._answering:
                self._pending, answer = None, self._answer
            if answer is None and not in_time:
                self._delivery.leave(task.name)
                raise HostError(
                    f"the broker did not answer within {ANSWERS_S:g} s",
                    hint="Look whether its process is stopped, and start it again",
                    task=task.name,
                )
            if answer is not None and answer.refused is not None:
                self._delivery.leave(task.name)
                raise answer.refused.error
            self._joined[task.name] = task
            self._check()

    def post(self, event: TaskEvent) -> None:
        """Sends an event.  Raises HostError after the connection has ended, and as
        `Coordinator.post`."""
        owner = self._delivery.owner(event)
        match event:
            case Arrived(task=task) if isinstance(self._joined.get(task), Critical):
                self._delivery.begin(event.request, task)
            case Finished():
                self._delivery.end(event.request)
            case Gone(task=task):
                self._delivery.leave(task)
                self._joined.pop(task, None)
        self._send(event)
        if owner != NOBODY and not isinstance(event, Finished):
            self._delivery.failed.check(owner)

    def _send(self, message: Message) -> None:
        self._check()
        with self._sending:
            try:
                self._link.sendall(encoded(message))
            except OSError as error:
                raise HostError(
                    "the broker is gone", hint="Start it again, and its clients"
                ) from error

    def _check(self) -> None:
        if self._ended is not None:
            raise self._ended

    def _read(self) -> None:
        try:
            while True:
                self._hear(receive(self._link))
        except Exception as raised:
            error = typed_error(raised, "the link to the broker")
            self._ended = error
            self._join_answered.set()
            for request, owner in self._delivery.open_requests:
                self._delivery.give(owner, Refuse(request, error))
            for name, task in list(self._joined.items()):
                if isinstance(task, Normal):
                    self._delivery.give(name, Refuse(-1, error))

    def _hear(self, message: Message) -> None:
        match message:
            case JoinAnswer():
                self._hear_answer(message)
            case Refused(request=request):
                refusal = Refuse(request, message.error)
                self._delivery.give(self._delivery.owner(refusal), refusal)
            case Withdrawn(task=task, why=why):
                self._delivery.give(task, Withdraw(task, why.error))
            case Enqueue() | Begin() | Proceed() | Noticed() | Recalibrated() | Overdue():
                self._delivery.give(self._delivery.owner(message), message)

    def _hear_answer(self, answer: JoinAnswer) -> None:
        """Takes the answer of the task that waits for it.  If an admission comes after its task
        has given up, the task leaves."""
        with self._answering:
            late = answer.task != self._pending
            if not late:
                self._answer, self._pending = answer, None
                self._join_answered.set()
        if late and answer.refused is None:
            self._send(Gone(now_us(), answer.task))
