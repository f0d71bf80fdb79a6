"""The broker: one coordinator for the models of several processes, behind a Unix socket.

Input: a socket's path, a policy, the shared budget word.  Output: actions to clients.  When a
client process ends, the broker removes its tasks and requests, stops counting its workers, and
resets the budget if the client's request had set it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isfinite
from pathlib import Path

from tilewright.base.errors import AdmissionRefused, HostError, InputError, TilewrightError
from tilewright.elastic.broker.budget_word import SharedWord, file_of, remove_left
from tilewright.elastic.broker.messages import (
    OWN_BITS,
    BrokerWelcome,
    JoinAnswer,
    Message,
    Withdrawn,
    encoded,
    message_for,
    receive,
    refused,
)
from tilewright.elastic.coordination import (
    NOBODY,
    ONE_VERSION,
    FailedActions,
    join_thread,
    now_us,
    typed_error,
)
from tilewright.elastic.coordinator import Coordinator
from tilewright.elastic.policy import (
    Action,
    Arrived,
    Critical,
    Ended,
    Finished,
    Gone,
    Normal,
    Reached,
    Scheduler,
    TaskEvent,
)

#: The most clients at a time; of one client, the most tasks and unfinished critical requests.
MOST_CLIENTS, MOST_TASKS, MOST_REQUESTS = 64, 32, 1024
#: Seconds until the broker accepts a client again after a failure.
AGAIN_S = 0.05


class Broker:
    """Serves clients until it is closed.

    make: creates the budget word, after this broker has taken the socket

    Raises HostError if the path is in use or is not a socket; then nothing has changed.
    """

    def __init__(self, path: Path, scheduler: Scheduler, make: Callable[[], SharedWord]) -> None:
        self._path, self._policy = path, scheduler.policy
        self._listener = _listening(path)
        try:
            self.word = make()
        except BaseException:
            self._listener.close()
            path.unlink()
            raise
        self.coordinator = Coordinator(scheduler, self.word.set, self.word.recount)
        self._clients: dict[int, _Client] = {}
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._failed = FailedActions()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops serving.  Raises as `check` does."""
        # The word first: a file without a socket beside it is taken for the user's.
        self.word.close()
        self._path.unlink(missing_ok=True)
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with contextlib.ExitStack() as closing:  # closes everything even if a step fails
            closing.callback(self._failed.check, NOBODY)
            closing.callback(self.coordinator.close)
            closing.callback(self._end_clients)
            closing.callback(join_thread, self._thread, "the broker's socket")

    def check(self) -> None:
        """Raises the error that ended the acceptance of clients, or of an action that serves no
        client, such as a write of the budget word."""
        self._failed.check(NOBODY)
        self.coordinator.check()

    def _end_clients(self) -> None:
        with contextlib.ExitStack() as closing:
            for client in list(self._clients.values()):
                closing.callback(client.end)

    def _serve(self) -> None:
        try:
            for number, link in enumerate(self._accepted(), 1):
                self._take(number, link)
        except Exception as error:
            self._failed.keep(NOBODY, typed_error(error, "accepting clients", socket=self._path))
            self._listener.close()  # later clients see at once that no broker serves

    def _accepted(self) -> Iterator[socket.socket]:
        """Connections of clients, until the broker is closed."""
        while not self._closing.is_set():
            try:
                link, _ = self._listener.accept()
            except OSError:
                # The client left while it waited, or no file descriptors are left: the other
                # clients go on, and the next client is accepted later.
                self._closing.wait(AGAIN_S)
            else:
                yield link

    def _take(self, number: int, link: socket.socket) -> None:
        try:
            self._welcome(number, link)
        except Exception as error:
            link.close()
            self._gone(number)
            if not isinstance(error, RuntimeError):  # no thread can be started at present
                raise

    def _welcome(self, number: int, link: socket.socket) -> None:
        with self._lock:
            if len(self._clients) >= MOST_CLIENTS:
                link.close()
                return
            client = _Client(number, link, self.coordinator, self._gone)
            self._clients[number] = client
        policy = self._policy
        client.send(
            BrokerWelcome(
                number, self.word.kind, self.word.handle_bytes(), policy.name, policy.by_kernels
            )
        )
        client.start()

    def _gone(self, number: int) -> None:
        with self._lock:
            self._clients.pop(number, None)


class _Client:
    def __init__(
        self,
        number: int,
        link: socket.socket,
        coordinator: Coordinator,
        gone: Callable[[int], None],
    ) -> None:
        self._number, self._link, self._coordinator = number, link, coordinator
        self._gone, self._tasks = gone, dict[str, Critical | Normal]()
        self._requests: dict[int, str] = {}
        self._sending = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            join_thread(self._thread, f"client {self._number} of the broker")

    def send(self, message: Message) -> None:
        """Sends a message.  A client that does not read is disconnected, so that others need not
        wait."""
        data = encoded(message)
        with self._sending:
            try:
                sent = self._link.send(data, socket.MSG_DONTWAIT)
            except OSError:
                sent = 0
            if sent != len(data):
                with contextlib.suppress(OSError):
                    self._link.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        try:
            while True:
                self._hear(receive(self._link))
        except TilewrightError:
            pass  # the client has ended, or has broken the protocol
        finally:
            with contextlib.ExitStack() as leaving:  # does everything even if a step fails
                leaving.callback(self._link.close)
                leaving.callback(self._gone, self._number)
                for task in self._tasks:
                    leaving.callback(self._leave, task)

    def _leave(self, task: str) -> None:
        with contextlib.suppress(Exception):  # the task has no agent any more
            self._coordinator.post(Gone(now_us(), task, died=True))

    def _hear(self, message: Message) -> None:
        match message:
            case Critical() | Normal():
                self._join(message)
            case Arrived(task=task, request=request) if task in self._tasks and self._owns(request):
                self._arrived(message)
            case Ended(task=task) if task in self._tasks:
                self._post(message)
            case Gone(task=task) if task in self._tasks:
                del self._tasks[task]
                self._requests = {r: t for r, t in self._requests.items() if t != task}
                self._post(replace(message, died=False))
            case Reached(request=request, kernel=kernel) if self._owns(request) and kernel >= 0:
                self._post(message)
            case Finished(request=request, took_us=took) if self._owns(request) and _is_time(took):
                self._requests.pop(request, None)
                self._post(message)
            case _:
                raise InputError("this message is not a client's", hint=ONE_VERSION)

    def _arrived(self, event: Arrived) -> None:
        if event.request in self._requests or not (event.came is None or isfinite(event.came)):
            raise InputError("this is not a new request", hint=ONE_VERSION)
        if isinstance(self._tasks[event.task], Critical):
            if len(self._requests) >= MOST_REQUESTS:
                error = AdmissionRefused(
                    "this client has too many requests that are not finished",
                    hint="Send requests more slowly",
                    task=event.task,
                    most=MOST_REQUESTS,
                )
                self.send(refused(event.request, error))
                return
            self._requests[event.request] = event.task
        self._post(event)

    def _post(self, event: TaskEvent) -> None:
        try:
            # A clock ahead of ours would stop all leases, so the time is at most ours; NaN becomes
            # ours.
            self._coordinator.post(replace(event, now=min(now_us(), event.now)))
        except Exception as error:
            self._tell(event, error)

    def _tell(self, event: TaskEvent, error: Exception) -> None:
        """Sends an event's error to the agent of its task; other tasks of the client go on.  A task
        that has left has no agent."""
        match event:
            case Arrived(request=request) | Reached(request=request) if request in self._requests:
                self.send(
                    refused(request, typed_error(error, "a request", task=self._requests[request]))
                )
            case Arrived(task=task) | Ended(task=task):
                self.send(
                    Withdrawn(task, refused(-1, typed_error(error, "a normal task", task=task)))
                )

    def _owns(self, request: int) -> bool:
        return request >> OWN_BITS == self._number

    def _join(self, task: Critical | Normal) -> None:
        try:
            if len(self._tasks) >= MOST_TASKS:
                raise AdmissionRefused(
                    "this client has too many tasks",
                    hint="Use one client for fewer",
                    most=MOST_TASKS,
                )
            self._coordinator.join(task, self._sink)
        except AdmissionRefused as error:
            self.send(JoinAnswer(task.name, refused(-1, error)))
            return
        self._tasks[task.name] = task
        self.send(JoinAnswer(task.name))

    def _sink(self, action: Action) -> None:
        self.send(message_for(action))


def _listening(path: Path) -> socket.socket:
    """A socket that only this account may open."""
    if path.exists() and not path.is_socket():
        raise HostError(f"{path} is not a socket", hint="Name another path", path=path)
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except FileNotFoundError:
            pass
        except ConnectionRefusedError:
            path.unlink()  # a broker that died left it, and its word
            remove_left(file_of(path))
        except OSError as error:
            raise HostError(
                f"{path} cannot be used: {error.strerror}", hint="Name another path"
            ) from error
        else:
            raise HostError("a broker already serves this socket", hint="Use that one", path=path)
    made = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        made.bind(str(path))
    except OSError as error:
        made.close()
        raise HostError(f"{path} cannot be made: {error}", hint="Name another path") from error
    finally:
        os.umask(before)
    made.listen(MOST_CLIENTS)
    return made


def _is_time(took_us: float | None) -> bool:
    return took_us is None or (isfinite(took_us) and took_us > 0)
