"""A connection as uvicorn's protocols see it, with the limits of the front (connection_limits.py).

Input: uvicorn's protocols for HTTP and WebSockets.  Output: the same, which tell the front what
they wait for, and end what floods, is malformed or is too long: with an answer, without traces in
the log.  They parse nothing themselves.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from tilewright.server.connection_limits import ConnectionLimiter, State, Wait
from tilewright.server.rate_limits import TokenBucket

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent

#: Frames with less data count as small.
SMALL = 1024
#: Bytes that are parsed before the budget of frames is looked at.
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
        # else uvicorn logs an answer instead of a socket, such as 421, as the app's fault
        self.handshake_complete |= self.close_sent

    def pause_writing(self) -> None:
        """Nothing is read either: answers to pings would pile up."""
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
    """An answer without a request that the app knows of; then the end."""
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nConnection: close\r\nContent-Length: 0\r\n"
    transport.write(f"{head}\r\n".encode())
    transport.close()
