"""The store fails, hangs, is late or comes back: tuning goes on, and no report is lost.

The same tests run over SQLite and PostgreSQL (fixture `url`).
"""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from helpers.postgres import Cluster
from helpers.waiting import PATIENCE, until
from tuning_client import Client, hello, postponed, report
from tuning_site import digest, stats
from tuning_votes import SECRET, counted, site, vote, who

from tilewright.base.errors import (
    StoreDown,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreVersion,
)
from tilewright.server import async_store, tune
from tilewright.server.rate_limits import Pseudonyms
from tilewright.server.session import SessionLimits
from tilewright.store import KernelStore
from tilewright.tuning.messages import Report

pytestmark = pytest.mark.by_turns


class Broken(KernelStore):
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
    monkeypatch.setattr(async_store, "REST", 0.1)
    store = Broken.open(url)
    with store, site(url, store=lambda: store) as server:
        with Client(server.url) as client:
            store.error = error  # type: ignore[attr-defined]
            message = postponed(client)
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

    def stored() -> bool:
        client.send(message)
        return client.ack(message.nonce).accepted

    until(stored)


def read_only(url: str) -> str:
    """The address of a store that may be read, not written, from now on."""
    if url.startswith("sqlite"):
        return url.replace("sqlite:///", "sqlite:///file:") + "?mode=ro&uri=true"
    with KernelStore.open(url) as store, store.database.write() as connection:
        name = connection.execute(sa.text("SELECT current_database()")).scalar_one()
        connection.execute(sa.text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
    return url


def test_a_read_only_store_is_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports wait; what is known is told all the time, and the failure keeps its name."""
    monkeypatch.setattr(async_store, "REST", 3600.0)
    monkeypatch.setattr(async_store, "FRESH", 0.0)
    with site(url) as server:
        for number in range(5):
            assert vote(server.url, number, {3: 1.4}).accepted
    with site(read_only(url)) as server:
        for number in (6, 7):  # while writing rests, too
            ack = vote(server.url, number, {3: 1.4})
            assert (ack.accepted, ack.reason) == (False, "later")
            with Client(server.url) as client:
                client.start(hello("m", digest()))
                client.want(1)
                assert client.kernel().candidate == 3
        with urllib.request.urlopen(server.url + "/api/standing") as answer:
            assert json.loads(answer.read())
        assert stats(server.url)["store"]["failures"] == {"store-readonly": 1}


def test_a_store_that_cannot_be_opened_keeps_its_name() -> None:
    def opener() -> KernelStore:
        raise StoreVersion("newer")

    with site("", store=opener) as server:
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(server.url + "/api/standing")
        error = json.loads(raised.value.read())["error"]
        assert (error["code"], error["facts"]) == ("busy", {"store": "store-version"})


def test_a_store_that_hangs_is_not_waited_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_store, "TIMEOUT", 0.1)
    monkeypatch.setattr(async_store, "REST", 0.1)
    released = threading.Event()

    class Slow(KernelStore):
        def submit(self, *given: Any) -> Any:
            released.wait(600)
            return super().submit(*given)

    with site(url, store=lambda: Slow.open(url)) as server, Client(server.url) as client:
        message = postponed(client)
        client.want(1)
        client.kernel()
        # it was stored after all; sent again, it is not counted twice
        released.set()
        monkeypatch.setattr(async_store, "TIMEOUT", PATIENCE)
        again(client, message)
    assert counted(url) == (1, 1)


def refusal(url: str) -> str:
    """The code of the error; "" if there is none."""
    try:
        urllib.request.urlopen(url).close()
    except urllib.error.HTTPError as error:
        return str(json.loads(error.read())["error"]["code"])
    return ""


def test_pages_hold_up_neither_sessions_nor_reports(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is made at a time; who waits too long for a turn is told to come again."""
    monkeypatch.setattr(async_store, "TIMEOUT", PATIENCE)
    url = f"sqlite:///{tmp_path / 'store.db'}"
    asked, released = [], threading.Event()

    class Slow(KernelStore):
        def overview(self, *given: Any, **named: Any) -> Any:
            asked.append(named["start"])
            assert released.wait(600), "somebody waits for this page"
            return super().overview(*given, **named)

    with site(url, store=lambda: Slow.open(url)) as server, ThreadPoolExecutor(8) as pool:
        try:
            monkeypatch.setattr(async_store, "TURN", 0.2)
            of = server.url + "/api/standing?page="
            pages = [pool.submit(refusal, f"{of}{number}") for number in range(8)]
            until(lambda: bool(asked))
            assert vote(server.url, 0, {3: 1.4}).accepted
            until(lambda: sum(page.done() for page in pages) == 7)
        finally:
            released.set()
        assert sorted(page.result() for page in pages) == [""] + 7 * ["busy"]
        assert len(asked) == 1


def test_what_nobody_waits_for_any_more_holds_up_nobody(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that was slow for a moment answers the next one at once."""
    monkeypatch.setattr(async_store, "TIMEOUT", 0.1)
    monkeypatch.setattr(async_store, "REST", 0.0)
    began: list[int] = []
    released = threading.Event()

    def slow(number: int) -> None:
        began.append(number)
        released.wait(600)

    async def ask() -> int:
        lane = async_store.StoreThreads(1, 32)
        calls = [lane.call(partial(slow, number)) for number in range(12)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(error, async_store.Unavailable) for error in found)
        released.set()
        monkeypatch.setattr(async_store, "TIMEOUT", PATIENCE)
        return await lane.call(lambda: 7)

    assert asyncio.run(ask()) == 7
    assert began == [0]


def test_a_page_that_fails_postpones_no_report(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_store, "REST", 60.0)

    class Unreadable(KernelStore):
        def overview(self, *given: Any, **named: Any) -> Any:
            raise StoreDown("too much to read")

    with site(url, store=lambda: Unreadable.open(url)) as server:
        assert refusal(server.url + "/api/standing") == "busy"
        assert vote(server.url, 0, {3: 1.4}).accepted


def test_bye_waits_for_the_reports_before_it(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"

    said = threading.Event()

    class Slow(KernelStore):
        def submit(self, *given: Any) -> Any:
            said.wait(PATIENCE)
            return super().submit(*given)

    limits = SessionLimits(leaving=PATIENCE)
    with site(url, store=lambda: Slow.open(url), limits=limits) as server:
        with Client(server.url) as client:
            offers = client.start(hello("m", digest(), (0, 2, 3))).kernels
            messages = [report(offer, {3: 1.4}) for offer in offers]
            for message in messages:
                client.send(message)
            client.bye()
            said.set()
            assert [client.ack(message.nonce).accepted for message in messages] == [True] * 3
            assert client.closed() == 1000
        assert counted(url) == (3, 3)


def test_bye_does_not_wait_for_a_store_that_hangs(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    released = threading.Event()

    class Hangs(KernelStore):
        def submit(self, *given: Any) -> Any:
            released.wait(600)
            return super().submit(*given)

    limits = SessionLimits(leaving=0.1)
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
    monkeypatch.setattr(async_store, "REST", 0.1)
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
    monkeypatch.setattr(async_store, "REST", 0.1)
    there = False

    def opener() -> KernelStore:
        if not there:
            raise StoreDown("not yet")
        return KernelStore.open(url)

    with site(url, store=opener) as server, Client(server.url) as client:
        message = postponed(client)
        there = True
        again(client, message)
    assert counted(url) == (1, 1)


def test_the_store_is_closed_when_the_server_ends(url: str) -> None:
    closed = []

    class Closing(KernelStore):
        def close(self) -> None:
            closed.append(True)
            super().close()

    def threads() -> set[threading.Thread]:
        return {t for t in threading.enumerate() if t.name.startswith("tilewright-store")}

    before = threads()  # other tests may keep servers
    with site(url, store=lambda: Closing.open(url)) as server:
        assert vote(server.url, 0, {3: 1.4}).accepted
        assert closed == []
        assert threads() - before
    assert closed == [True]
    until(lambda: not threads() - before)


def test_a_store_that_is_still_opened_when_the_server_ends(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_store, "TIMEOUT", 0.1)
    url = f"sqlite:///{tmp_path / 'store.db'}"
    opening, released, closed = threading.Event(), threading.Event(), threading.Event()

    class Late(KernelStore):
        def close(self) -> None:
            closed.set()
            super().close()

    def opener() -> KernelStore:
        opening.set()
        released.wait(600)
        return Late.open(url)

    with site(url, store=opener) as server, Client(server.url) as client:
        client.start(hello("m", digest()))
        assert opening.wait(PATIENCE)
    released.set()
    assert closed.wait(PATIENCE)


@pytest.mark.parametrize("secret", [SECRET, ""], ids=["secret", "random"])
def test_the_servers_clock_goes_back(
    url: str, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports are counted as before; the same visitor on the same day is still one voice, whether
    names of visitors can be derived anew or not."""
    now = [1_800_000_000.0]
    dated = partial(Pseudonyms, day=lambda: str(now[0] // 86_400))
    monkeypatch.setattr(tune, "Pseudonyms", dated)
    opened = partial(KernelStore.open, url, clock=lambda: now[0])
    with site(url, store=opened, secret=secret) as server:
        assert vote(server.url, 0, {3: 1.4}).accepted
        now[0] -= 3 * 86_400
        assert vote(server.url, 1, {3: 1.4}).accepted
        assert vote(server.url, 1, {3: 1.4}).reason == "repeated"
        now[0] += 3 * 86_400
        assert vote(server.url, 0, {3: 1.4}).reason == "repeated"
    assert counted(url) == (2, 2)
