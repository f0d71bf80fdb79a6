"""A line between page and server that damages frames: the model's outputs stay as they are."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random

import pytest
from helpers.waiting import until
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilewright.cli.compile_workers import makers
from tilewright.server import BackgroundServer, Tuning, create_app

from .bundles import Library
from .conftest import Visit
from .test_tuning import close

pytestmark = pytest.mark.by_turns

X = {"x": [(n * 7 % 13) / 8 - 0.5 for n in range(96 * 256)]}


def flipped(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def number_changed(header: bytes, random: Random) -> bytes:
    """Still a valid message: one of its numbers is another."""
    message = json.loads(header)
    name = random.choice(["spec", "candidate", "tiles", "scratch", "bytes"])
    message[name] += random.choice([1, -1, 1000])
    return json.dumps(message).encode()


def damaged(frame: bytes, how: str, random: Random) -> list[bytes]:
    """The frames that arrive instead."""
    (length,) = struct.unpack_from("<I", frame)
    header, payload = frame[4 : 4 + length], frame[4 + length :]
    match how:
        case "payload":
            payload = flipped(payload, random) if payload else payload
        case "header":
            header = flipped(header, random)
        case "number":
            header = number_changed(header, random)
        case "length":
            return [flipped(frame[:4], random) + frame[4:]]
        case "cut":
            return [frame[: random.randrange(len(frame))]]
        case "twice":
            return [frame, frame]
    return [struct.pack("<I", len(header)) + header + payload]


class Damaging:
    """An ASGI app around the server's; it damages the first candidate, and two in five."""

    def __init__(self, app: ASGIApp, how: str) -> None:
        self.app, self.how, self.random, self.count = app, how, Random(how), 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def pass_on(message: Message) -> None:
            frame = message.get("bytes")
            if (
                frame is None
                or b'"type":"kernel"' not in frame
                or (self.count and self.random.random() > 0.4)
            ):
                await send(message)
                return
            self.count += 1
            for part in damaged(frame, self.how, self.random):
                await send(message | {"bytes": part})

        await self.app(scope, receive, pass_on if scope["type"] == "websocket" else send)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", ["payload", "header", "number", "length", "cut", "twice"])
def test_no_output_changes(visit: Visit, library: Library, tmp_path: Path, how: str) -> None:
    app = create_app({"poor": library.path("poor")}, tuning=Tuning(makers=makers(0)))
    line = Damaging(app, how)
    with BackgroundServer(line) as server:
        page = visit(f"{server.url}/host/host.html")
        ask = {"url": f"{server.url}/bundles/poor/", "inputs": X}
        page.do("tuneOnline", **ask, options={"rounds": 4}, hold=-1)
        until(lambda: line.count)
        # a candidate that was lost on the way is waited for
        found = page.do("tunedOnline", most=3000)
        errors = page.do("log")["errors"]
    assert close(found)
    assert [e for e in errors if "WebSocket" not in e] == []
    if "error" in found:
        assert found["error"]["code"] in {"host", "network", "input"}, found["text"]
