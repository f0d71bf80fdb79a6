"""The broker: one coordinator for the models of several processes, behind a Unix socket.

Input: a socket's path, a policy, the shared budget word.  Output: actions to clients.  A client
that ends, however it ends, takes its tasks with it: its share is free, its requests are forgotten,
and if it held the budget, everybody may stay again.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright.base.errors import AdmissionRefused, HostError, InputError, TilewrightError
from tilewright.elastic.broker.messages import (
    BrokerWelcome,
    Joined,
    Message,
    encoded,
    of_refuse,
    receive,
    refused,
)
from tilewright.elastic.broker.words import SharedWord
from tilewright.elastic.coordinator import Coordinator, now_us
from tilewright.elastic.policy import (
    Action,
    Allow,
    Arrived,
    Critical,
    Ended,
    Finished,
    Gone,
    Normal,
    Reached,
    Refuse,
    Scheduler,
)

#: Clients at a time, and tasks of one.
MOST_CLIENTS, MOST_TASKS = 64, 32
#: Bits of a request's number that are the client's own.
OWN_BITS = 32


class Broker:
    """Serves until it is closed.  Raises HostError if the socket is in use."""

    def __init__(self, path: Path, scheduler: Scheduler, word: SharedWord) -> None:
        self._path, self._word, self._design = path, word, scheduler.design
        self.coordinator = Coordinator(scheduler, word.set)
        self._listener = _listening(path)
        self._clients: dict[int, _Client] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for client in list(self._clients.values()):
            client.end()
        self.coordinator.close()

    def _accept(self) -> None:
        for number in range(1, 1 << 30):
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if len(self._clients) >= MOST_CLIENTS:
                    link.close()
                    continue
                client = _Client(number, link, self.coordinator, self._gone)
                self._clients[number] = client
            design = self._design
            client.send(
                BrokerWelcome(
                    number, self._word.kind, self._word.told(), design.name, design.by_kernels
                )
            )
            client.start()

    def _gone(self, number: int) -> None:
        with self._lock:
            self._clients.pop(number, None)


class _Client:
    def __init__(
        self, number: int, link: socket.socket, coordinator: Coordinator, gone: Any
    ) -> None:
        self._number, self._link, self._coordinator = number, link, coordinator
        self._gone, self._tasks = gone, set[str]()
        self._sending = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join()

    def send(self, message: Message) -> None:
        """A client that does not read is cut off: the others do not wait for it."""
        data = encoded(message)
        with self._sending, contextlib.suppress(OSError):
            if self._link.send(data, socket.MSG_DONTWAIT) != len(data):
                self._link.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        try:
            while True:
                self._hear(receive(self._link))
        except TilewrightError:
            pass  # it has ended, or speaks another language: either way it is gone
        finally:
            for task in self._tasks:
                self._coordinator.post(Gone(now_us(), task))
            self._gone(self._number)
            self._link.close()

    def _hear(self, message: Any) -> None:
        match message:
            case Critical() | Normal():
                self._join(message)
            case Arrived(task=task) | Ended(task=task) | Gone(task=task) if task in self._tasks:
                if not isinstance(message, Arrived) or self._owns(message.request):
                    self._post(message)
            case Reached(request=request) | Finished(request=request) if self._owns(request):
                self._post(message)
            case _:
                raise InputError("a client may not say this", hint="Use one version")

    def _post(self, event: Any) -> None:
        # a clock ahead of ours would stop all leases
        self._coordinator.post(replace(event, now=min(event.now, now_us())))

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
            self.send(refused(-1, error))
            return
        self._tasks.add(task.name)
        self.send(Joined(task.name))

    def _sink(self, action: Action) -> None:
        assert not isinstance(action, Allow)
        self.send(of_refuse(action) if isinstance(action, Refuse) else action)


def _listening(path: Path) -> socket.socket:
    """A socket that only this account may open."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except FileNotFoundError:
            pass
        except ConnectionRefusedError:
            path.unlink()  # of a broker that died
        except OSError as error:
            raise HostError(
                f"{path} cannot be used: {error.strerror}", hint="Name another"
            ) from error
        else:
            raise HostError("a broker serves this socket already", hint="Use it", path=path)
    made = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        made.bind(str(path))
    except OSError as error:
        made.close()
        raise HostError(f"{path} cannot be made: {error}", hint="Name another") from error
    finally:
        os.umask(before)
    made.listen(MOST_CLIENTS)
    return made
