"""Clients that are silent, slow, too many or malformed: they are ended, and others are served."""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, cast

import pytest
from helpers.waiting import until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tilewright.server import BackgroundServer
from tilewright.server import connection_limits as front_module
from tilewright.server.connection_limits import (
    OWN,
    ConnectionLimiter,
    ConnectionLimits,
    State,
    Wait,
    within_descriptors,
)
from tilewright.server.run import HttpConnection

#: Seconds in which something must happen, however busy the machine is.
PATIENCE = 300.0
#: No client of a test is quick enough for these, except where it need not be.
SHORT = replace(OWN, head=0.3, body=0.3, take=0.3, close=0.3, look=0.05)
GET = b"GET /quick HTTP/1.1\r\nHost: localhost\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
SOCKET = (
    b"GET /socket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(bytes(16)) + b"\r\n"
)
#: An endless answer has ended.
ENDED = threading.Event()
TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\n"


async def quick(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("quick")


async def body(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


async def slow(request: Request) -> PlainTextResponse:
    while not await request.is_disconnected():
        await asyncio.sleep(0.01)
    return PlainTextResponse("")


async def endless(_request: Request) -> StreamingResponse:
    async def pieces() -> Any:
        try:
            while True:
                await asyncio.sleep(0)
                yield bytes(1 << 16)
        finally:
            ENDED.set()

    return StreamingResponse(pieces())


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    try:
        while True:
            await websocket.send_bytes(await websocket.receive_bytes())
    except (WebSocketDisconnect, KeyError):
        return


APP = Starlette(
    routes=[
        Route("/quick", quick),
        Route("/body", body, methods=["POST"]),
        Route("/slow", slow),
        Route("/endless", endless),
        WebSocketRoute("/socket", echo),
    ]
)


def connected(server: BackgroundServer, first: bytes = b"") -> socket.socket:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    plain = socket.create_connection((host, int(port)), PATIENCE)
    plain.sendall(first)
    return plain


def rest(plain: socket.socket) -> bytes:
    """All that the server sends until it closes the connection."""
    got = b""
    try:
        while piece := plain.recv(1 << 16):
            got += piece
    except ConnectionError:
        pass
    return got


def until_cut(plain: socket.socket, data: bytes, pause: float = 0) -> bool:
    """Sends this again and again until the connection is closed."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            plain.sendall(data)
        except ConnectionError:
            return True
        time.sleep(pause)
    return False


def frame(opcode: int, data: bytes = b"", final: bool = True) -> bytes:
    """RFC 6455, 5.2; up to 125 bytes, under a mask of zeros."""
    return bytes([opcode | final << 7, 0x80 | len(data), 0, 0, 0, 0]) + data


def opened(server: BackgroundServer) -> socket.socket:
    plain = connected(server, SOCKET + b"\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += plain.recv(1)
    assert answer.startswith(b"HTTP/1.1 101 ")
    return plain


class Clock:
    """Of the front: it stands until the test lets it go, and then moves with each look."""

    def __init__(self) -> None:
        self.now, self.goes, self.heard = 0.0, False, b""

    def monotonic(self) -> float:
        self.now += self.goes
        return self.now

    def go_after(self, sent: bytes) -> None:
        """Once the server has read that."""
        until(lambda: self.heard.endswith(sent))
        self.goes = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(front_module, "time", made)
    received = HttpConnection.data_received

    def noted(self: HttpConnection, data: bytes) -> None:
        received(self, data)
        made.heard += data

    monkeypatch.setattr(HttpConnection, "data_received", noted)
    return made


@pytest.fixture
def short(clock: Clock) -> Iterator[BackgroundServer]:
    with BackgroundServer(APP, limits=replace(SHORT, frames=50)) as server:
        yield server


# ---- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "answer"),
    [(b"", b""), (GET, TOO_LATE), (SOCKET, TOO_LATE), (POST, TOO_LATE), (POST + b"x", TOO_LATE)],
    ids=["silent", "half a request", "half a handshake", "no body", "half a body"],
)
def test_silent_and_half_sent_requests_end(
    short: BackgroundServer, clock: Clock, sent: bytes, answer: bytes
) -> None:
    with connected(short, sent) as plain:
        clock.go_after(sent)
        assert rest(plain).startswith(answer)
        assert bool(answer) == bool(sent)


@pytest.mark.parametrize("begin", [GET, POST], ids=["head", "body"])
def test_a_trickle_ends(short: BackgroundServer, clock: Clock, begin: bytes) -> None:
    """Every byte is news, but the time is that of the whole request."""
    with connected(short, begin + b"X-") as plain:
        clock.go_after(begin + b"X-")
        assert until_cut(plain, b"a", pause=0.02)


def test_a_body_that_nobody_asked_for(short: BackgroundServer, clock: Clock) -> None:
    with connected(short, POST.replace(b"/body", b"/quick")) as plain:
        begun = plain.recv(1)
        clock.goes = True
        assert (begun + rest(plain)).startswith(b"HTTP/1.1 405 ")


def test_a_client_that_stops_reading(short: BackgroundServer, clock: Clock) -> None:
    with connected(short, b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n") as plain:
        plain.recv(1)
        clock.goes = True
        assert ENDED.wait(PATIENCE)
        rest(plain)


class Fake:
    """A connection of a test."""

    def __init__(self, address: str = "192.0.2.1", state: State = (Wait.HEAD, None)) -> None:
        self.transport = cast(asyncio.Transport, self)
        self.address = address
        self.now = state
        self.ended: Wait | None = None
        self.aborted = False

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        return self.address, 1

    def abort(self) -> None:
        self.aborted = True

    def state(self) -> State:
        return self.now

    def end(self, wait: Wait) -> None:
        self.ended = wait


def test_time_counts_from_the_last_request(clock: Clock) -> None:
    front = ConnectionLimiter(ConnectionLimits(head=10))
    line = Fake()
    assert front.enter(line)
    begin = clock.now
    for second in range(1, 100, 8):
        line.now = Wait.HEAD, object()  # a request came and was answered
        front.look(begin + second)
        front.look(begin + second + 7)
    assert line.ended is None
    front.look(begin + 200)
    assert line.ended is Wait.HEAD


@pytest.mark.parametrize("wait", Wait)
def test_each_wait_has_its_time(clock: Clock, wait: Wait) -> None:
    limits = ConnectionLimits(head=10, body=20, take=30, close=40)
    front, line = ConnectionLimiter(limits), Fake(state=(wait, None))
    front.enter(line)
    begin = clock.now
    seconds = getattr(limits, wait.value, 1e9)
    front.look(begin + seconds - 1)
    assert line.ended is None
    front.look(begin + seconds + 1)
    assert line.ended is (None if wait is Wait.APP else wait)


# ---- number --------------------------------------------------------------------------------------


def test_a_network_with_too_many_connections_drops_its_oldest() -> None:
    front = ConnectionLimiter(ConnectionLimits(each=2))
    busy, first, second, other = Fake(), Fake("192.0.2.2"), Fake("192.0.2.3"), Fake("198.51.100.1")
    busy.now = Wait.APP, None
    assert all(front.enter(line) for line in (busy, first, other, second))
    assert [line.aborted for line in (busy, first, other, second)] == [False, True, False, False]
    front.leave(first.transport)  # as asyncio tells later
    second.now = Wait.APP, None
    assert not front.enter(Fake())
    front.leave(busy.transport)
    assert front.enter(Fake())


def test_a_full_server_drops_from_the_network_with_most() -> None:
    front = ConnectionLimiter(ConnectionLimits(connections=4))
    one, *many = Fake("198.51.100.1"), Fake(), Fake(), Fake()
    assert all(front.enter(line) for line in (one, *many, Fake("203.0.113.1")))
    assert [line.aborted for line in (one, *many)] == [False, True, False, False]
    for line in many:
        line.now = Wait.APP, None
    assert front.enter(Fake("203.0.113.2")), "others wait"
    assert one.aborted


def test_a_proxy_may_have_as_many_as_there_are() -> None:
    front = ConnectionLimiter(ConnectionLimits(each=1, connections=3), proxies=["10.0.0.0/8"])
    lines = [Fake("10.0.0.1"), Fake("::ffff:10.1.0.1"), Fake("10.0.0.1")]
    assert all(front.enter(line) for line in lines)
    assert not any(line.aborted for line in lines)
    assert front.enter(Fake("192.0.2.1"))
    assert lines[0].aborted


def test_there_is_room_while_others_are_silent() -> None:
    """Silent ones give way; connections in use do not, and the next is told so."""
    with BackgroundServer(APP, limits=replace(OWN, each=3)) as server, ExitStack() as stack:
        lines = [stack.enter_context(connected(server)) for _ in range(20)]
        answer = urllib.request.urlopen(server.url + "/quick", timeout=PATIENCE).read()
        assert answer == b"quick"
        assert rest(lines[0]) == b""
        for _ in range(3):
            # the answer comes once the server has the connection
            stack.enter_context(opened(server))
        refused = stack.enter_context(connected(server))
        assert rest(refused).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")


def test_connections_fit_the_limit_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _which, both: asked.append(both))
    for hard, connections in ((100_000, 4096), (1024, 448), (100, 1)):
        monkeypatch.setattr(resource, "getrlimit", lambda _which, hard=hard: (64, hard))
        assert within_descriptors(ConnectionLimits()).connections == connections
    assert asked == [(2 * 4096 + 128, 100_000), (1024, 1024), (100, 100)]


OUT_OF_FILES = """
import logging, os, resource
from starlette.applications import Starlette
from tilewright.server import serve

errors = 0

def count(record):
    global errors
    errors += 1
    return True

def ready(url):
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        for _ in range(10):
            os.close(held.pop())
    print(url, flush=True)

logging.getLogger("asyncio").addFilter(count)
serve(Starlette(), "127.0.0.1", 0, ready)
print(errors)
"""


def test_running_out_of_files_is_no_flood() -> None:
    pytest.importorskip("resource")
    process = subprocess.Popen(
        [sys.executable, "-c", OUT_OF_FILES],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        host, _, port = process.stdout.readline().strip().removeprefix("http://").rpartition(":")
        where = host, int(port)
        with ExitStack() as stack:
            for _ in range(30):
                stack.enter_context(socket.create_connection(where, PATIENCE))
            while "Too many open files" not in process.stderr.readline():
                pass
        with socket.create_connection(where, PATIENCE) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert rest(plain).startswith(b"HTTP/1.1 404 ")
    finally:
        process.terminate()
        errors, _ = process.communicate(timeout=PATIENCE)
    assert 0 < int(errors) < 100, "asyncio would try 2,048 times at once"


# ---- sockets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [b"Cookie: " + b"a" * 10_000, b"\r\n".join(b"X-%d: 1" % n for n in range(200))],
    ids=["a long one", "many"],
)
def test_a_handshake_with_too_much_of_headers_is_answered(
    short: BackgroundServer, header: bytes
) -> None:
    with connected(short, SOCKET + header + b"\r\n\r\n") as plain:
        assert rest(plain).startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")


def closes_with(plain: socket.socket) -> int:
    """The code of the close frame, the last of what comes."""
    got = rest(plain)
    at = got.rindex(b"\x88")
    return int.from_bytes(got[at + 2 : at + 4], "big")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(1, b"\xff"), 1007),
        (frame(1, b"\xf0\x9f", final=False) + frame(0, b"\x98"), 1007),
        (frame(2, final=False) + frame(0, final=False) * 500, 1008),
        (frame(2, b"x") * 500, 1008),
        (frame(9) * 500, 1008),
        (frame(10) * 500, 1008),
        (frame(3), 1002),
    ],
    ids=["no UTF-8", "no UTF-8 in two", "fragments", "messages", "pings", "pongs", "no opcode"],
)
def test_malformed_frames_and_floods_end_a_socket_quietly(
    short: BackgroundServer, sent: bytes, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), opened(short) as plain:
        plain.sendall(sent)
        assert closes_with(plain) == code
    assert [r for r in caplog.records if r.levelno >= logging.WARNING or r.exc_info] == []


def test_ordinary_messages_are_not_a_flood(short: BackgroundServer) -> None:
    text = frame(2, b"a", final=False) + frame(0, b"b", final=False) + frame(9) + frame(0, b"c")
    with opened(short) as plain:
        plain.sendall(text * 5)
        got = b""
        while got.count(b"abc") < 5:
            got += plain.recv(1000)


def test_answers_to_pings_do_not_pile_up(clock: Clock) -> None:
    """A client that sends pings and reads nothing: it is not read either, and ends."""
    with BackgroundServer(APP, limits=SHORT) as server, opened(server) as plain:
        clock.goes = True
        assert until_cut(plain, frame(9, bytes(125)) * 1000)
