"""The second visit: a device of a known class loads a bundle that starts with the crowd's best."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.postgres import Cluster
from helpers.waiting import until
from tuning_client import Client, hello, report
from tuning_site import SECONDS, bundle, digest
from tuning_votes import agree, site, space, who

from tilewright.bundle import open_bundle
from tilewright.bundle.section_files import unpack_slots
from tilewright.cli.compile_workers import makers
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.server import async_store, session_resources
from tilewright.store import KernelStore, store

DEVICE = "wasm-x86-relaxed-32k"
TUNED = f"/tuned/{DEVICE}/chromium/m/"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_store, "FRESH", 0.0)


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        return bytes(answer.read())


def pointer(server: str, address: str = TUNED) -> Any:
    return json.loads(get(server + address + "bundle.json"))


def relinked(server: str, so: bool = True) -> Any:
    """The pointer, once it is another than the built bundle's; or, not `so`, that one again."""
    until(lambda: (pointer(server)["manifest"]["digest"] != digest()) == so)
    return pointer(server)


def fetched(server: str, found: Any, folder: Path, address: str = TUNED) -> Path:
    """The whole bundle, as an engine loads it."""
    (folder / "blobs").mkdir(parents=True)
    (folder / "bundle.json").write_bytes(json.dumps(found).encode())
    file = found["manifest"]["file"]
    (folder / file).write_bytes(get(server + address + file))
    for ref in open_bundle(folder).manifest.files():
        (folder / ref.file).write_bytes(get(server + address + ref.file))
    open_bundle(folder).verify()
    return folder


def test_nobody_reported_so_it_is_the_bundle_as_built(url: str) -> None:
    with site(url) as server:
        assert pointer(server.url)["manifest"]["digest"] == digest()


def test_the_winner_is_in_the_module_and_the_results_are_the_same(url: str, tmp_path: Path) -> None:
    best = space().order[-1]
    with site(url) as server:
        agree(server.url, {best: 1.5})
        folder = fetched(server.url, relinked(server.url), tmp_path / "bundle")
        assert pointer(server.url, "/tuned/wasm-arm-relaxed-64k/chromium/m/") == pointer(
            server.url, "/bundles/m/"
        )
        assert pointer(server.url, f"/tuned/{DEVICE}/firefox/m/") == pointer(
            server.url, "/bundles/m/"
        )
    found = open_bundle(folder)
    slot = unpack_slots(found.read(found.manifest.section("wasm").kernels))[0]
    assert slot.builds["x86"]["schedule"] == space().schedules[best].to_json()
    assert found.manifest.weights == open_bundle(bundle()).manifest.weights
    computes_as_built(folder)


def computes_as_built(folder: Path) -> None:
    rng = np.random.default_rng(0)
    inputs = {
        "a": rng.standard_normal((24, 32), np.float32) / 8,
        "b": rng.standard_normal((32, 16), np.float32) / 8,
    }
    found, built = (WasmtimeHost(f, variant="x86").run(inputs).outputs for f in (folder, bundle()))
    for name, expected in built.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)


def test_inference_does_not_need_postgres(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is down both addresses give the bundle as built, and whoever has the relinked
    pointer gets its files; then all is as before."""
    monkeypatch.setattr(async_store, "REST", 0.1)
    url = cluster.database()
    with site(url) as server:
        agree(server.url, {space().order[-1]: 1.5})
        tuned = relinked(server.url)
        cluster.kill()
        try:
            built = relinked(server.url, so=False)
            assert built == pointer(server.url, "/bundles/m/")
            for name, found, address in (
                ("plain", built, "/bundles/m/"),
                ("tuned", built, TUNED),
                ("before", tuned, TUNED),
            ):
                computes_as_built(fetched(server.url, found, tmp_path / name, address))
        finally:
            cluster.start()
        assert relinked(server.url) == tuned


def test_tuning_goes_on_from_the_winner(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidate that the page starts with does not come; the compiler's own may."""
    # how many voices a default takes depends on the day; each of them counts at once
    monkeypatch.setattr(store, "VOTE_EVERY", 10_000)
    best, other = space().order[-1], space().order[-2]
    with site(url) as server:
        agree(server.url, {best: 1.5})
        loaded = relinked(server.url)["manifest"]["digest"]
        with Client(server.url, address=who(50)) as client:
            offer = client.start(hello("m", loaded)).kernels[0]
            assert offer.default == best
            sent = [m.candidate for m in client.all_of(1)]
            assert best not in sent
            assert 0 in sent
            # what others found of candidate 0 is not this page's to tell
            message = report(offer, {other: 1.5})
            client.send(message)
            assert client.ack(message.nonce).reason == "unknown"
            # half as fast again as the winner: more than twice as fast as candidate 0
            message = report(offer, {other: 1.5, 0: 1 / 1.5})
            client.send(message)
            assert client.ack(message.nonce).accepted
        with KernelStore.open(url) as kept:
            (entry,) = kept.overview()
            # what the page starts with is a default of the crowd: its ratio is an answer
            assert kept.rows()[-1]["answers"] == [[best, 1.5]]
        ratios = {r.candidate: r.ratio for r in entry.standing.ranked}
        assert ratios[other] == pytest.approx(1.5 * 1.5)
        assert ratios[best] == pytest.approx(1.5)


def test_what_does_not_exist(url: str) -> None:
    with site(url) as server:
        for address in (
            "/tuned/wasm-vax/chromium/m/bundle.json",
            f"/tuned/{DEVICE}/mosaic/m/bundle.json",
            f"/tuned/{DEVICE}/chromium/none/bundle.json",
            f"{TUNED}blobs/{'0' * 64}.wasm",
            f"{TUNED}manifest.json",
        ):
            with pytest.raises(urllib.error.HTTPError) as caught:
                get(server.url + address)
            assert caught.value.code == 404


@pytest.mark.parametrize("what", ["winners", "relinked"])
def test_a_bundle_that_cannot_be_relinked_is_served_as_built(url: str, what: str) -> None:
    failed = threading.Event()

    def failing(*given: Any) -> Any:
        failed.set()
        raise ValueError("a bug")

    with site(url, makers=replace(makers(0), **{what: failing})) as server:
        agree(server.url, {space().order[-1]: 1.5})
        until(lambda: pointer(server.url)["manifest"]["digest"] != digest() or failed.is_set())
        for _ in range(3):
            assert pointer(server.url)["manifest"]["digest"] == digest()


def test_what_one_process_linked_any_other_knows(url: str, tmp_path: Path) -> None:
    """Another server of the site, or the same one after a restart, neither of which links."""

    def never(*given: Any) -> Any:
        raise AssertionError("it was linked again")

    cache = tmp_path / "cache"
    best = space().order[-1]
    with site(url, cache=cache) as one:
        agree(one.url, {best: 1.5})
        found = relinked(one.url)
        both = fetched(one.url, found, tmp_path / "one")
    only = replace(makers(0), relinked=never)
    with site(url, cache=cache, makers=only) as two:
        # before anybody asked this server for the pointer
        with Client(two.url) as client:
            assert client.start(hello("m", found["manifest"]["digest"])).kernels[0].default == best
        fetched(two.url, found, tmp_path / "two")
        assert relinked(two.url) == found
    names = {str(p.relative_to(both)) for p in both.rglob("*") if p.is_file()}
    assert all((both / n).read_bytes() == (tmp_path / "two" / n).read_bytes() for n in names)
    assert not list(cache.rglob(".part-*"))


def test_a_cache_that_lost_files_is_filled_again(url: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with site(url, cache=cache) as server:
        agree(server.url, {space().order[-1]: 1.5})
        found = relinked(server.url)
    for path in (cache / "blobs").iterdir():
        path.unlink()
    with site(url, cache=cache) as server:
        with Client(server.url) as client:
            client.send(hello("m", found["manifest"]["digest"]))
            assert client.refusal()[1] == 4409
        assert relinked(server.url) == found
        fetched(server.url, found, tmp_path / "again")


def test_what_failed_is_left_alone_for_a_while(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_resources, "REST", 1e9)
    calls = []

    def failing(*given: Any) -> Any:
        calls.append(given)
        raise ValueError("a bug")

    with site(url, makers=replace(makers(0), relinked=failing)) as server:
        agree(server.url, {space().order[-1]: 1.5})
        until(lambda: pointer(server.url)["manifest"]["digest"] != digest() or calls)
        for _ in range(5):
            assert pointer(server.url)["manifest"]["digest"] == digest()
        assert len(calls) == 1


@pytest.mark.parametrize("what", ["winners", "relinked"])
def test_a_bundle_that_is_being_linked_stops_no_session(url: str, what: str) -> None:
    """Neither while the winners' schedules are looked up, nor while their code is made."""
    begun, released = threading.Event(), threading.Event()

    def slow(*given: Any) -> Any:
        begun.set()
        released.wait(600)
        return getattr(makers(0), what)(*given)

    with site(url, makers=replace(makers(0), **{what: slow})) as server:
        agree(server.url, {space().order[-1]: 1.5})
        until(lambda: pointer(server.url) and begun.is_set())
        with Client(server.url) as client:
            client.start(hello("m", digest(), (3,)))
            client.want(2)
            assert {client.kernel().spec, client.kernel().spec} == {3}
        assert not released.is_set()
        released.set()
        relinked(server.url)
