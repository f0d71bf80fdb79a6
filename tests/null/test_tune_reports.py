"""Reports over the socket: counted once, after the commit, or refused with a reason.

The same tests run over SQLite and PostgreSQL (fixture `url`).
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from helpers.postgres import Cluster
from helpers.reports import key
from tuning_client import Client, hello, report
from tuning_site import app, bundle, digest

from tilewright.base.errors import (
    StoreDown,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreVersion,
)
from tilewright.bundle import open_bundle
from tilewright.server import BackgroundServer, ledger, standing
from tilewright.server.session import Limits
from tilewright.store import Report as Filed
from tilewright.store import Store
from tilewright.targets.classes import CLASSES
from tilewright.tuning import compose, gold
from tilewright.tuning.candidates import kernels_of, space_of
from tilewright.tuning.messages import Ack, GoldAnswer, Offer, Report, Vote

SECRET = "secret of the tests"


def site(url: str, **tuning: Any) -> BackgroundServer:
    given = {"store": lambda: Store.open(url), "secret": SECRET}
    return BackgroundServer(app(**(given | tuning)))


def who(number: int) -> str:
    """An address in a network of its own."""
    return f"10.{number >> 8}.{number & 255}.1"


def counted(url: str) -> tuple[int, int]:
    with Store.open(url) as store:
        stats = store.stats()
    return stats.reports, stats.counted


def vote(server: str, number: int, ratios: dict[int, float], **changes: Any) -> Ack:
    """One visitor: tries nothing and reports."""
    with Client(server, address=who(number)) as client:
        offer = client.start(hello("m", digest(), **changes)).kernels[0]
        message = report(offer, ratios)
        client.send(message)
        return client.ack(message.nonce)


def test_it_is_in_the_store_when_the_ack_comes(url: str) -> None:
    with site(url) as server, Client(server.url) as client:
        offer = client.start(hello("m", digest())).kernels[0]
        message = report(offer, {7: 1.1, 3: 1.4})  # the order of the numbers does not matter
        client.send(message)
        assert client.ack(message.nonce) == Ack(nonce=message.nonce, accepted=True)
        assert counted(url) == (1, 1)
        with Store.open(url) as store:
            (entry,) = store.overview()
        assert (entry.key.kernel, entry.key.space) == (space().key, space().checksum)
        assert (entry.key.device, entry.key.browser) == ("wasm-x86-relaxed-32k", "chromium")
        assert entry.standing.voices == 1


def space() -> Any:
    kernel = kernels_of(open_bundle(bundle()))[0]
    return space_of(kernel, CLASSES["wasm-x86-relaxed-32k"])


def test_a_replay_is_acked_again_and_counted_once(url: str) -> None:
    with site(url) as server:
        with Client(server.url) as client:
            offer = client.start(hello("m", digest())).kernels[0]
            message = report(offer, {3: 1.4})
            for _ in range(3):
                client.send(message)
                assert client.ack(message.nonce).accepted
        with Client(server.url) as client:
            client.start(hello("m", digest()))
            client.send(message)
            assert client.ack(message.nonce).accepted
        assert counted(url) == (1, 1)


def test_two_tabs_are_one_voice_and_two_networks_are_two(url: str) -> None:
    with site(url) as server:
        assert vote(server.url, 0, {3: 1.4}).accepted
        assert vote(server.url, 0, {3: 1.4}).reason == "repeated"
        assert vote(server.url, 1, {3: 1.4}).accepted
        assert counted(url) == (2, 2)


def test_one_address_is_one_voice_whatever_it_says_of_itself(url: str) -> None:
    """Origin and Host are the client's own words: only a site that is listed counts apart."""
    listed = ("https://friend.example", "https://other.example")
    with site(url, origins=frozenset({"*", *listed})) as server:

        def reason(origin: str | None, host: str | None) -> str:
            with Client(server.url, origin, host=host) as client:
                offer = client.start(hello("m", digest())).kernels[0]
                message = report(offer, {3: 1.4})
                client.send(message)
                return client.ack(message.nonce).reason

        assert reason(None, None) == ""
        for number in range(5):
            host = f"site-{number}.example"
            assert reason(f"https://{host}", host) == "repeated"
        assert reason("*", None) == "repeated"
        assert [reason(friend, None) for friend in listed] == ["", ""]
        assert counted(url) == (3, 3)


def test_nothing_beats_the_default(url: str) -> None:
    with site(url) as server:
        assert vote(server.url, 0, {}).accepted
        assert counted(url) == (1, 1)


FLAWS: dict[str, tuple[Callable[[Offer], Report], str]] = {
    "kernel": (lambda o: report(o, {3: 1.4}, spec=2), "unknown"),
    "space": (lambda o: report(o, {3: 1.4}, checksum="0" * 16), "checksum"),
    "candidate": (lambda o: report(o, {o.count: 1.4}), "range"),
    "twice": (lambda o: report(o, {}, top=(Vote(candidate=3, ratio=1.4),) * 2), "range"),
    "too fast": (lambda o: report(o, {3: 25.0}), "range"),
    "too slow": (lambda o: report(o, {3: 0.01}), "range"),
    "nobody asked": (
        lambda o: report(o, {3: 1.4}, gold=GoldAnswer(a=0, b=1, ratio=2.0)),
        "gold",
    ),
}


@pytest.mark.parametrize("what", FLAWS)
def test_a_flaw_is_named_and_nothing_is_stored(
    what: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose, "GOLD_EVERY", 1 << 60)  # no gold question
    url = f"sqlite:///{tmp_path / 'store.db'}"
    make, reason = FLAWS[what]
    with site(url) as server, Client(server.url) as client:
        offer = client.start(hello("m", digest())).kernels[0]
        message = make(offer)
        client.send(message)
        assert client.ack(message.nonce) == Ack(nonce=message.nonce, accepted=False, reason=reason)
        client.want(1)
        client.kernel()  # the session goes on
        good = report(offer, {3: 1.4})
        client.send(good)
        assert client.ack(good.nonce).accepted
        assert counted(url) == (1, 1)


def test_votes_on_other_code_than_the_classs_own_do_not_count(url: str) -> None:
    with site(url) as server:
        assert vote(server.url, 0, {3: 1.4}, variant="x86-simd").reason == "unknown"
        assert counted(url) == (0, 0)


def test_a_site_without_a_store_takes_none() -> None:
    with BackgroundServer(app()) as server, Client(server.url) as client:
        offer = client.start(hello("m", digest())).kernels[0]
        message = report(offer, {3: 1.4})
        client.send(message)
        assert client.ack(message.nonce).reason == "off"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(server.url + "/api/standing")


def test_too_many_reports_of_one_source(url: str) -> None:
    with site(url, reports=(0.0, 2.0)) as server:
        assert [vote(server.url, 0, {3: 1.4}, specs=(s,)).reason for s in (0, 2, 3)] == [
            "",
            "",
            "rate",
        ]
        assert vote(server.url, 1, {3: 1.4}).accepted


# ---- gold ----------------------------------------------------------------------------------------


@pytest.fixture
def all_gold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products have gold too, so that the tests are quick."""
    monkeypatch.setattr(compose, "GOLD_EVERY", 1)
    monkeypatch.setattr(gold, "DEEP", 16)


def test_a_gold_question_must_be_answered(url: str, all_gold: None) -> None:
    with site(url) as server, Client(server.url) as client:
        offer = client.start(hello("m", digest())).kernels[0]
        assert offer.gold is not None
        assert (offer.gold.a, offer.gold.b) == (0, space().slow)
        client.want(2)
        assert offer.gold.b in [client.kernel().candidate for _ in range(2)]
        for answer in (None, GoldAnswer(a=0, b=offer.gold.b + 1, ratio=2.0)):
            message = report(offer, {3: 1.4}, gold=answer)
            client.send(message)
            assert client.ack(message.nonce).reason == "gold"
        assert counted(url) == (0, 0)


def test_a_wrong_answer_is_kept_and_not_counted(url: str, all_gold: None) -> None:
    """The liar is not told."""
    with site(url) as server, Client(server.url) as client:
        offer = client.start(hello("m", digest())).kernels[0]
        assert offer.gold is not None
        wrong = GoldAnswer(a=0, b=offer.gold.b, ratio=0.5)
        message = report(offer, {offer.gold.b: 5.0}, gold=wrong)
        client.send(message)
        assert client.ack(message.nonce).accepted
        assert counted(url) == (1, 0)


# ---- what the crowd found ------------------------------------------------------------------------


def first(server: str, number: int, count: int, **changes: Any) -> list[int]:
    with Client(server, address=who(number)) as client:
        client.start(hello("m", digest(), **changes))
        client.want(count)
        return [client.kernel().candidate for _ in range(count)]


def test_the_next_device_starts_with_what_the_crowd_found(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "FRESH", 0.0)
    monkeypatch.setattr(compose, "GOLD_EVERY", 1 << 60)  # no gold question: it comes early
    best, second = space().order[-1], space().order[-2]
    with site(url) as server:
        assert best not in first(server.url, 100, 3)
        for number in range(15):
            assert vote(server.url, number, {best: 1.5, second: 1.3}).accepted
        assert first(server.url, 101, 2) == [best, second]
        with Client(server.url, address=who(102)) as client:
            client.start(hello("m", digest()))
            sent = client.all_of(1)
        lite = space().marks.count("lite")
        assert 2 < len(sent) <= 2 + -(-lite // compose.KNOWN_SHARE)


def test_a_class_without_votes_starts_with_those_of_similar_hardware(url: str) -> None:
    """Numbers differ between spaces: what counts is the schedule."""
    kernel = kernels_of(open_bundle(bundle()))[0]
    other = space_of(kernel, CLASSES["wasm-x86-relaxed-48k"])
    schedule = other.schedules[other.order[-1]]
    with site(url) as server:
        for number in range(6):
            ratios = {other.schedules.index(schedule): 1.5}
            assert vote(server.url, number, ratios, device="wasm-x86-relaxed-48k").accepted
        (candidate,) = first(server.url, 100, 1)
        assert space().schedules[candidate] == schedule


def test_what_is_known_can_be_read(url: str) -> None:
    with site(url) as server:
        for number in range(3):
            assert vote(server.url, number, {3: 1.4}).accepted
        with urllib.request.urlopen(server.url + "/api/standing") as answer:
            (entry,) = json.loads(answer.read())
        assert (entry["shape"], entry["device"]) == ("24x32x16", "wasm-x86-relaxed-32k")
        assert entry["ranked"][0]["candidate"] == 3
        assert "source" not in json.dumps(entry)
        with urllib.request.urlopen(server.url + "/api/standing?device=wasm") as answer:
            assert json.loads(answer.read()) == []


def test_what_is_known_comes_in_pages(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is cut off, and a store of any size is asked once for all who want the same."""
    monkeypatch.setattr(standing, "ROWS", 2)
    url = f"sqlite:///{tmp_path / 'store.db'}"
    asked = []

    class Counting(Store):
        def overview(self, *given: Any, **named: Any) -> Any:
            asked.append(named)
            return super().overview(*given, **named)

    with Store.open(url) as store:
        for number in range(5):
            store.submit(Filed(f"nonce-{number:04d}", key(f"{number}" * 64), ()), "s")
    with site(url, store=lambda: Counting.open(url)) as server:
        found, query = [], ""
        while True:
            with urllib.request.urlopen(server.url + "/api/standing" + query) as answer:
                found += [entry["kernel"][0] for entry in json.loads(answer.read())]
                link = answer.headers["link"]
            if link is None:
                break
            query = link.removeprefix("<").removesuffix('>; rel="next"')
        assert found == list("01234")
        urllib.request.urlopen(server.url + "/api/standing" + query).close()
        assert len(asked) == 3
        for wrong in ("page=-1", "page=1e9", "page=1000", "device=vax"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(server.url + "/api/standing?" + wrong)
        with urllib.request.urlopen(server.url + "/api/standing?page=999") as answer:
            assert json.loads(answer.read()) == []


# ---- the store fails -----------------------------------------------------------------------------


class Broken(Store):
    """A store whose calls fail while `error` is set."""

    error: Exception | None = None

    def submit(self, *given: Any) -> Any:
        if self.error:
            raise self.error
        return super().submit(*given)

    def standing(self, *given: Any) -> Any:
        if self.error:
            raise self.error
        return super().standing(*given)


ERRORS = [
    StoreDown("down"),
    StoreLocked("locked"),
    StoreReadOnly("read-only"),
    StoreFull("full"),
    StoreVersion("newer"),
    RuntimeError("a bug"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: str(e))
def test_a_store_that_fails_disturbs_nothing_but_reports(
    error: Exception, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "REST", 0.1)
    store = Broken.open(url)
    with store, site(url, store=lambda: store) as server:
        with Client(server.url) as client:
            store.error = error  # type: ignore[attr-defined]
            offer = client.start(hello("m", digest())).kernels[0]
            message = report(offer, {3: 1.4})
            client.send(message)
            assert client.ack(message.nonce).reason == "later"
            client.want(2)
            client.kernel()
            client.kernel()
            with urllib.request.urlopen(server.url + "/bundles/m/bundle.json") as answer:
                assert answer.status == 200
            store.error = None  # type: ignore[attr-defined]
            again(client, message)
        assert counted(url) == (1, 1)


def again(client: Client, message: Report) -> None:
    """Sends a report until it is stored, as clients do."""
    for _ in range(100):
        client.send(message)
        if client.ack(message.nonce).accepted:
            return
        time.sleep(0.1)
    raise AssertionError("it was never stored")


def test_a_store_that_hangs_is_not_waited_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "PATIENCE", 0.1)
    monkeypatch.setattr(ledger, "REST", 0.1)

    class Slow(Store):
        def submit(self, *given: Any) -> Any:
            time.sleep(0.5)
            return super().submit(*given)

    with site(url, store=lambda: Slow.open(url)) as server, Client(server.url) as client:
        offer = client.start(hello("m", digest())).kernels[0]
        message = report(offer, {3: 1.4})
        client.send(message)
        assert client.ack(message.nonce).reason == "later"
        client.want(1)
        client.kernel()
        # it was stored after all; sent again, it is not counted twice
        monkeypatch.setattr(ledger, "PATIENCE", 20.0)
        again(client, message)
    assert counted(url) == (1, 1)


def test_bye_waits_for_the_reports_before_it(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"

    class Slow(Store):
        def submit(self, *given: Any) -> Any:
            time.sleep(0.3)
            return super().submit(*given)

    with site(url, store=lambda: Slow.open(url)) as server:
        with Client(server.url) as client:
            offers = client.start(hello("m", digest(), (0, 2, 3))).kernels
            messages = [report(offer, {3: 1.4}) for offer in offers]
            for message in messages:
                client.send(message)
            client.bye()
            assert [client.ack(message.nonce).accepted for message in messages] == [True] * 3
            assert client.closed() == 1000
        assert counted(url) == (3, 3)


def test_bye_does_not_wait_for_a_store_that_hangs(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    released = threading.Event()

    class Hangs(Store):
        def submit(self, *given: Any) -> Any:
            released.wait(20)
            return super().submit(*given)

    limits = Limits(leaving=0.1)
    with site(url, store=lambda: Hangs.open(url), limits=limits) as server:
        with Client(server.url) as client:
            offer = client.start(hello("m", digest())).kernels[0]
            client.send(report(offer, {3: 1.4}))
            client.bye()
            assert client.closed() == 1000
        released.set()


def test_postgres_is_killed_and_comes_back(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "REST", 0.1)
    url = cluster.database()
    with site(url) as server, Client(server.url, address=who(0)) as client:
        offers = client.start(hello("m", digest(), (0, 2))).kernels
        first, second = (report(offer, {3: 1.4}) for offer in offers)
        client.send(first)
        assert client.ack(first.nonce).accepted
        cluster.kill()
        try:
            client.send(second)
            assert client.ack(second.nonce).reason == "later"
            client.want(1)
            client.kernel()
        finally:
            cluster.start()
        again(client, second)
        again(client, first)
    assert counted(url) == (2, 2)


def test_a_server_may_start_before_its_store(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "REST", 0.1)
    there = False

    def opener() -> Store:
        if not there:
            raise StoreDown("not yet")
        return Store.open(url)

    with site(url, store=opener) as server, Client(server.url) as client:
        offer = client.start(hello("m", digest())).kernels[0]
        message = report(offer, {3: 1.4})
        client.send(message)
        assert client.ack(message.nonce).reason == "later"
        there = True
        again(client, message)
    assert counted(url) == (1, 1)


def test_the_servers_clock_goes_back(url: str) -> None:
    """Reports are counted as before; the same visitor on the same day is still one voice."""
    now = [1_800_000_000.0]
    with site(url, store=lambda: Store.open(url, clock=lambda: now[0])) as server:
        assert vote(server.url, 0, {3: 1.4}).accepted
        now[0] -= 3 * 86_400
        assert vote(server.url, 1, {3: 1.4}).accepted
        assert vote(server.url, 1, {3: 1.4}).reason == "repeated"
        now[0] += 3 * 86_400
        assert vote(server.url, 0, {3: 1.4}).reason == "repeated"
    assert counted(url) == (2, 2)
