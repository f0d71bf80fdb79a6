"""Reports over the socket: counted once, after the commit, or refused with a reason.

The same tests run over SQLite and PostgreSQL (fixture `url`).
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from tuning_client import Client, hello, report
from tuning_site import app, digest
from tuning_votes import counted, site, space, vote

from tilewright.server import BackgroundServer
from tilewright.store import KernelStore
from tilewright.targets.simd import strategies
from tilewright.tuning import candidate_order
from tilewright.tuning.messages import Ack, GoldAnswer, Offer, Report, Vote


def test_it_is_in_the_store_when_the_ack_comes(url: str) -> None:
    with site(url) as server, Client(server.url) as client:
        offer = client.start(hello("m", digest())).kernels[0]
        message = report(offer, {7: 1.1, 3: 1.4})  # the order of the numbers does not matter
        client.send(message)
        assert client.ack(message.nonce) == Ack(nonce=message.nonce, accepted=True)
        assert counted(url) == (1, 1)
        with KernelStore.open(url) as store:
            (entry,) = store.overview()
        assert (entry.key.kernel, entry.key.space) == (space().key, space().checksum)
        assert (entry.key.device, entry.key.browser) == ("wasm-x86-relaxed-32k", "chromium")
        assert entry.standing.voices == 1


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
    names = tuple(f"site-{number}.example" for number in range(5))
    with site(url, origins=frozenset({"*", *listed}), names=names) as server:

        def reason(origin: str | None, host: str | None) -> str:
            with Client(server.url, origin, host=host) as client:
                offer = client.start(hello("m", digest())).kernels[0]
                message = report(offer, {3: 1.4})
                client.send(message)
                return client.ack(message.nonce).reason

        assert reason(None, None) == ""
        for host in names:
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
    monkeypatch.setattr(candidate_order, "GOLD_EVERY", 1 << 60)  # no gold question
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


def test_who_looked_for_something_else_has_no_vote_on_speed(url: str) -> None:
    with site(url) as server:
        assert vote(server.url, 0, {3: 1.4}, objective="traffic").reason == "unknown"
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
    monkeypatch.setattr(candidate_order, "GOLD_EVERY", 1)
    monkeypatch.setattr(strategies, "DEEP", 16)


def test_a_gold_question_must_be_answered(url: str, all_gold: None) -> None:
    with site(url) as server, Client(server.url) as client:
        offer = client.start(hello("m", digest())).kernels[0]
        assert offer.gold is not None
        assert (offer.gold.a, offer.gold.b) == (0, offer.count) == (0, space().gold)
        client.want(2)
        assert offer.gold.b in [client.kernel().candidate for _ in range(2)]
        for answer in (None, GoldAnswer(a=0, b=offer.gold.b + 1, ratio=2.0)):
            message = report(offer, {3: 1.4}, gold=answer)
            client.send(message)
            assert client.ack(message.nonce).reason == "gold"
        assert counted(url) == (0, 0)
        client.result(0, offer.gold.b, 0.2)
        honest = report(offer, {3: 1.4, offer.gold.b: 0.2})
        client.send(honest)
        assert client.ack(honest.nonce).accepted
        with KernelStore.open(url) as store:
            (entry,) = store.overview()
        assert 3 in (named := {r.candidate for r in entry.standing.ranked})
        assert offer.gold.b not in named, "it is a question, and nothing to vote for"


@pytest.mark.parametrize("what", [{"objective": "traffic"}, {"variant": "x86-simd"}, None], ids=str)
def test_who_has_no_vote_is_not_asked(what: Any, all_gold: None, tmp_path: Any) -> None:
    """Neither is anybody where nobody takes reports."""
    assert space().gold is not None
    store = what and (lambda: KernelStore.open(f"sqlite:///{tmp_path / 'store.db'}"))
    with BackgroundServer(app(store=store)) as server, Client(server.url) as client:
        assert client.start(hello("m", digest(), **(what or {}))).kernels[0].gold is None


def test_a_wrong_answer_is_kept_and_not_counted(url: str, all_gold: None) -> None:
    """The liar is not told."""
    with site(url) as server, Client(server.url) as client:
        offer = client.start(hello("m", digest())).kernels[0]
        assert offer.gold is not None
        wrong = GoldAnswer(a=0, b=offer.gold.b, ratio=0.5)
        message = report(offer, {3: 5.0}, gold=wrong)
        client.send(message)
        assert client.ack(message.nonce).accepted
        assert counted(url) == (1, 0)
