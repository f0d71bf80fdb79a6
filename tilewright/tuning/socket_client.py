"""A client of the tuning socket (docs/tuning-protocol.md), for tuners outside of a page.

Input: the URL of a server, a hello.  Output: the server's welcome, then all candidates one by one.
Further candidates arrive while one is tried.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tilewright.base.errors import HostError
from tilewright.tuning.messages import (
    MOST_FROM_SERVER,
    Bye,
    Done,
    Error,
    FromClient,
    FromServer,
    Hello,
    KernelMessage,
    Want,
    Welcome,
    decode_from_server,
    encode,
)

#: The most candidates that are requested ahead.
AHEAD = 4
#: Seconds until the server must have answered, and until it must have stored the last report.
TIMEOUT, FAREWELL = 60.0, 6.0


class TuningSocket:
    """One session, as a context manager.  on_sent: called with every message to the server"""

    def __init__(self, url: str, path: str, on_sent: Callable[[FromClient], None]) -> None:
        self._on_sent = on_sent
        self._connection = connect(
            url.replace("http", "ws", 1) + path, compression=None, max_size=MOST_FROM_SERVER
        )

    def __enter__(self) -> TuningSocket:
        self._socket = self._connection.__enter__()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Waits until the server has stored the reports."""
        with suppress(ConnectionClosed, TimeoutError):
            self.send(Bye())
            while True:
                self._socket.recv(timeout=FAREWELL)
        self._connection.__exit__(None, None, None)

    def begin(self, hello: Hello) -> Welcome:
        self.send(hello)
        message, _ = self._receive()
        if not isinstance(message, Welcome):
            raise HostError("The tuning server did not answer", hint="Tune again")
        self._open = set(hello.specs)
        self.send(Want(count=AHEAD))
        return message

    def next(self) -> tuple[KernelMessage, bytes] | Done | None:
        """A candidate, the end of a kernel's candidates, or None at the end of all."""
        while self._open:
            message, payload = self._receive()
            if isinstance(message, Done):
                self._open.discard(message.spec)
                return message
            if isinstance(message, KernelMessage):
                if hashlib.sha256(payload).hexdigest() != message.digest:
                    raise HostError("A candidate arrived damaged", hint="Tune again")
                self.send(Want(count=1))
                return message, payload
        return None

    def send(self, message: FromClient) -> None:
        self._on_sent(message)
        self._socket.send(encode(message))

    def _receive(self) -> tuple[FromServer, bytes]:
        try:
            frame = self._socket.recv(timeout=TIMEOUT)
        except (ConnectionClosed, TimeoutError) as error:
            raise HostError(f"The tuning server is gone: {error}", hint="Tune again") from error
        message, payload = decode_from_server(frame if isinstance(frame, bytes) else b"")
        if isinstance(message, Error):
            raise HostError(message.message, hint=message.hint, **message.facts)
        return message, payload
