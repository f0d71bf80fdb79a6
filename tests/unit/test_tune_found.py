"""What the crowd found: the next device tries it first, and anybody can read it.

The same tests run over SQLite and PostgreSQL (fixture `url`).
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import replace
from typing import Any

import pytest
from helpers.reports import key
from tuning_client import Client, hello
from tuning_site import bundle, digest
from tuning_votes import agree, site, space, vote, who

from tilewright.base.errors import CompilerBug
from tilewright.bundle import open_bundle
from tilewright.cli.compile_workers import makers
from tilewright.server import async_store
from tilewright.store import KernelStore
from tilewright.store import StoredReport as Filed
from tilewright.targets.device_classes import CLASSES
from tilewright.tuning import candidate_order
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import kernels_of


def first(server: str, number: int, count: int, **changes: Any) -> list[int]:
    with Client(server, address=who(number)) as client:
        client.start(hello("m", digest(), **changes))
        client.want(count)
        return [client.kernel().candidate for _ in range(count)]


def test_the_next_device_starts_with_what_the_crowd_found(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_store, "FRESH", 0.0)
    monkeypatch.setattr(candidate_order, "GOLD_EVERY", 1 << 60)  # no gold question: it comes early
    best, second = space().order[-1], space().order[-2]
    with site(url) as server:
        assert best not in first(server.url, 100, 3)
        agree(server.url, {best: 1.5, second: 1.3})
        assert first(server.url, 101, 2) == [best, second]
        with Client(server.url, address=who(102)) as client:
            client.start(hello("m", digest()))
            sent = client.all_of(1)
        lite = space().marks.count("lite")
        assert 2 < len(sent) <= 2 + -(-lite // candidate_order.KNOWN_SHARE)


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


def test_a_browser_without_votes_starts_with_those_of_others_on_its_class(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before those of similar classes."""
    monkeypatch.setattr(candidate_order, "GOLD_EVERY", 1 << 60)
    here, near = space(), "wasm-x86-relaxed-48k"
    best, second = here.order[-1], here.order[-2]
    other = space_of(kernels_of(open_bundle(bundle()))[0], CLASSES[near])
    there = other.schedules.index(here.schedules[second])
    with site(url) as server:
        for number in range(6):
            assert vote(server.url, number, {best: 1.3}, browser="chromium").accepted
            assert vote(server.url, number, {there: 1.5}, device=near, browser="firefox").accepted
        assert first(server.url, 100, 2, browser="firefox") == [best, second]


def test_one_voice_hides_nothing_that_similar_hardware_found(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_store, "FRESH", 0.0)
    monkeypatch.setattr(candidate_order, "GOLD_EVERY", 1 << 60)
    kernel = kernels_of(open_bundle(bundle()))[0]
    other = space_of(kernel, CLASSES["wasm-x86-relaxed-48k"])
    there = other.order[-1]
    here = space().schedules.index(other.schedules[there])
    told = [c for c in space().order if c not in (0, here)][-5:]
    with site(url) as server:
        for number in range(6):
            assert vote(server.url, number, {there: 1.5}, device="wasm-x86-relaxed-48k").accepted
        # it names that one, too: as the last
        named = [*told[:4], here]
        assert vote(server.url, 50, {c: 19.0 - n for n, c in enumerate(named)}).accepted
        assert first(server.url, 100, 5) == [here, *told[:4]]


def test_one_voice_puts_no_kernel_before_what_a_crowd_found(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_store, "FRESH", 0.0)
    with site(url) as server:
        for number in range(6):
            assert vote(server.url, number, {3: 1.1}, specs=(2,)).accepted
        assert vote(server.url, 50, {5: 19.0}).accepted
        with Client(server.url, address=who(100)) as client:
            client.start(hello("m", digest(), (0, 2)))
            client.want(2)
            sent = [client.kernel() for _ in range(2)]
            assert [(m.spec, m.candidate) for m in sent] == [(2, 3), (0, 5)]


def test_a_similar_class_whose_space_cannot_be_made_ends_no_session(tmp_path: Any) -> None:
    real, near = makers(0), "wasm-x86-relaxed-48k"
    broken = False

    def made(kernel: Any, device: str, objective: Any) -> Any:
        if broken and device == near:
            raise CompilerBug("it cannot be made")
        return real.space(kernel, device, objective)

    url = f"sqlite:///{tmp_path / 'store.db'}"
    with site(url) as server:
        for number in range(6):
            assert vote(server.url, number, {3: 1.5}, device=near).accepted
    broken = True
    with site(url, makers=replace(real, space=made)) as server:
        assert len(first(server.url, 100, 2)) == 2


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
    monkeypatch.setattr(async_store, "ROWS", 2)
    url = f"sqlite:///{tmp_path / 'store.db'}"
    asked = []

    class Counting(KernelStore):
        def overview(self, *given: Any, **named: Any) -> Any:
            asked.append(named)
            return super().overview(*given, **named)

    with KernelStore.open(url) as store:
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
