"""Runs the app: in the foreground until a signal, or in a thread for hosts and tests.

Input: an ASGI app, an address.  Output: a running server.  The port is bound before anything else
happens, and shutting down takes bounded time.

Connections are uvicorn's protocols for HTTP and WebSockets, with the limits of connection_limits.py
added.  They report what they wait for, and close connections whose messages are malformed, too long
or too many, with an answer and without a traceback in the log. uvicorn does all parsing.  Repeated
lines are left out of the log and counted.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from tilewright.base.errors import PortInUse, TilewrightError, UsageError
from tilewright.server.chat_completions import ENDING
from tilewright.server.connection_limits import (
    OWN,
    STRANGERS,
    ConnectionLimiter,
    ConnectionLimits,
    State,
    Wait,
    within_descriptors,
)
from tilewright.server.rate_limits import TokenBucket

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent

SHUTDOWN_SECONDS = 3
#: Connections that the system keeps until they are accepted.
QUEUE = 1024
#: Connections that asyncio accepts in a row.  If file descriptors run out, it logs this number of
#: errors at once, and the limits apply only after each row.
ACCEPTED_AT_ONCE = 1


def serve(
    app: ASGIApp,
    host: str,
    port: int,
    on_ready: Callable[[str], None],
    limits: ConnectionLimits = STRANGERS,
    proxies: Iterable[str] = (),
) -> None:
    """Serves until SIGINT or SIGTERM; `on_ready` gets the URL once connections are accepted.

    proxies: addresses of reverse proxies, whose connections are not limited per network

    Raises PortInUse, or UsageError for an address that cannot be bound.
    """
    listener = listen(host, port)
    with deduplicated_log():
        front = ConnectionLimiter(within_descriptors(limits), proxies)
        server = _Server(app, lambda: on_ready(_url(host, listener)), front)
        with _signals(server):
            server.run([listener])


class BackgroundServer:
    """The app in a thread of its own: `with BackgroundServer(app) as server: … server.url`.

    Port 0 takes a free one.  Raises as `serve`.
    """

    def __init__(
        self, app: ASGIApp, host: str = "127.0.0.1", port: int = 0, limits: ConnectionLimits = OWN
    ) -> None:
        self._ready = threading.Event()
        self._listener = listen(host, port)
        self.url = _url(host, self._listener)
        self._server = _Server(app, self._ready.set, ConnectionLimiter(limits))
        self._thread = threading.Thread(
            target=self._server.run, args=([self._listener],), name="tilewright-server", daemon=True
        )

    def __enter__(self) -> BackgroundServer:
        self._thread.start()
        while not self._ready.wait(0.05):
            if not self._thread.is_alive():
                raise TilewrightError("The server did not start")
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join(SHUTDOWN_SECONDS + 2)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.  It listens at once: until then SO_REUSEADDR lets others bind the port.

    Raises PortInUse, UsageError.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, OverflowError, UnicodeError) as error:
        raise UsageError(
            f"Cannot serve on {host}:{port}", hint="Give another --host or --port", reason=error
        ) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(QUEUE)
    except OSError as error:
        listener.close()
        raise _address_error(error, host, port) from error
    return listener


def _address_error(error: OSError, host: str, port: int) -> TilewrightError:
    if error.errno == errno.EADDRINUSE:
        return PortInUse(
            f"Port {port} is in use",
            hint="Stop the other program, choose another --port, or --port 0 for any free one",
            host=host,
            port=port,
        )
    return UsageError(
        f"Cannot serve on {host}:{port}: {error.strerror}",
        hint="Choose another --host or --port",
        host=host,
        port=port,
    )


def _url(host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    # Browsers cannot open a wildcard address, and isolation needs a secure context, which plain
    # HTTP is only on localhost.
    shown = {"0.0.0.0": "localhost", "::": "localhost", "": "localhost"}.get(host, host)
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


class _Server(uvicorn.Server):
    """uvicorn without logs, with a callback when it accepts connections.  The app's shutdown runs
    even after a forced exit."""

    def __init__(
        self, app: ASGIApp, on_ready: Callable[[], None], front: ConnectionLimiter
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=partial(HttpConnection, front),  # type: ignore[arg-type]
                ws=partial(WebSocketConnection, front),  # type: ignore[arg-type]
                backlog=ACCEPTED_AT_ONCE,
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                lifespan="auto",
                # app.py reads X-Forwarded-For, from named proxies only
                proxy_headers=False,
                ws_max_size=front.limits.message,
                # A busy page cannot answer a ping, and the data does not compress.
                ws_ping_interval=None,
                ws_per_message_deflate=False,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            )
        )
        self._on_ready = on_ready
        self._front = front

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(QUEUE)  # asyncio set it to ACCEPTED_AT_ONCE
        self._watch = asyncio.create_task(self._front.watch())
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if isinstance(ending := self.lifespan.state.get(ENDING), asyncio.Event):
            ending.set()
        await super().shutdown(sockets)
        self._watch.cancel()
        if self.force_exit:  # uvicorn then skips this, and a hanging compile worker would stay
            await self.lifespan.shutdown()


@contextmanager
def _signals(server: _Server) -> Generator[None]:
    """The first SIGINT or SIGTERM ends the server gracefully, the second one at once.

    uvicorn does the same, but then raises the signal again: with Python's default handlers the
    process would die of it instead of ending with code 0.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    before = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


#: The most lines of one kind in a burst, and per second after that.
BURST, RATE = 20, 0.1


class RepeatFilter(logging.Filter):
    """Drops log lines beyond the rate for their kind.  Lines are of one kind if the same line of
    code logs them, for any client, since one client may have many addresses.  The next line of a
    kind tells how many were dropped."""

    def __init__(self, rate: float = RATE, burst: int = BURST) -> None:
        super().__init__()
        self._rate = rate
        self._burst = burst
        self._buckets: dict[tuple[str, int], TokenBucket] = {}
        self._left_out: Counter[tuple[str, int]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        # The server ended while a client still received its answer; this is not an error.
        if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
            return False
        kind = record.pathname, record.lineno
        bucket = self._buckets.setdefault(kind, TokenBucket(self._rate, self._burst))
        if not bucket.take():
            self._left_out[kind] += 1
            return False
        if left_out := self._left_out.pop(kind, 0):
            record.msg = f"{record.getMessage()} ({left_out} lines like this were left out)"
            record.args = ()
        return True


@contextmanager
def deduplicated_log() -> Iterator[None]:
    """Writes the log to stderr, sparingly; a program that set up its own log keeps that."""
    root = logging.getLogger()
    if root.handlers:
        yield
        return
    handler = logging.StreamHandler()
    handler.addFilter(RepeatFilter())
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


#: Frames with less data count as small.
SMALL = 1024
#: Bytes that are parsed between two checks of the number of frames.
PIECE = 1 << 14


class HttpConnection(H11Protocol):
    def __init__(self, front: ConnectionLimiter, **given: Any) -> None:
        super().__init__(**given)
        self._front = front

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._front.enter(self):
            _answer(transport, HTTPStatus.SERVICE_UNAVAILABLE)

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.leave(self.transport)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)

    def state(self) -> State:
        cycle = self.cycle
        if self.transport.is_closing():
            return Wait.CLOSE, None
        if cycle is None or cycle.response_complete:
            return Wait.HEAD, cycle
        if cycle.more_body:
            return Wait.BODY, cycle
        return (Wait.TAKE if self.flow.write_paused else Wait.APP), cycle

    def end(self, wait: Wait) -> None:
        begun = bool(self.conn.trailing_data[0]) if wait is Wait.HEAD else wait is Wait.BODY
        answered = wait is Wait.BODY and self.cycle.response_started
        if begun and not answered:
            _answer(self.transport, HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.abort()


class WebSocketConnection(WebSocketsSansIOProtocol):
    def __init__(self, front: ConnectionLimiter, **given: Any) -> None:
        super().__init__(**given)
        self._front = front
        rate = front.limits.frames
        self._bucket = TokenBucket(rate, 2 * rate)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._front.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.leave(self.transport)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE):
            if self.transport.is_closing():
                return
            super().data_received(data[start : start + PIECE])
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # longer than `websockets` reads, though not too long for h11
            self.handshake_complete = self.close_sent = True
            _answer(self.transport, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def handle_events(self) -> None:
        frames = [event for event in self.conn.events if isinstance(event, Frame)]
        if self._bucket.take(sum(len(frame.data) < SMALL for frame in frames)):
            super().handle_events()
        else:
            self._fail(CloseCode.POLICY_VIOLATION, "too many small frames")

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not _is_text(b"".join(self.frames)):
            self._fail(CloseCode.INVALID_DATA, "not UTF-8")
        else:
            super().send_receive_event_to_app()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        # else uvicorn would log an HTTP answer to a handshake, such as 421, as an error of the app
        self.handshake_complete |= self.close_sent

    def pause_writing(self) -> None:
        """Also stops reading: the answers to pings would pile up."""
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.read_paused:
            self.transport.resume_reading()

    def state(self) -> State:
        if self.transport.is_closing():
            return Wait.CLOSE, None
        if not self.handshake_complete:
            return Wait.HEAD, None
        return (Wait.APP if self.writable.is_set() else Wait.TAKE), None

    def end(self, wait: Wait) -> None:
        del wait
        self.transport.abort()

    def _fail(self, code: CloseCode, reason: str) -> None:
        self.frames = []
        self.conn.fail(code, reason)
        self.handle_parser_exception()


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _answer(transport: asyncio.Transport, status: HTTPStatus) -> None:
    """Sends an answer that the app has no part in, and closes the connection."""
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nConnection: close\r\nContent-Length: 0\r\n"
    transport.write(f"{head}\r\n".encode())
    transport.close()
