"""Runs the app: in the foreground until a signal, or in a thread for hosts and tests.

Input: an ASGI app, an address.  Output: a running server.  The port is bound before anything else
happens, and shutting down takes bounded time.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from types import FrameType, TracebackType

import uvicorn
from starlette.types import ASGIApp

from tilewright.base.errors import PortInUse, TilewrightError, UsageError
from tilewright.server.connection_limits import (
    OWN,
    STRANGERS,
    ConnectionLimiter,
    ConnectionLimits,
    within_descriptors,
)
from tilewright.server.connections import HttpConnection, WebSocketConnection
from tilewright.server.logs import deduplicated_log

SHUTDOWN_SECONDS = 3
#: Connections that the system keeps until they are accepted.
QUEUE = 1024
#: Connections accepted before anything else happens: asyncio logs as many errors at once when file
#: descriptors run out, and the front hears of a connection only afterwards.
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
    """uvicorn without logs, with a callback when it accepts connections; the app's shutdown always
    runs."""

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
            listener.listen(QUEUE)  # to asyncio, both numbers are one
        self._watch = asyncio.create_task(self._front.watch())
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
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
