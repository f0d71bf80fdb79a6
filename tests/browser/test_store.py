"""What the engine keeps between visits: together with other tabs, for how long, out of space."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers.waiting import until

from tilewright.bundle import open_bundle
from tilewright.hosts.browser_discovery import Browser

from . import bundles
from .bundles import Library
from .conftest import Visit
from .driver import Page
from .serving import serving

pytestmark = [pytest.mark.by_turns, pytest.mark.one_in(2)]

SHARDS = {"x": [1] * 2048}
LINEAR = {"x": [1] * 96}


def digests(bundle: Path, variant: str) -> set[str]:
    """Everything that a load of the bundle keeps, but for the pointer."""
    opened = open_bundle(bundle)
    manifest = opened.manifest
    section = manifest.section("wasm")
    build = section.build(variant)
    assert build is not None
    files = (section.programs["driver"], build.code, *build.plans, *manifest.weights.shards)
    return {opened.pointer.manifest.digest, *(ref.digest for ref in files)}


def loaded(page: Page, url: str, inputs: Mapping[str, list[int]]) -> str:
    """Loads and runs a bundle; the variant that was taken."""
    found = page.do("engine", url=url, inputs=inputs)
    return str(found["info"]["variant"]["name"])


def kept(page: Page, wanted: set[str], pointers: int) -> set[str]:
    """Kept files but for pointers; old ones are deleted after a load, so there is time for that."""
    names = set(page.do("kept", count=len(wanted) + pointers))
    files = {name for name in names if not name.startswith("pointer-")}
    assert len(names) - len(files) == pointers
    return files


def test_a_load_keeps_what_it_needs(visit: Visit, library: Library) -> None:
    with serving({"shards": library.path("shards")}) as site:
        page = visit(site.blank)
        variant = loaded(page, site.bundle("shards"), SHARDS)
        wanted = digests(library.path("shards"), variant)
        assert kept(page, wanted, 1) == wanted


def test_tabs_that_load_the_same_bundle_at_once(visit: Visit, library: Library) -> None:
    """They write the same files; none gets in another's way, and no half of a file stays."""
    with serving({"shards": library.path("shards")}) as site:
        page = visit(site.blank)
        found = page.do("together", url=site.bundle("shards"), times=4)
        assert [cache["problem"] for cache in found] == [""] * 4
        assert {cache["state"] for cache in found} == {"on"}
        again = page.do("engine", url=site.bundle("shards"), inputs=SHARDS)["info"]
        assert again["cache"]["downloadedBytes"] == 0
        wanted = digests(library.path("shards"), again["variant"]["name"])
        assert kept(page, wanted, 1) == wanted


def test_an_old_bundle_makes_room(visit: Visit, library: Library) -> None:
    """Its files go when another is at its address, but for those that a third one needs."""
    served = {"first": library.path("shards"), "second": library.path("shards")}
    with serving(served) as site:
        page = visit(site.blank)
        variant = loaded(page, site.bundle("first"), SHARDS)
        loaded(page, site.bundle("second"), SHARDS)
        old = digests(library.path("shards"), variant)
        new = digests(library.path("linear"), variant)
        assert kept(page, old, 2) == old
        served["first"] = library.path("linear")
        loaded(page, site.bundle("first"), LINEAR)
        assert kept(page, old | new, 2) == old | new
        served["second"] = library.path("linear")
        loaded(page, site.bundle("second"), LINEAR)
        assert kept(page, new, 2) == new


def test_what_nobody_loads_goes_after_a_month(visit: Visit, library: Library) -> None:
    with serving({"shards": library.path("shards")}) as site:
        page = visit(site.blank)
        wanted = digests(library.path("shards"), loaded(page, site.bundle("shards"), SHARDS))
        page.do("tidyLater", days=29)
        assert kept(page, wanted, 1) == wanted
        page.do("tidyLater", days=31)
        assert kept(page, set(), 0) == set()
        assert loaded(page, site.bundle("shards"), SHARDS)


def test_a_load_that_ends_half_way_replaces_nothing(visit: Visit, library: Library) -> None:
    """Until a new bundle is here as a whole, the old one is what works offline."""
    served = {"model": library.path("linear")}
    shard = bundles.shards(library.path("shards"))[1]
    with serving(served) as site:
        page = visit(site.blank)
        ask = {"url": site.bundle("model"), "inputs": LINEAR}
        first = page.do("engine", **ask)
        served["model"] = library.path("shards")
        with site.server.holding(shard):
            page.do("beginLoad", url=site.bundle("model"))
            site.server.wait_until_asked(shard)
            assert page.do("abandon") == "AbortError"
        assert site.server.asked(shard) == 1
        with site.server.refusing("bundle.json"):
            offline = page.do("engine", **ask)
        assert offline["outputs"] == first["outputs"]
        assert offline["info"]["cache"]["downloadedBytes"] == 0
        assert loaded(page, site.bundle("model"), SHARDS)


def test_out_of_space(visit: Visit, library: Library, browser: Browser) -> None:
    """The bundle runs all the same, the page hears of it, and no half of a file is ever read."""
    if browser.name != "chromium":
        pytest.skip("only Chromium's quota can be set")
    with serving({"shards": library.path("shards")}) as site:
        page = visit(site.blank)
        page.do("quota", bytes=1 << 20)
        ask = {"url": site.bundle("shards"), "inputs": SHARDS}
        full = page.do("engine", **ask)
        assert full["info"]["cache"]["state"] == "off"
        assert "Quota" in full["info"]["cache"]["problem"]
        assert any("Not all files are kept" in text for text in full["info"]["lost"])
        page.do("quota")
        wanted = digests(library.path("shards"), full["info"]["variant"]["name"])
        until(lambda: set(page.do("kept", count=0, patience=0)) < wanted)
        again = page.do("engine", **ask)
        assert again["outputs"] == full["outputs"]
        assert again["info"]["cache"]["state"] == "on"
        assert kept(page, wanted, 1) == wanted
