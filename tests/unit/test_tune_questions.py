"""Questions about the crowd's candidates: who is asked, what an answer is; the check of a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tuning_client import Client, hello, report
from tuning_site import digest
from tuning_votes import agree, site, space, vote, who

from tilewright.server import async_store
from tilewright.server.client import KernelResults
from tilewright.store import KernelStore
from tilewright.tuning import candidate_order
from tilewright.tuning.candidate_order import KnownCandidate, Tunable, takes_part
from tilewright.tuning.messages import Gold, Offer

BEST = 3


@pytest.fixture
def server(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A site on which five visitors named a candidate: it is in its trial."""
    monkeypatch.setattr(async_store, "FRESH", 0.0)
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with site(url) as running:
        for number in range(5):
            assert vote(running.url, number, {BEST: 1.5}).accepted
        running.store = url  # type: ignore[attr-defined]
        yield running


def offered(server: Any, number: int, **changes: Any) -> Offer:
    with Client(server.url, address=who(number)) as client:
        return client.start(hello("m", digest(), **changes)).kernels[0]


def asked(server: Any) -> int:
    """The number of a visitor that is drawn for the trial."""
    return next(n for n in range(100, 200) if offered(server, n).gold is not None)


def test_some_are_asked_and_stay_so_all_day(server: Any) -> None:
    drawn = [offered(server, n).gold for n in range(100, 130)]
    assert {gold for gold in drawn if gold} == {Gold(a=0, b=BEST)}
    assert 1 <= sum(gold is not None for gold in drawn) <= 25
    assert [offered(server, n).gold for n in range(100, 130)] == drawn


def test_other_objectives_are_not_asked(server: Any) -> None:
    assert offered(server, asked(server), objective="traffic").gold is None


def test_an_answer_is_stored_and_may_be_missing(server: Any) -> None:
    number = asked(server)
    with Client(server.url, address=who(number)) as client:
        offer = client.start(hello("m", digest())).kernels[0]
        false = report(offer, {5: 1.2}, gold={"a": 0, "b": 7, "ratio": 1.0})
        client.send(false)
        assert client.ack(false.nonce).reason == "gold"
        slow = report(offer, {5: 1.2, BEST: 0.5})
        client.send(slow)
        assert client.ack(slow.nonce).accepted
    later = next(n for n in range(number + 1, 300) if offered(server, n).gold is not None)
    with Client(server.url, address=who(later)) as client:
        silent = report(client.start(hello("m", digest())).kernels[0], {5: 1.2}, gold=None)
        client.send(silent)
        assert client.ack(silent.nonce).accepted
    with KernelStore.open(server.store) as store:
        assert [row["answers"] for row in store.rows()[-2:]] == [[[BEST, 0.5]], []]


def test_everybody_is_asked_about_a_default(server: Any) -> None:
    agree(server.url, {BEST: 1.5}, first=5)
    for number in range(400, 406):
        assert offered(server, number).gold == Gold(a=0, b=BEST)


def test_a_page_that_checks_gets_the_compilers_own_alone(server: Any) -> None:
    """None at all where the bundle has it anyway."""
    with Client(server.url) as client:
        client.start(hello("m", digest(), (0, 2), check=True))
        assert client.all_of(2) == []
    # it could not answer a question
    assert offered(server, asked(server), check=True).gold is None


CROWD = Tunable(0, 1.0, 4, tuple(range(9)), default=5, known=(KnownCandidate(7, 1.5),), gold=9)


@pytest.mark.parametrize(("default", "sent"), [(5, [0, None]), (None, [0, None]), (0, [None])])
def test_the_order_of_a_check(default: int | None, sent: list[int | None]) -> None:
    subject = replace(CROWD, default=default, only_own=True)
    assert [pick.candidate for pick in candidate_order.compose([subject], seed=1)] == sent


def test_a_candidate_in_its_trial_comes_once() -> None:
    subject = replace(CROWD, default=0, gold=7)
    found = [pick.candidate for pick in candidate_order.compose([subject], seed=1)]
    assert found.count(7) == 1


def test_one_in_three_is_drawn() -> None:
    drawn = [takes_part(spec, seed) for spec in range(30) for seed in range(100)]
    assert 0.3 < sum(drawn) / len(drawn) < 0.37


@pytest.mark.parametrize(
    ("crowd", "own", "drawn", "question"),
    [
        (KernelResults(), 0, True, None),
        (KernelResults(shadow=4), 0, True, 4),
        (KernelResults(shadow=4), 0, False, None),
        (KernelResults(default=3, shadow=4), 0, True, 4),
        (KernelResults(default=3, shadow=4), 0, False, 3),
        (KernelResults(default=3), 3, True, None),  # its report has the ratio anyway
        (KernelResults(default=3), None, True, 3),
        (KernelResults(default=0), 3, True, None),
    ],
)
def test_what_is_asked(
    crowd: KernelResults, own: int | None, drawn: bool, question: int | None
) -> None:
    assert crowd.asks(own, drawn) == question


def test_the_space_has_the_candidate() -> None:
    assert space().schedule(BEST) is not None
