"""Loading: progress, the cache, offline, abort, a page without isolation, a worker that dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import HostError
from tilewright.bundle import open_bundle
from tilewright.hosts.browser import BrowserModel

from . import bundles
from .bundles import Library
from .conftest import Lab, Load, Visit
from .serving import PATIENCE, Site, serving

pytestmark = [pytest.mark.by_turns, pytest.mark.one_in(2)]

ONES = {"x": np.ones((2, 1024), np.float32)}
# For page.mjs: values, or how many zeros.
PLAIN_ONES = {"x": [1] * 2048}
BUSY = {"x": 1024 * 1024}
PHASES = ["manifest", "code", "weights", "ready"]


def works(model: BrowserModel) -> bool:
    return bool(model.run(ONES).outputs["y"].shape == (2, 1536))


def test_progress_counts_bytes(lab: Lab, load: Load, library: Library) -> None:
    lab.forget()
    heard: list[dict[str, Any]] = []
    model = load("shards", on_progress=heard.append)
    loaded = [p["loadedBytes"] for p in heard]
    assert loaded == sorted(loaded)
    assert all(p["loadedBytes"] <= p["totalBytes"] for p in heard)
    assert list(dict.fromkeys(p["phase"] for p in heard)) == PHASES
    assert loaded[-1] == heard[-1]["totalBytes"] == model.info["bytes"]
    assert model.info["bytes"] > open_bundle(library.path("shards")).manifest.weights.bytes


def test_second_load_downloads_no_shard(lab: Lab, load: Load, library: Library) -> None:
    bundle = library.path("shards")
    files = bundles.shards(bundle)
    assert len(files) == 2
    lab.forget()
    before = lab.server.asked(*files)
    first = load(bundle)
    assert lab.server.asked(*files) == before + 2
    assert first.info["cache"]["hitBytes"] == 0
    second = load(bundle)
    assert lab.server.asked(*files) == before + 2
    cache = second.info["cache"]
    assert cache["hitBytes"] >= open_bundle(bundle).manifest.weights.bytes
    assert cache["state"] == "on"
    assert cache["problem"] == ""
    np.testing.assert_array_equal(second.run(ONES).outputs["y"], first.run(ONES).outputs["y"])
    kept = lab.host.request("cached_bytes", {}).result["bytes"]
    assert kept >= open_bundle(bundle).manifest.weights.bytes
    assert lab.host.request("clear_cache", {}).result["bytes"] == kept
    assert lab.host.request("cached_bytes", {}).result["bytes"] == 0


@pytest.mark.parametrize(("bytes_", "options"), [("cut", {}), ("changed", {"verify": True})])
def test_spoilt_cache_is_downloaded_again(
    visit: Visit, library: Library, bytes_: str, options: dict[str, bool]
) -> None:
    """A kept file of another length is never used; changed bytes are found where the page asks."""
    with serving({"shards": library.path("shards")}) as site:
        page = visit(site.blank)
        first = page.do("engine", url=site.bundle("shards"), inputs=PLAIN_ONES)
        assert page.do("spoilCache", bytes=bytes_) > 2
        again = page.do("engine", url=site.bundle("shards"), inputs=PLAIN_ONES, options=options)
        assert site.server.asked(*bundles.shards(library.path("shards"))) == 4
    assert again["outputs"] == first["outputs"]


def test_timings_are_in_order(load: Load, lab: Lab) -> None:
    lab.forget()
    model = load("shards")
    timings = model.info["timings"]
    assert 0 < timings["manifest"] <= timings["weights"] <= timings["ready"]
    assert timings["manifest"] <= timings["code"] <= timings["ready"]
    assert model.info["loadMilliseconds"] == timings["ready"]


def test_a_wrong_type_of_the_module_is_told(visit: Visit, library: Library) -> None:
    """compileStreaming refuses it; the verified bytes are compiled, and the page hears of it."""
    with serving({"shards": library.path("shards")}) as site:
        site.server.types[".wasm"] = "application/octet-stream"
        found = visit(site.blank).do("engine", url=site.bundle("shards"), inputs=PLAIN_ONES)
    assert len(found["outputs"]["y"]) == 2 * 1536
    assert any("not compiled while it downloaded" in text for text in found["info"]["lost"])


def test_loads_without_the_server(visit: Visit, library: Library) -> None:
    """The engine keeps bundles; its own files are kept by the demo page's service worker."""
    with ExitStack() as running:
        served = {name: library.path(name) for name in ("search", "shards")}
        site = running.enter_context(serving(served))
        page = visit(site.url)
        page.wait("ready")
        page.do("serviceWorker")
        ask = {"url": site.bundle("shards"), "inputs": PLAIN_ONES}
        first = page.do("engine", **ask)
        running.close()
        offline = page.do("engine", **ask)
    assert offline["outputs"] == first["outputs"]
    assert offline["info"]["cache"]["downloadedBytes"] == 0
    unknown = page.do("engine", url=site.bundle("other"), inputs=PLAIN_ONES)
    assert unknown["error"]["code"] == "network"


def test_new_content_at_the_same_address(visit: Visit, library: Library, tmp_path: Path) -> None:
    """The pointer decides: a bundle that was built anew is loaded anew."""
    served = {"model": library.path("linear")}
    with serving(served) as site:
        page = visit(site.blank)
        ask = {"url": site.bundle("model")}
        assert page.do("engine", **ask, inputs={"x": [1] * 96})["info"]["name"] == "matmul"
        served["model"] = library.path("bert")
        sentence = {"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1]}
        assert page.do("engine", **ask, inputs=sentence)["bucket"] == {"n": 8}


def test_abort_during_load(lab: Lab, load: Load, library: Library) -> None:
    bundle = library.path("shards")
    shard = bundles.shards(bundle)[0]
    lab.forget()
    before = lab.server.asked(shard)
    heard: SimpleQueue[dict[str, Any]] = SimpleQueue()
    with ThreadPoolExecutor(1) as pool, lab.server.holding(shard):
        loading = pool.submit(load, bundle, on_progress=heard.put)
        number = heard.get(timeout=PATIENCE)["id"]
        lab.server.wait_until_asked(shard, before + 1)
        assert lab.host.request("abort", {"request": number}).result == {"aborted": True}
        with pytest.raises(HostError, match="aborted") as caught:
            loading.result(PATIENCE)
    assert caught.value.facts["engine_code"] == "aborted"
    assert lab.host.request("abort", {"request": number}).result == {"aborted": False}
    assert works(load(bundle))


def test_signals_and_dispose(visit: Visit, library: Library) -> None:
    with serving({"busy": library.path("busy")}) as site:
        found = visit(site.blank).do("signals", url=site.bundle("busy"), inputs=BUSY)
    assert found == {
        "loadAborted": "AbortError",
        "runAborted": "AbortError",
        "first": "done",
        "queued": "AbortError",
        "last": "done",
        "open": "host",
        "later": "disposed",
    }


def test_worker_killed_in_mid_run(visit: Visit, library: Library) -> None:
    """The browser says nothing when it ends a worker; the runs must not wait for ever."""
    with serving({"busy": library.path("busy")}) as site:
        found = visit(site.blank).do("killWorker", url=site.bundle("busy"), inputs=BUSY)
    codes = found["codes"]
    assert codes[0] == "done"
    assert set(codes) == {"done", "host"}
    assert codes == sorted(codes)
    assert found["later"] == "host"
    assert found["again"] == "done"


@pytest.mark.parametrize("isolation", [True, False])
def test_isolation(visit: Visit, library: Library, isolation: bool) -> None:
    with serving({"shards": library.path("shards")}, isolation=isolation) as site:
        found = visit(site.blank).do("engine", url=site.bundle("shards"), inputs=PLAIN_ONES)
    assert len(found["outputs"]["y"]) == 2 * 1536
    assert found["isolated"] is isolation
    info = found["info"]
    assert info["features"]["isolated"] is isolation
    assert any("Not cross-origin isolated" in text for text in info["lost"]) is not isolation


def test_policy_is_kept_and_watched(visit: Visit, library: Library, shop: Site) -> None:
    """One violation on purpose: its report proves that others would have been seen."""
    page = visit(shop.url)
    page.wait("ready")
    page.ask("hot soup")
    assert page.do("log")["errors"] == []
    requests = page.do("log")["requests"]
    assert f"{shop.url}/search.js" in requests
    assert [r for r in requests if not r.startswith((shop.url, "data:"))] == []
    elsewhere = "http://192.0.2.1/secret"
    assert page.do("breakPolicy", url=elsewhere) == "blocked"
    shop.server.wait_for_violation("192.0.2.1")
    assert [v["blocked-uri"] for v in shop.server.violations] == [elsewhere]


@pytest.mark.parametrize("device", ["wasm", "auto"])
def test_reasons_of_aborts_reach_the_caller(visit: Visit, library: Library, device: str) -> None:
    """Whatever they are, and whether the abort came before the call or during it."""
    with serving({"linear": library.path("linear")}) as site:
        asked = {"url": site.bundle("linear"), "inputs": {"x": 96}, "device": device}
        found = visit(site.blank).do("reasons", **asked)
    assert found["works"] == ["y"]
    names = {"default": "AbortError", "timeout": "TimeoutError"}
    for case, outcome in found["found"].items():
        assert outcome == {"same": True, "name": names.get(case.split()[0], "")}, case
