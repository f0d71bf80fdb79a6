"""What clients and the world do wrong: each ends that one session, typed, and disturbs no other."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_call import Called
from tuning_client import Client, hello, report
from tuning_site import app, bundle, digest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tilewright.cli.workers import makers
from tilewright.server import BackgroundServer
from tilewright.server.session import Limits
from tilewright.server.sources import Bucket, Buckets, Sources, network
from tilewright.tuning.messages import (
    MOST_FROM_CLIENT,
    Bye,
    Result,
    Want,
    Welcome,
    encode,
)

SECONDS = 20.0

PROC = Path("/proc")


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with BackgroundServer(app()) as server:
        yield server.url


def stats(url: str) -> Any:
    with urllib.request.urlopen(url + "/api/stats", timeout=10) as answer:
        return json.loads(answer.read())


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


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


# ---- connections ---------------------------------------------------------------------------------

#: What a client does, one step after the other; it may be cut off behind each.
STEPS: list[Callable[[Client], object]] = [
    lambda c: None,
    lambda c: c.raw(good(specs=(0, 1))),
    lambda c: c.next(Welcome),
    lambda c: c.want(3),
    lambda c: c.kernel(),
    lambda c: c.kernel(),
    lambda c: c.result(0, 1),
    lambda c: c.want(64),
    lambda c: c.kernel(),
    lambda c: c.send(Bye()),
]


@pytest.mark.parametrize("count", range(len(STEPS)))
@pytest.mark.parametrize("polite", [True, False], ids=["closed", "cut"])
def test_a_connection_lost_anywhere_leaves_nothing(site: str, count: int, polite: bool) -> None:
    with Client(site) as client:
        for step in STEPS[: count + 1]:
            step(client)
        if not polite:
            # a reset, as of a device that loses its network or a tab that crashes
            linger = b"\1\0\0\0\0\0\0\0"
            client.socket.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            client.socket.socket.shutdown(socket.SHUT_RDWR)
            client.socket.socket.close()
    until(lambda: stats(site)["sessions"]["now"] == 0)
    with Client(site) as client:
        client.start(hello("m", digest()))
        client.want(1)
        client.kernel()


def test_a_client_that_says_nothing() -> None:
    limits = Limits(hello=0.2, idle=0.4)
    with BackgroundServer(app(limits=limits)) as server:
        with Client(server.url) as client:
            error, close = client.refusal()
            assert (error.code, close) == ("too-slow", 4408)
        with Client(server.url) as client:
            client.start(hello("m", digest()))
            error, close = client.refusal()
            assert (error.code, close) == ("too-slow", 4408)


def test_a_client_that_takes_nothing() -> None:
    """Its kernels do not pile up: the server sends no more than the network takes, and gives up."""
    real = makers(0)
    made = 0

    def built(*given: Any) -> Any:
        nonlocal made
        made += 1
        return replace(real.built(*given), module=bytes(4 << 20))

    site = app(makers=replace(real, built=built), limits=Limits(send=0.5))
    with BackgroundServer(site) as server:
        with socket.create_connection(server.url.removeprefix("http://").split(":")) as plain:
            handshake(plain, server.url)
            masked(plain, good())
            masked(plain, encode(Want(count=64)))
            until(lambda: stats(server.url)["refused"] == {"too-slow": 1})
        assert made < 10
        until(lambda: stats(server.url)["sessions"]["now"] == 0)


def handshake(plain: socket.socket, url: str) -> None:
    """Opens a WebSocket by hand, so that nothing reads from it."""
    plain.sendall(
        b"GET /api/tune HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert b" 101 " in plain.recv(100)


def masked(plain: socket.socket, data: bytes) -> None:
    """A binary frame (RFC 6455, 5.2) under a mask of zeros."""
    plain.sendall(b"\x82\xfe" + len(data).to_bytes(2, "big") + bytes(4) + data)


def test_a_flood_of_messages() -> None:
    with BackgroundServer(app(limits=Limits(messages=20))) as server:
        with Client(server.url) as client:
            client.start(hello("m", digest()))
            with contextlib.suppress(ConnectionClosed):
                for _ in range(200):
                    client.want(1)
            until(lambda: stats(server.url)["refused"] == {"too-many": 1})
        until(lambda: stats(server.url)["sessions"]["now"] == 0)


def test_more_sessions_than_there_are() -> None:
    with BackgroundServer(app(limits=Limits(sessions=2))) as server:
        with Client(server.url) as one, Client(server.url) as two:
            one.start(hello("m", digest()))
            two.start(hello("m", digest()))
            with Client(server.url) as third:
                error, close = third.refusal()
                assert (error.code, close) == ("busy", 4503)
            one.want(1)
            one.kernel()
        until(lambda: stats(server.url)["sessions"]["now"] == 0)
        with Client(server.url) as fourth:
            fourth.start(hello("m", digest()))


def test_one_network_cannot_take_all_sessions() -> None:
    with BackgroundServer(app(limits=Limits(each=2))) as server:
        with Client(server.url), Client(server.url):
            until(lambda: stats(server.url)["sessions"]["now"] == 2)
            with Client(server.url, address="127.0.0.9") as third:
                error, close = third.refusal()
                assert (error.code, close, error.facts["limit"]) == ("busy", 4503, 2)
            with Client(server.url, address="10.0.0.1") as other:
                other.start(hello("m", digest()))
        until(lambda: stats(server.url)["sessions"]["now"] == 0)
        with Client(server.url) as fourth:
            fourth.start(hello("m", digest()))


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),
        ("own", True),
        ("https://friend.example", True),
        ("https://x.example", False),
        ("http://[", False),
        ("null", False),
    ],
)
def test_pages_of_other_sites(origin: str | None, allowed: bool) -> None:
    site = app(origins=frozenset({"https://friend.example"}))
    with BackgroundServer(site) as server:
        sent = server.url if origin == "own" else origin
        refused = contextlib.nullcontext() if allowed else pytest.raises(InvalidStatus, match="403")
        with refused, Client(server.url, sent) as client:
            client.start(hello("m", digest()))


# ---- the server ends -----------------------------------------------------------------------------

SERVER = """
import sys
from pathlib import Path
from tilewright.cli import main
options = ["--json", "--compile-workers", "1", "--store", sys.argv[3]]
main(["serve", "m=" + sys.argv[1], "--port", sys.argv[2], *options])
"""


def serve(port: int = 0, store: str = "") -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(bundle()), str(port), store],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["url"]


def test_a_server_that_is_killed_and_started_again() -> None:
    """The client's hello has all that the new server needs; nothing comes twice."""
    process, url = serve()
    tried: list[int] = []
    try:
        with Client(url) as client:
            offer = client.start(hello("m", digest())).kernels[0]
            client.want(64)
            for _ in range(5):
                tried.append(client.kernel().candidate)
            process.kill()
            assert client.closed() == 1006
        process.wait(SECONDS)
        process, url = serve(int(url.rpartition(":")[2]))
        with Client(url) as client:
            again = client.start(hello("m", digest(), tried={0: tuple(tried)})).kernels[0]
            assert again == offer
            rest = [m.candidate for m in client.all_of(1)]
        assert sorted(tried + rest) == list(range(1, offer.count))
    finally:
        process.kill()
        process.communicate()


def test_a_server_that_is_asked_to_end() -> None:
    process, url = serve()
    try:
        with Client(url) as client:
            client.start(hello("m", digest()))
            process.send_signal(signal.SIGTERM)
            assert client.closed() in (1012, 1001)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(not PROC.exists(), reason="no /proc to see processes in")
def test_the_workers_of_a_killed_server_end() -> None:
    process, url = serve()
    with Client(url) as client:
        client.start(hello("m", digest()))
        client.want(1)
        client.kernel()
        children = children_of(process.pid)
        assert children
        process.kill()
    process.communicate()
    until(lambda: not any(alive(child) for child in children))


def children_of(parent: int) -> list[int]:
    states = {int(p.parent.name): state(int(p.parent.name)) for p in PROC.glob("[0-9]*/stat")}
    return [process for process, (_, above) in states.items() if above == parent]


def alive(process: int) -> bool:
    return state(process)[0] not in ("", "Z")


def state(process: int) -> tuple[str, int]:
    """A letter, and the process above; nothing of one that is gone."""
    try:
        text = (PROC / str(process) / "stat").read_text()
    except OSError:
        return "", 0
    letter, above, *_ = text.rpartition(")")[2].split()
    return letter, int(above)


# ---- sources and limits --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "shared"),
    [
        ("192.0.2.77", "192.0.2.0/24"),
        ("::ffff:192.0.2.77", "192.0.2.0/24"),
        ("2001:db8:1:2:3::4", "2001:db8:1::/48"),
        ("fe80::1%eth0", "fe80::/48"),
        ("not an address", ""),
        ("", ""),
    ],
)
def test_what_of_an_address_counts(address: str, shared: str) -> None:
    assert network(address) == shared


def test_sources_cannot_be_linked_over_days_and_processes_agree() -> None:
    days = iter(["2026-01-01"] * 4 + ["2026-01-02"])
    day = "2026-01-01"
    one, two = (Sources("secret", lambda: day) for _ in range(2))
    name = one.name("192.0.2.1", "https://a.example")
    assert name == two.name("192.0.2.200", "https://a.example")
    assert name != one.name("192.0.3.1", "https://a.example")
    assert name != one.name("192.0.2.1", "https://b.example")
    assert name != Sources("other", lambda: day).name("192.0.2.1", "https://a.example")
    assert Sources("", lambda: day).name("::1", "") != Sources("", lambda: day).name("::1", "")
    own = Sources("", lambda: next(days))
    assert len({own.name("::1", "") for _ in range(4)}) == 1
    assert own.name("::1", "") != name
    day = "2026-01-02"
    later = one.name("192.0.2.1", "https://a.example")
    assert later != name
    day = "2026-01-01"  # the clock goes back: the same secret names the same day alike
    assert one.name("192.0.2.1", "https://a.example") == name


def test_a_clock_that_goes_back_gives_no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits use the monotonic clock: the wall clock may jump as it likes."""
    monkeypatch.setattr(time, "time", lambda: 0.0)
    bucket = Bucket(rate=0.0, burst=2)
    assert [bucket.take() for _ in range(3)] == [True, True, False]


def test_one_source_does_not_use_up_anothers_tokens() -> None:
    buckets = Buckets(rate=0.0, burst=1, most=2)
    assert buckets.take("a")
    assert not buckets.take("a")
    assert buckets.take("b")
    assert buckets.take("c")  # and "a", the least recent, is forgotten
    assert buckets.take("a")


def test_done_after_a_hello_without_kernels(site: str) -> None:
    with Client(site) as client:
        assert client.start(hello("m", digest(), ())).kernels == ()
        client.want(1)
        client.bye()
        assert client.closed() == 1000


# ---- the command line ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("store", "code", "error"),
    [("mysql://x/y", 2, "usage"), ("sqlite:///{here}/no.db", 10, "store-corrupt")],
)
def test_a_store_that_cannot_be_used_is_told_at_once(
    store: str, code: int, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no.db").write_bytes(b"this is no database" * 100)
    url = store.format(here=tmp_path)
    called = Called(capsys, "serve", bundle(), "--port", 0, "--store", url, "--json")
    assert (called.code, called.json["error"]["code"]) == (code, error)


def test_a_store_that_is_down_does_not_keep_the_server_from_serving() -> None:
    process, url = serve(0, "postgresql+psycopg://nobody@127.0.0.1:1/none")
    try:
        with urllib.request.urlopen(url + "/bundles/m/bundle.json", timeout=SECONDS) as answer:
            assert answer.status == 200
        with Client(url) as client:
            offer = client.start(hello("m", digest())).kernels[0]
            message = report(offer, {3: 1.4})
            client.send(message)
            assert client.ack(message.nonce).reason == "later"
            client.want(1)
            client.kernel()
    finally:
        process.kill()
        process.communicate()
