"""What clients say wrong: each ends that one session, typed, and disturbs no other."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from tuning_client import Client, hello
from tuning_site import bundle, digest

from tilewright.cli.compile_workers import makers
from tilewright.server import BackgroundServer
from tilewright.tuning.messages import (
    MOST_FROM_CLIENT,
    Result,
    Want,
    Welcome,
    encode,
)


def good(**changes: Any) -> bytes:
    return encode(replace_in(hello("m", digest()), **changes))


def replace_in(message: Any, **changes: Any) -> Any:
    return type(message)(**({f: getattr(message, f) for f in message.__struct_fields__} | changes))


def frame(text: str) -> bytes:
    return len(text.encode()).to_bytes(4, "little") + text.encode()


WANT = encode(Want(count=1))

#: (frames, code of the error, close code)
WRONG: dict[str, tuple[Callable[[], list[bytes | str]], str, int]] = {
    "empty": (lambda: [b""], "malformed", 4400),
    "noise": (lambda: [os.urandom(64)], "malformed", 4400),
    "cut off": (lambda: [good()[:-1]], "malformed", 4400),
    "text": (lambda: ["hello"], "malformed", 4400),
    "too large": (lambda: [b"\0" * (MOST_FROM_CLIENT + 1)], "too-large", 4413),
    "unknown type": (lambda: [frame('{"type":"shout"}')], "malformed", 4400),
    "unknown field": (lambda: [frame('{"type":"bye","id":7}')], "malformed", 4400),
    "want before hello": (lambda: [WANT], "malformed", 4400),
    "hello twice": (lambda: [good(), good()], "malformed", 4400),
    "payload": (lambda: [good() + b"\0asm"], "malformed", 4400),
    "a kernel twice": (lambda: [good(specs=(1, 1))], "malformed", 4400),
    "a share too few": (lambda: [good(specs=(0, 1), shares=(0.5,))], "malformed", 4400),
    "protocol": (lambda: [good(protocol=2)], "other-version", 4409),
    "another build": (lambda: [good(digest="0" * 64)], "other-version", 4409),
    "bundle": (lambda: [good(bundle="../m")], "unknown", 4404),
    "class": (lambda: [good(device="wasm-vax")], "unknown", 4404),
    "class without code": (lambda: [good(device="webgpu-nvidia")], "unknown", 4404),
    "variant": (lambda: [good(variant="arm")], "unknown", 4404),
    "kernel": (lambda: [good(specs=(0, 99))], "unknown", 4404),
    "result of no kernel": (
        lambda: [good(), encode(Result(spec=3, candidate=1, verdict="same"))],
        "unknown",
        4404,
    ),
    "result of no candidate": (
        lambda: [good(), encode(Result(spec=0, candidate=4000, verdict="same"))],
        "unknown",
        4404,
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_it_is_told_and_closed_and_no_other_session_notices(site: str, what: str) -> None:
    frames, code, close = WRONG[what]
    with Client(site) as other:
        other.start(hello("m", digest()))
        other.want(1)
        other.kernel()
        with Client(site) as client:
            for each in frames():
                client.raw(each)
            error = client.receive()
            if isinstance(error, Welcome):
                error = client.receive()
            assert (error.code, client.closed()) == (code, close)  # type: ignore[union-attr]
        other.want(1)
        other.kernel()


def test_an_error_does_not_name_the_servers_files(site: str) -> None:
    with Client(site) as client:
        client.raw(good(digest="0" * 64))
        error, _ = client.refusal()
    assert str(bundle()) not in json.dumps([error.message, error.hint, error.facts])


def test_a_broken_bundle_is_refused_and_the_others_are_tuned(tmp_path: Any) -> None:
    from tilewright.server import Tuning, create_app

    (tmp_path / "bundle.json").write_text("{")
    folders = {"m": bundle(), "broken": tmp_path, "gone": tmp_path / "none"}
    site = create_app(folders, tuning=Tuning(makers=makers(0)))
    with BackgroundServer(site) as server:
        for name in ("broken", "gone"):
            with Client(server.url) as client:
                client.send(hello(name, digest()))
                assert client.refusal()[1] == 4404
        with Client(server.url) as client:
            client.start(hello("m", digest()))
