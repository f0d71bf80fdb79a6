"""A client of the tuning socket, for tests: it sends and receives frames, and measures nothing.

Input: the URL of a server.  Output: `Client`, a context with `hello`, `want`, `next` and the rest.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tuning_site import digest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tilewright.tuning.messages import (
    MOST_FROM_SERVER,
    PROTOCOL,
    Ack,
    Bye,
    Done,
    Error,
    FromClient,
    FromServer,
    GoldAnswer,
    Hello,
    KernelMessage,
    Offer,
    Report,
    Result,
    Vote,
    Want,
    Welcome,
    decode_from_server,
    encode,
)

M = TypeVar("M", bound=FromServer)
SECONDS = 300.0


def hello(bundle: str, digest: str, specs: Iterable[int] = (0,), **changes: Any) -> Hello:
    given: dict[str, Any] = {
        "protocol": PROTOCOL,
        "bundle": bundle,
        "digest": digest,
        "device": "wasm-x86-relaxed-32k",
        "browser": "chromium",
        "variant": "x86",
        "specs": tuple(specs),
    }
    return Hello(**(given | changes))


def postponed(client: Client) -> Report:
    """Begins a session and sends a report that the server asks for again, as it cannot store it."""
    offer = client.start(hello("m", digest())).kernels[0]
    message = report(offer, {3: 1.4})
    client.send(message)
    assert client.ack(message.nonce).reason == "later"
    return message


def report(offer: Offer, ratios: dict[int, float], **changes: Any) -> Report:
    """A vote; a question is answered as an honest device would that measured these ratios."""
    gold = offer.gold and GoldAnswer(a=offer.gold.a, b=offer.gold.b, ratio=answer(offer, ratios))
    given: dict[str, Any] = {
        "nonce": secrets.token_hex(16),
        "spec": offer.spec,
        "checksum": offer.checksum,
        "top": tuple(Vote(candidate=c, ratio=r) for c, r in ratios.items()),
        "gold": gold,
    }
    return Report(**(given | changes))


def answer(offer: Offer, ratios: dict[int, float]) -> float:
    """Time of a question's `b` over that of its `a`; slow if it is a gold question."""
    assert offer.gold is not None
    asked = offer.gold.b
    return 3.0 if asked >= offer.count else ratios.get(0, 1.0) / ratios.get(asked, 1.0)


class Client:
    """address: what a proxy on the server's machine says of the client; host: said to be asked;
    source: the address that the connection comes from."""

    def __init__(
        self,
        url: str,
        origin: str | None = None,
        *,
        address: str = "127.0.0.1",
        host: str | None = None,
        source: str = "127.0.0.1",
    ) -> None:
        self.payload = b""
        at = urlsplit(url)
        server = at.hostname or "", at.port or 80
        self._connection = connect(
            f"ws://{host or at.netloc}/api/tune",
            sock=socket.create_connection(server, SECONDS, (source, 0)),
            compression=None,
            origin=origin,  # type: ignore[arg-type]
            additional_headers={"X-Forwarded-For": address},
            max_size=MOST_FROM_SERVER,
            close_timeout=2,
        )

    def __enter__(self) -> Client:
        self.socket: ClientConnection = self._connection.__enter__()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._connection.__exit__(None, None, None)

    def send(self, message: FromClient) -> None:
        self.socket.send(encode(message))

    def raw(self, frame: bytes | str) -> None:
        self.socket.send(frame)

    def want(self, count: int) -> None:
        self.send(Want(count=count))

    def result(self, spec: int, candidate: int, ratio: float = 1.0) -> None:
        verdict = "faster" if ratio > 1 else "slower"
        self.send(
            Result(spec=spec, candidate=candidate, verdict=verdict)  # type: ignore[arg-type]
        )

    def bye(self) -> None:
        self.send(Bye())

    def receive(self, seconds: float = SECONDS) -> FromServer:
        frame = self.socket.recv(timeout=seconds)
        assert isinstance(frame, bytes)
        message, self.payload = decode_from_server(frame)
        return message

    def next(self, kind: type[M], seconds: float = SECONDS) -> M:
        """The next message, which must be of this kind."""
        message = self.receive(seconds)
        assert isinstance(message, kind), message
        return message

    def start(self, first: Hello) -> Welcome:
        self.send(first)
        return self.next(Welcome)

    def kernel(self) -> KernelMessage:
        """The next candidate; its module is whole."""
        message = self.receive()
        while isinstance(message, Done):
            message = self.receive()
        assert isinstance(message, KernelMessage), message
        assert hashlib.sha256(self.payload).hexdigest() == message.digest
        return message

    def ack(self, nonce: str) -> Ack:
        """The answer to this report; candidates may come before it."""
        while True:
            message = self.receive()
            if isinstance(message, Ack) and message.nonce == nonce:
                return message

    def all_of(self, count: int, credit: int = 8) -> list[KernelMessage]:
        """Every candidate, until so many kernels are done."""
        found: list[KernelMessage] = []
        done = 0
        self.want(credit)
        while done < count:
            message = self.receive()
            if isinstance(message, Done):
                done += 1
            elif isinstance(message, KernelMessage):
                found.append(message)
                self.result(message.spec, message.candidate)
                self.want(1)
        return found

    def refusal(self) -> tuple[Error, int]:
        """What the server says last, and its close code."""
        told = self.next(Error)
        return told, self.closed()

    def closed(self) -> int:
        try:
            while True:
                self.socket.recv(timeout=SECONDS)
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else 1006


def handshake(plain: socket.socket, url: str) -> None:
    """Opens a WebSocket by hand, so that nothing reads from it."""
    plain.sendall(
        b"GET /api/tune HTTP/1.1\r\nHost: localhost\r\n"
        b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert b" 101 " in plain.recv(100)


def masked(plain: socket.socket, data: bytes) -> None:
    """A binary frame (RFC 6455, 5.2) under a mask of zeros."""
    plain.sendall(b"\x82\xfe" + len(data).to_bytes(2, "big") + bytes(4) + data)
