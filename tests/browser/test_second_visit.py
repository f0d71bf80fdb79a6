"""A re-linked bundle in a browser: it loads, agrees with the plain one, and shares its weights."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from helpers.crowd import agreed

from tilewright.bundle import open_bundle
from tilewright.cli.compile_workers import makers
from tilewright.hosts.browser import BrowserHost
from tilewright.hosts.browser_discovery import Browser
from tilewright.server import Tuning
from tilewright.server import tuned as module
from tilewright.store import KernelStore
from tilewright.targets.device_classes import CLASSES

from .bundles import Library
from .conftest import Visit
from .search_model import LENGTHS
from .serving import serving

pytestmark = [pytest.mark.by_turns, pytest.mark.one_in(2)]

#: Seconds in which the code is optimised and kept on any machine, and runs between two looks.
PATIENCE = 300.0
RUNS = 50
#: Bytes of an entry that has more than its name.
MORE_THAN_A_HEAD = 1000


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module is linked before the answer goes out."""
    monkeypatch.setattr(module, "TIMEOUT", 60.0)


def test_it_agrees_and_shares_its_weights(visit: Visit, library: Library, tmp_path: Path) -> None:
    bundle = open_bundle(library.path("shards"))
    device = "wasm-x86-relaxed-48k"
    url = agreed(tmp_path, bundle, device, {0: 2}, ("firefox",))
    tuning = Tuning(makers(0), partial(KernelStore.open, url))
    values = np.linspace(-1, 1, 2 * 1024).astype(np.float32).tolist()
    inputs = {bundle.manifest.inputs[0].name: values}
    with serving({"m": bundle.folder}, tuning=tuning) as site:
        page = visit(site.blank)
        plain = page.do("engine", url=site.bundle("m"), inputs=inputs)
        if plain["info"]["variant"]["name"] != "x86":
            pytest.skip("the class is one of x86 with relaxed SIMD")
        tuned = page.do("engine", url=f"{site.url}/tuned/{device}/firefox/m/", inputs=inputs)
        weights = [ref.file for ref in bundle.manifest.weights.shards]
        assert [site.server.asked(file) for file in weights] == [1] * len(weights)
        assert page.do("log")["errors"] == []
    assert tuned["info"]["digest"] != plain["info"]["digest"]
    assert tuned["info"]["cache"]["hitBytes"] >= bundle.manifest.weights.bytes
    for name, array in plain["outputs"].items():
        np.testing.assert_allclose(tuned["outputs"][name], array, rtol=1e-4, atol=1e-4)


def test_the_page_asks_with_its_class(visit: Visit, library: Library, tmp_path: Path) -> None:
    """Whatever the class of this machine is, its winners come with the first inference."""
    bundle = open_bundle(library.path("search"))
    codes = {build.variant for build in bundle.manifest.section("wasm").builds}
    for device in (c for c in CLASSES.values() if c.variant in codes):
        url = agreed(tmp_path, bundle, device.id, {0: 1})
    tuning = Tuning(makers(0), partial(KernelStore.open, url))
    with serving({"search": bundle.folder}, tuning=tuning) as site:
        page = visit(site.url)
        assert page.wait("ready", "error")["state"] == "ready"
        page.do("text", selector="#fact-bucket", contains=f"n = {LENGTHS[0]}")
        asked = [u for u in page.do("log")["requests"] if "bundle.json" in u]
        assert asked
        assert all("/tuned/wasm-" in u for u in asked)
        assert page.ask("bread and butter")
        assert page.do("log")["errors"] == []
        # the class is known now: the next visit does not look for it
        before = site.server.asked("/api/classes")
        page.do("reload")
        assert page.wait("ready", "error")["state"] == "ready"
        assert site.server.asked("/api/classes") == before


def test_chromium_can_keep_the_optimised_code(
    browser: Browser, library: Library, tmp_path: Path
) -> None:
    """How the engine compiles lets it: with V8's flag to write at once it is there after a visit.

    By itself V8 comes to it late (docs/decisions/0006).
    """
    if browser.name != "chromium":
        pytest.skip("the folder is one of Chromium's profiles")
    flags = (f"--user-data-dir={tmp_path}", "--js-flags=--wasm-caching-timeout-ms=0")
    folder = tmp_path / "Default" / "Code Cache" / "wasm"
    end = time.monotonic() + PATIENCE
    with BrowserHost(replace(browser, flags=flags)) as host:
        model = host.load(library.path("bert"), threads=1)
        while largest(folder) <= MORE_THAN_A_HEAD:
            assert time.monotonic() < end, "no optimised code was kept"
            model.time(RUNS)


def largest(folder: Path) -> int:
    """Bytes of the largest entry of a cache, which its browser may exchange meanwhile."""
    sizes = [0]
    for entry in folder.glob("*_0"):
        with suppress(FileNotFoundError):
            sizes.append(entry.stat().st_size)
    return max(sizes)
