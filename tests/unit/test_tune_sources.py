"""Who reports, without knowing who: networks, proxies, sites, and limits for each."""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from typing import Any

import pytest
from cli_call import Called
from helpers.waiting import until
from starlette.testclient import TestClient
from tuning_client import Client, hello, report
from tuning_site import app, bundle, digest, stats
from tuning_votes import counted, site, who
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from websockets.exceptions import InvalidStatus

from tilewright.server import BackgroundServer, tune
from tilewright.server.rate_limits import Pseudonyms, TokenBucket, TokenBuckets, network, trusted
from tilewright.server.session import SessionLimits
from tilewright.store import KernelStore
from tilewright.targets.device_classes import CLASSES


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
    one, two = (Pseudonyms("secret", lambda: day) for _ in range(2))
    name = one.name("192.0.2.1", "https://a.example")
    assert name == two.name("192.0.2.200", "https://a.example")
    assert name != one.name("192.0.3.1", "https://a.example")
    assert name != one.name("192.0.2.1", "https://b.example")
    assert name != Pseudonyms("other", lambda: day).name("192.0.2.1", "https://a.example")
    assert Pseudonyms("", lambda: day).name("::1", "") != Pseudonyms("", lambda: day).name(
        "::1", ""
    )
    own = Pseudonyms("", lambda: next(days))
    assert len({own.name("::1", "") for _ in range(4)}) == 1
    assert own.name("::1", "") != name
    day = "2026-01-02"
    later = one.name("192.0.2.1", "https://a.example")
    assert later != name
    day = "2026-01-01"  # the clock goes back: the same secret names the same day alike
    assert one.name("192.0.2.1", "https://a.example") == name


def test_a_date_that_goes_back_and_forth_gives_no_second_name() -> None:
    """Without a secret, too; and keys of days that are over do not pile up."""
    day = "2026-01-01"
    own = Pseudonyms("", lambda: day)
    first = own.name("192.0.2.1")
    day = "2026-01-02"
    second = own.name("192.0.2.1")
    assert second != first
    for _ in range(5):
        day = "2026-01-01"
        assert own.name("192.0.2.1") == first
        day = "2026-01-02"
        assert own.name("192.0.2.1") == second
    for day in ("2026-01-03", "2026-01-04", "2026-01-05"):  # noqa: B007
        own.name("192.0.2.1")
    day = "2026-01-01"
    assert own.name("192.0.2.1") != first


def test_a_clock_that_goes_back_gives_no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits use the monotonic clock: the wall clock may jump as it likes."""
    monkeypatch.setattr(time, "time", lambda: 0.0)
    bucket = TokenBucket(rate=0.0, burst=2)
    assert [bucket.take() for _ in range(3)] == [True, True, False]


def test_one_source_does_not_use_up_anothers_tokens() -> None:
    buckets = TokenBuckets(rate=0.0, burst=1, most=2)
    assert buckets.take("a")
    assert not buckets.take("a")
    assert buckets.take("b")
    assert buckets.take("c")  # and "a", the least recent, is forgotten
    assert buckets.take("a")


@pytest.fixture
def days(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What day it is for those who name sources."""
    now = [20_000]
    monkeypatch.setattr(tune, "Pseudonyms", partial(Pseudonyms, day=lambda: str(now[0])))
    return now


def test_sessions_of_several_days_are_one_voice_each_day(url: str, days: list[int]) -> None:
    def opened() -> KernelStore:
        return KernelStore.open(url, clock=lambda: days[0] * 86_400.0)

    with site(url, store=opened) as server, contextlib.ExitStack() as stack:
        clients = []
        for _ in range(6):
            client = stack.enter_context(Client(server.url, address=who(0)))
            clients.append((client, client.start(hello("m", digest())).kernels[0]))
            days[0] += 1
        for voices in (1, 2):
            answers = []
            for client, offer in clients:
                message = report(offer, {3: 1.9})
                client.send(message)
                answers.append(client.ack(message.nonce).reason)
            assert answers == ["", *["repeated"] * 5]
            assert counted(url) == (voices, voices)
            days[0] += 1


def test_sessions_of_yesterday_count_for_their_network(days: list[int]) -> None:
    with (
        BackgroundServer(app(limits=SessionLimits(each=2))) as server,
        Client(server.url) as one,
    ):
        one.start(hello("m", digest()))
        days[0] += 1
        with Client(server.url) as two:
            two.start(hello("m", digest()))
            days[0] += 1
            with Client(server.url) as three:
                assert three.refusal()[1] == 4503
        until(lambda: stats(server.url)["sessions"]["now"] == 1)


def test_one_network_cannot_take_all_sessions() -> None:
    with BackgroundServer(app(limits=SessionLimits(each=2))) as server:
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


@pytest.mark.parametrize(
    ("listed", "origin", "told"),
    [
        ("https://friend.example", "https://friend.example", "https://friend.example"),
        ("https://friend.example", "https://x.example", None),
        ("https://friend.example", None, None),
        ("*", "https://x.example", "https://x.example"),
        ("*", None, None),
    ],
)
def test_pages_of_other_sites_may_read_the_classes(
    listed: str, origin: str | None, told: str | None
) -> None:
    """Those that may connect, and nothing else of the server."""
    client = TestClient(app(origins=frozenset({listed})))
    headers = {"origin": origin} if origin else {}
    answer = client.get("/api/classes", headers=headers)
    assert answer.headers.get("access-control-allow-origin") == told
    assert answer.headers["vary"] == "origin"
    assert [row["id"] for row in answer.json()] == list(CLASSES)
    for path in ("/api/stats", "/api/standing", "/api/bundles"):
        others = client.get(path, headers=headers).headers
        assert "access-control-allow-origin" not in others


# ---- proxies -------------------------------------------------------------------------------------

OURS = ("10.0.0.1", "10.1.0.0/16", "fd00::/8")

#: (other end, headers, visitor)
HOPS: dict[str, tuple[str, list[tuple[str, str]], str]] = {
    "nobody is trusted": ("8.8.8.8", [("x-forwarded-for", "1.1.1.1")], "8.8.8.8"),
    "nothing is said": ("10.0.0.1", [], "10.0.0.1"),
    "by one": ("10.0.0.1", [("x-forwarded-for", "1.1.1.1")], "1.1.1.1"),
    "forged before it": ("10.0.0.1", [("x-forwarded-for", "9.9.9.9, 1.1.1.1")], "1.1.1.1"),
    "forged as ours": ("10.0.0.1", [("x-forwarded-for", "9.9.9.9, 10.0.0.1, 1.1.1.1")], "1.1.1.1"),
    "by two": ("10.0.0.1", [("x-forwarded-for", "9.9.9.9, 1.1.1.1,10.1.2.3")], "1.1.1.1"),
    "in two lines": (
        "10.0.0.1",
        [("x-forwarded-for", "9.9.9.9"), ("x-forwarded-for", "1.1.1.1, 10.1.0.9")],
        "1.1.1.1",
    ),
    "all are ours": ("10.0.0.1", [("x-forwarded-for", "10.1.0.1, 10.1.0.2")], "10.1.0.1"),
    "port": ("10.0.0.1", [("x-forwarded-for", "1.1.1.1:4711")], "1.1.1.1"),
    "IPv6": ("fd00::1", [("x-forwarded-for", "[2001:db8::1]:80")], "2001:db8::1"),
    "mapped": ("::ffff:10.0.0.1", [("x-forwarded-for", "::ffff:1.1.1.1")], "1.1.1.1"),
    "no address": ("10.0.0.1", [("x-forwarded-for", "1.1.1.1, unknown")], ""),
    "another header": ("10.0.0.1", [("forwarded", "for=1.1.1.1")], "10.0.0.1"),
    "no address at all": ("", [("x-forwarded-for", "1.1.1.1")], ""),
}


@pytest.mark.parametrize("what", HOPS)
def test_only_proxies_of_ours_are_believed(what: str) -> None:
    peer, headers, visitor = HOPS[what]
    raw = [(name.encode(), value.encode()) for name, value in headers]
    scope: dict[str, Any] = {"type": "websocket", "headers": raw, "client": (peer, 1)}
    seen: list[dict[str, Any]] = []

    async def inner(given: Any, _receive: Any, _send: Any) -> None:
        seen.append(given)

    anything: Any = None
    asyncio.run(ProxyHeadersMiddleware(inner, trusted(OURS))(scope, anything, anything))  # type: ignore[arg-type]
    assert network(seen[0]["client"][0]) == network(visitor)


@pytest.mark.parametrize("named", [True, False])
def test_visitors_behind_a_proxy_are_told_apart_if_it_is_named(named: bool) -> None:
    """Who is not named may write what it likes: it is one visitor, and has one's sessions."""
    proxies = ("127.0.0.1",) if named else ()
    with (
        BackgroundServer(app(limits=SessionLimits(each=1), proxies=proxies)) as server,
        Client(server.url, address="192.0.2.1") as one,
    ):
        one.start(hello("m", digest()))
        with Client(server.url, address="198.51.100.1") as other:
            if named:
                other.start(hello("m", digest()))
            else:
                assert other.refusal()[1] == 4503
        with Client(server.url, address="203.0.113.1, 192.0.2.9") as forger:
            assert forger.refusal()[1] == 4503


@pytest.mark.parametrize("name", ["proxy.example", "10.0.0.1/8", ""])
def test_a_proxy_that_is_no_address(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--port", 0, "--trusted-proxy", name, "--json")
    called = Called(capsys, "serve", bundle(), *given)
    assert (called.code, called.json["error"]["code"]) == (2, "usage")
