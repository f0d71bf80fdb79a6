"""The page of device classes: kernels by classes with winners, filters, empty states, layout."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from helpers.crowd import agreed

from tilewright.bundle import open_bundle
from tilewright.cli.compile_workers import makers
from tilewright.server import Tuning
from tilewright.server.reports import key_of
from tilewright.store import KernelStore, StoredReport, StoredVote
from tilewright.targets.device_classes import find
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import kernels_of

from .bundles import Library
from .conftest import Visit
from .serving import serving

pytestmark = [pytest.mark.by_turns, pytest.mark.one_in(2)]

WIDE, NARROW = "wasm-x86-relaxed-48k", "wasm-x86-simd"


@pytest.fixture
def url(library: Library, tmp_path: Path) -> str:
    """Two classes agree on two different candidates."""
    bundle = open_bundle(library.path("linear"))
    agreed(tmp_path, bundle, WIDE, {0: 3}, ("chromium",))
    return agreed(tmp_path, bundle, NARROW, {0: 5}, ("chromium", "firefox"))


def tuning(url: str) -> Tuning:
    return Tuning(makers(0), partial(KernelStore.open, url))


def test_winners_by_class(visit: Visit, library: Library, url: str, tmp_path: Path) -> None:
    kernel = kernels_of(open_bundle(library.path("linear")))[0]
    space = space_of(kernel, find(WIDE))
    with serving({}, tuning=tuning(url)) as site:
        page = visit(f"{site.url}/classes")
        found = page.do("classes")
        assert found["state"] == "ready"
        assert found["head"] == [f"{WIDE} chromium", f"{NARROW} chromium", f"{NARROW} firefox"]
        ((name, *cells),) = found["rows"]
        assert space.kind in name
        assert space.shape in name
        assert [cell.split("×")[0].split(" · ")[0] for cell in cells] == ["#3", "#5", "#5"]
        assert all("default" in cell and "1.3" in cell for cell in cells)
        page.do("select", selector="#filter-class", value=NARROW)
        assert len(page.do("classes")["head"]) == 2
        page.do("select", selector="#filter-browser", value="firefox")
        assert page.do("classes")["head"] == [f"{NARROW} firefox"]
        page.do("type", selector="#filter-kernel", text="no such kernel")
        assert page.do("classes")["rows"] == []
        assert page.do("log")["errors"] == []
        page.do("type", selector="#filter-kernel", text="")
        for width in (320, 1280):
            narrow = visit(f"{site.url}/classes", width)
            narrow.do("classes")
            found = narrow.do("layout", screenshot=str(tmp_path / f"classes-{width}.png"))
            assert not found["overflow"], found["outside"]
            assert found["outside"] == []


def test_the_newest_compiler_is_shown_and_the_servers_own_before_it(
    visit: Visit, library: Library, tmp_path: Path
) -> None:
    """Votes of others are not added: their candidates have other numbers."""
    bundle = open_bundle(library.path("linear"))
    url = f"sqlite:///{tmp_path / 'kernels.db'}"
    own = key_of(space_of(kernels_of(bundle)[0], find(WIDE)), "chromium")
    told = {
        replace(own, compiler="tilewright 0.0.9", device=NARROW): 6,
        replace(own, compiler="tilewright 0.0.10", device=NARROW): 7,
        replace(own, compiler="tilewright 0.0.1"): 6,
        replace(own, compiler="tilewright 99.0.0"): 8,
    }
    with KernelStore.open(url) as store:
        for number, (key, candidate) in enumerate(told.items()):
            for voice in range(9):
                report = StoredReport(f"nonce-{number}-{voice}", key, (StoredVote(candidate, 1.5),))
                assert store.submit(report, f"source-{voice}").accepted
    agreed(tmp_path, bundle, WIDE, {0: 3}, ("chromium",))
    with serving({}, tuning=tuning(url)) as site:
        found = visit(f"{site.url}/classes").do("classes")
    assert found["head"] == [f"{WIDE} chromium", f"{NARROW} chromium"]
    ((_, *cells),) = found["rows"]
    assert [cell.split(" · ")[0] for cell in cells] == ["#3", "#7"]
    assert "25 reports" in found["text"]


def test_nothing_reported_yet(visit: Visit, tmp_path: Path) -> None:
    with serving({}, tuning=tuning(f"sqlite:///{tmp_path / 'empty.db'}")) as site:
        found = visit(f"{site.url}/classes").do("classes")
    assert found["state"] == "empty"
    assert "No device has reported yet" in found["empty"]
    assert "tilewright tune" in found["empty"]


def test_no_database(visit: Visit) -> None:
    with serving({}) as site:
        found = visit(f"{site.url}/classes").do("classes")
    assert found["state"] == "empty"
    assert "--store" in found["empty"]


def test_database_down(visit: Visit, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with serving({}, tuning=tuning(f"sqlite:///{tmp_path}/file/kernels.db")) as site:
        found = visit(f"{site.url}/classes").do("classes")
    assert found["state"] == "error"
    assert "The store does not answer" in found["text"]
