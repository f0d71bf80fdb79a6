"""The same tuner, to the end, in each mode: static, on the client, with a server here or elsewhere.

Input: small bundles as `build --static --client` leaves them.  Output: every candidate was tried,
and what the page shows.  The sources alone: test_modes.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.once import made_once, shared_root

from tilewright.bundle import Bundle, open_bundle, write
from tilewright.cli.compile_workers import makers
from tilewright.server import Tuning
from tilewright.server.headers import ISOLATION
from tilewright.server.pyodide import core
from tilewright.server.static import write_compiler, write_pages
from tilewright.targets.device_classes import CLASSES, find
from tilewright.tuning.candidate_folder import tunable_classes, write_candidates
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import kernels_of
from tilewright.tuning.relink import relink

from .bundles import Library
from .conftest import Visit
from .serving import plain, serving
from .test_modes import DEVICE, remove_index, write_blank

pytestmark = [pytest.mark.by_turns, pytest.mark.one_in(2)]

VERDICTS = {"faster", "same", "slower"}


@pytest.fixture(scope="session")
def whole(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `build --static --client` writes, of one kernel with few candidates."""
    return (
        made_once(
            shared_root(tmp_path_factory) / "whole",
            lambda root: publish(library.copied("difference", root / "site")),
        )
        / "site"
    )


def publish(folder: Path) -> None:
    write_pages(folder)
    write_candidates(open_bundle(folder), tunable_classes(()))
    write_compiler(folder, core())


@pytest.fixture(scope="session")
def relinked(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a bundle that starts with candidate 1, in whatever variant."""

    def put(root: Path) -> None:
        bundle = open_bundle(library.path("difference"))
        (kernel,) = kernels_of(bundle)
        for number, build in enumerate(bundle.manifest.section("wasm").builds):
            device = next(c for c in CLASSES.values() if c.variant == build.variant)
            winners = {0: space_of(kernel, device).schedules[1]}
            write(relink(bundle, device, winners), root / f"{number}")
            bundle = open_bundle(root / f"{number}")
        publish(bundle.folder)
        bundle.folder.rename(root / "site")

    return made_once(shared_root(tmp_path_factory) / "relinked", put) / "site"


def all_of(bundle: Bundle) -> set[tuple[int, int]]:
    """Every candidate; this kernel has the same ones on every class."""
    kernels = enumerate(kernels_of(bundle))
    return {(spec, n) for spec, k in kernels for n in space_of(k, find(DEVICE)).order}


@pytest.mark.parametrize("mode", ["static", "client"])
def test_page_tunes_by_itself(visit: Visit, whole: Path, mode: str) -> None:
    """From a server that knows nothing but files; its page is isolated all the same."""
    with plain(whole) as url:
        found = visit(f"{url}/?tune={mode}").do("staticPage")
    known = all_of(open_bundle(whole))
    assert found["state"] == f"done after {len(known)} trials"
    assert found["isolated"]
    assert {(int(spec), int(number)) for spec, number, *_ in found["trials"]} == known
    assert {verdict for _, _, verdict, *_ in found["trials"]} <= VERDICTS


@pytest.mark.parametrize("mode", ["static", "client"])
def test_page_tunes_a_relinked_bundle(visit: Visit, relinked: Path, mode: str) -> None:
    """The compiler's own candidate comes first and judges the bundle's; then all others come."""
    with plain(relinked) as url:
        found = visit(f"{url}/?tune={mode}").do("staticPage")
    wanted_ = {(0, 0)} | all_of(open_bundle(relinked)) - {(0, 1)}
    tried = [(int(spec), int(number)) for spec, number, *_ in reversed(found["trials"])]
    assert found["state"] == f"done after {len(wanted_)} trials"
    assert tried[0] == (0, 0)
    assert set(tried) == wanted_
    assert {verdict for _, _, verdict, *_ in found["trials"]} <= VERDICTS


def test_page_tunes_for_the_folders_objective(
    visit: Visit, library: Library, tmp_path: Path
) -> None:
    """Without being told; another one than the folder's is refused with what to do."""
    site = library.copied("staged", tmp_path / "site")
    write_pages(site)
    write_candidates(open_bundle(site), tunable_classes(("wasm",)), "traffic")
    with plain(site) as url:
        found = visit(f"{url}/?tune=static").do("staticPage")
        other = visit(f"{url}/?tune=static&objective=scratch").do("staticPage")
    order = space_of(kernels_of(open_bundle(site))[0], find("wasm"), "traffic").trial
    tried = [int(number) for _, number, *_ in reversed(found["trials"])]
    assert found["state"] == f"done after {len(tried)} trials"
    assert tried[0] == order[0]
    assert set(tried) <= set(order)
    assert "objective: 'traffic'" in other["state"]
    assert not other["trials"]


def test_page_runs_a_model_of_tokens(visit: Visit, library: Library, tmp_path: Path) -> None:
    """Integer inputs, buckets; nothing to tune was built."""
    site = library.copied("bert", tmp_path / "site")
    write_pages(site)
    with plain(tmp_path) as url:
        found = visit(f"{url}/site/?tune=none").do("staticPage")
    assert found["state"].startswith("ready")
    assert found["threads"] >= 1


def test_page_says_what_is_wrong(visit: Visit, whole: Path, tmp_path: Path) -> None:
    site = shutil.copytree(whole, tmp_path / "site")
    remove_index(site)
    with plain(site) as url:
        found = visit(f"{url}/?tune=static").do("staticPage")
    assert "index.json" in found["state"]
    assert "--static" in found["state"] or "Check the URL" in found["state"]


def test_a_folder_that_is_away_for_a_while(visit: Visit, whole: Path, tmp_path: Path) -> None:
    """In mid-session: it is asked again, and every candidate is tried once."""
    site = shutil.copytree(whole, tmp_path / "site")
    write_blank(site)
    with plain(site) as url:
        found = visit(f"{url}/blank.html").do("tuneOffline", base=f"{url}/", failures=2)
    trials = [(e["spec"], e["candidate"]) for e in found["events"] if e["type"] == "trial"]
    assert set(trials) == all_of(open_bundle(whole))
    assert len(trials) == len(set(trials)) == found["summary"]["rounds"]
    kinds = [e["type"] for e in found["events"]]
    assert kinds.count("lost") == kinds.count("resumed") >= 1
    assert kinds[-1] == "end"


def test_page_tunes_with_a_server(visit: Visit, library: Library) -> None:
    bundle = open_bundle(library.path("difference"))
    with serving({"m": bundle.folder}, tuning=Tuning(makers=makers(0))) as running:
        found = visit(running.blank).do("tuneByServer", url=running.bundle("m"))
    assert {(t["spec"], t["candidate"]) for t in found["trials"]} == all_of(bundle)
    assert {t["verdict"] for t in found["trials"]} <= VERDICTS
    assert found["summary"]["rounds"] == len(found["trials"])


def test_page_of_another_site_tunes_with_a_server(
    visit: Visit, library: Library, tmp_path: Path
) -> None:
    """Its own server knows only files; the other one lists it, and gives classes and candidates."""
    site = library.copied("difference", tmp_path / "m")
    write_pages(site)
    write_blank(site)
    bundle = open_bundle(site)
    with plain(tmp_path, ISOLATION) as url:
        tuning = Tuning(makers=makers(0), origins=frozenset({url}))
        with serving({"m": bundle.folder}, tuning=tuning) as running:
            socket = f"{running.url.replace('http', 'ws')}/api/tune"
            page = visit(f"{url}/m/blank.html")
            found = page.do("tuneByServer", url=f"{url}/m/", base="/m/", socket=socket)
            assert running.server.asked("/api/classes") == 1
    assert found["isolated"]
    assert {(t["spec"], t["candidate"]) for t in found["trials"]} == all_of(bundle)
    assert {t["verdict"] for t in found["trials"]} <= VERDICTS
