"""Tuning without a server, in real browsers: candidates from a folder, and made in the page.

Input: small bundles as `build --static --client` leaves them, on a server that knows only files.
Output: the same modules, byte for byte, as the compiler makes here; faults give typed errors.  What
a page does with them: test_modes_pages.py.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from helpers.once import made_once, shared_root

from tilewright.bundle import Bundle, open_bundle
from tilewright.server.pyodide import core
from tilewright.server.static import write_compiler, write_pages
from tilewright.targets.device_classes import CLASSES, find
from tilewright.tuning.candidate_folder import write_candidates
from tilewright.tuning.candidates import build, space_of
from tilewright.tuning.catalogue import kernels_of

from .bundles import Library, edit_manifest, flip
from .conftest import Visit
from .driver import Page
from .serving import plain, serving

pytestmark = [pytest.mark.by_turns, pytest.mark.one_in(2)]

DEVICE = "wasm-x86-simd-32k"
WIDER = "wasm-x86-simd"
Take = Callable[..., Any]


@pytest.fixture(scope="session")
def published(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with one small bundle, its candidates, and the compiler."""

    def put(root: Path) -> None:
        folder = library.copied("linear", root / "linear")
        write_pages(folder)
        write_candidates(open_bundle(folder), [find(WIDER)])
        write_compiler(folder, core())
        write_blank(folder)

    return made_once(shared_root(tmp_path_factory) / "published", put) / "linear"


def write_blank(folder: Path) -> None:
    """A page that does nothing by itself."""
    (folder / "blank.html").write_text("<!doctype html><link rel=icon href=data:,>")


@pytest.fixture
def site(published: Path, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A copy to spoil, below some address: not at the root of its server."""
    folder = tmp_path / "some" / "where"
    shutil.copytree(published, folder)
    with plain(tmp_path) as url:
        yield folder, f"{url}/some/where/"


def hello_of(bundle: Bundle, **other: Any) -> dict[str, Any]:
    specs = list(range(len(kernels_of(bundle))))
    digest = bundle.pointer.manifest.digest
    return {
        "digest": digest,
        "device": DEVICE,
        "variant": find(other.get("device", DEVICE)).variant,
        "objective": "latency",
        "shares": [],
        "specs": specs,
        "tried": {},
    } | other


@pytest.fixture
def take(visit: Visit, site: tuple[Path, str]) -> Take:
    """Takes candidates on a page of the site."""
    folder, url = site
    pages: list[Page] = []

    def taken(kind: str, count: int = 1000, *, given: Any = None, **options: Any) -> Any:
        if not pages:
            pages.append(visit(f"{url}blank.html"))
        usual = f"{url}tuning/" if kind == "folder" else {"bundle": url}
        hello = options.pop("hello", None) or hello_of(open_bundle(folder))
        return pages[0].do(
            "source", base=url, kind=kind, given=given or usual, hello=hello, count=count, **options
        )

    return taken


def expected(bundle: Bundle, device: str) -> Callable[[int, int], str]:
    """The digest of any candidate, as the compiler makes it here."""
    kernels, variant = kernels_of(bundle), find(device).variant
    schedules = cache(lambda spec: space_of(kernels[spec], find(device)).schedules)
    return lambda spec, number: (
        build(kernels[spec], schedules(spec)[number], "wasm", variant).digest
    )


def check_same(taken: list[Any], known: Callable[[int, int], str]) -> None:
    for sent in taken:
        assert "error" not in sent, sent
        assert sent["found"] == sent["digest"] == known(sent["spec"], sent["candidate"])
        assert sent["valid"]


# ---- candidates from a folder --------------------------------------------------------------------


def test_folder_gives_every_candidate(take: Take, site: tuple[Path, str]) -> None:
    """Of the nearest class that was built, in the order of trial, without the default."""
    bundle = open_bundle(site[0])
    found = take("folder")
    known = expected(bundle, WIDER)
    check_same(found["taken"], known)
    order = space_of(kernels_of(bundle)[0], find(WIDER)).order
    assert [sent["candidate"] for sent in found["taken"]] == list(order)
    assert found["classes"] == len(CLASSES)
    (offer,) = found["welcome"]["kernels"]
    assert offer["count"] == len(order) + 1
    assert found["welcome"]["compiler"] == bundle.manifest.tool


def test_folder_skips_what_was_tried(take: Take, site: tuple[Path, str]) -> None:
    order = space_of(kernels_of(open_bundle(site[0]))[0], find(WIDER)).order
    hello = hello_of(open_bundle(site[0]), tried={0: list(order[1:])})
    found = take("folder", hello=hello)
    assert [sent["candidate"] for sent in found["taken"]] == [order[0]]


def refused(take: Take, kind: str, folder: Path, fault: tuple[Callable[[Path], Any], str]) -> None:
    """A typed error with a way out, and no candidate before it."""
    spoil, code = fault
    spoil(folder)
    found = take(kind)
    assert found["error"]["code"] == code, found["error"]
    assert found["error"]["hint"]
    assert not found["taken"]


def edit_index(folder: Path, **changes: Any) -> None:
    index = folder / "tuning" / "index.json"
    index.write_text(json.dumps(json.loads(index.read_bytes()) | changes))


def remove_index(folder: Path) -> None:
    (folder / "tuning" / "index.json").unlink()


def cut_index(folder: Path) -> None:
    index = folder / "tuning" / "index.json"
    index.write_bytes(index.read_bytes()[:100])


def flip_list(folder: Path) -> None:
    for path in (folder / "tuning" / "blobs").glob("*.json"):
        flip(path)


FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "no index": (remove_index, "network"),
    "half an index": (cut_index, "bundle-corrupt"),
    "a page instead": (
        lambda f: (f / "tuning" / "index.json").write_text("<!doctype html>") and None,
        "bundle-corrupt",
    ),
    "no spaces": (lambda f: edit_index(f, spaces=None), "bundle-corrupt"),
    "a newer format": (lambda f: edit_index(f, format=2), "bundle-version"),
    "an older format": (lambda f: edit_index(f, format=0), "bundle-version"),
    "another build": (
        lambda f: edit_index(f, tool="tilewright 9", bundle="0" * 64),
        "bundle-version",
    ),
    "a flipped bit in the list": (flip_list, "bundle-corrupt"),
    "a file elsewhere": (
        lambda f: edit_index(f, spaces={DEVICE: {"file": "../x", "digest": "0", "bytes": 1}}),
        "bundle-corrupt",
    ),
    "an absurd length": (
        lambda f: edit_index(
            f, spaces={DEVICE: {"file": f"blobs/{'0' * 64}.json", "digest": "0", "bytes": 1e15}}
        ),
        "bundle-corrupt",
    ),
    "other classes": (lambda f: edit_index(f, spaces={}), "unsupported-host"),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("fault", FAULTS)
def test_folder_that_is_broken(take: Take, site: tuple[Path, str], fault: str) -> None:
    refused(take, "folder", site[0], FAULTS[fault])


@pytest.mark.parametrize("objective", ["latency", "traffic"])
def test_folder_for_another_objective(
    take: Take, site: tuple[Path, str], library: Library, objective: str
) -> None:
    """One for latency has all candidates and serves every objective; another one says so."""
    shutil.rmtree(site[0])
    library.copied("staged", site[0])
    write_pages(site[0])
    write_blank(site[0])
    bundle = open_bundle(site[0])
    write_candidates(bundle, [find(WIDER)], objective)  # type: ignore[arg-type]
    found = take("folder", hello=hello_of(bundle, objective="scratch"))
    if objective == "latency":
        order = space_of(kernels_of(bundle)[0], find(WIDER), "scratch").trial
        assert [sent["candidate"] for sent in found["taken"]] == list(order)
        return
    error = found["error"]
    assert (error["code"], error["facts"]["found"], error["facts"]["expected"]) == (
        "input", "traffic", "scratch",
    )  # fmt: skip
    assert "--static" in error["hint"]
    assert not found["taken"]


def test_module_that_is_missing_or_damaged(take: Take, site: tuple[Path, str]) -> None:
    """In the middle: each says what it lacks, and the others still come."""
    folder = site[0]
    order = space_of(kernels_of(open_bundle(folder))[0], find(WIDER)).order
    known = expected(open_bundle(folder), WIDER)
    digests = [known(0, candidate) for candidate in order]
    blobs = folder / "tuning" / "blobs"
    assert digests.count(digests[1]) == digests.count(digests[2]) == 1
    flip(blobs / f"{digests[1]}.wasm")
    (blobs / f"{digests[2]}.wasm").unlink()
    found = take("folder")["taken"]
    damaged, missing = found[1]["error"], found[2]["error"]
    assert (damaged["code"], damaged["facts"]["expected"]) == ("bundle-corrupt", digests[1])
    assert (missing["code"], missing["facts"]["status"]) == ("bundle-corrupt", 404)
    assert [sent.get("digest") for sent in found] == [digests[0], None, None, *digests[3:]]


# ---- candidates from the compiler in the page ----------------------------------------------------
@pytest.mark.each_browser
def test_client_makes_the_same_bytes(take: Take, site: tuple[Path, str]) -> None:
    bundle = open_bundle(site[0])
    found = take("pyodide")
    assert "error" not in found, found["error"]
    check_same(found["taken"], expected(bundle, DEVICE))
    order = space_of(kernels_of(bundle)[0], find(DEVICE)).order
    assert [sent["candidate"] for sent in found["taken"]] == list(order)
    assert found["classes"] == len(CLASSES)
    assert found["started"]["tool"] == bundle.manifest.tool


def test_client_makes_every_kind_of_kernel(visit: Visit, library: Library) -> None:
    """On our own server, within its content policy: seven runs of four candidates."""
    bundle = open_bundle(library.path("bert"))
    with serving({"bert": bundle.folder}, pyodide=core()) as running:
        page = visit(running.blank)
        given = {"bundle": running.bundle("bert")}
        hello = hello_of(bundle)
        found = page.do(
            "source", base=f"{running.url}/", kind="pyodide", given=given, hello=hello, count=28
        )
        assert "error" not in found, found["error"]
        assert not running.server.violations
    check_same(found["taken"], expected(bundle, DEVICE))
    assert len({offer["kind"] for offer in found["welcome"]["kernels"]}) > 2
    assert len({sent["spec"] for sent in found["taken"]}) > 5


def test_client_goes_on_after_a_candidate_that_cannot_be_made(
    take: Take, site: tuple[Path, str]
) -> None:
    """As the other two modes do."""
    bundle = open_bundle(site[0])
    space = space_of(kernels_of(bundle)[0], find(DEVICE))
    bad = space.order[2]
    module = "tilewright/tuning/page_compiler.py"
    faulty = f"""
from tilewright.base.errors import CompilerBug
build_any = build
def build(kernel, schedule, *variant):
    if str(schedule) == {str(space.schedules[bad])!r}:
        raise CompilerBug("this one cannot be made")
    return build_any(kernel, schedule, *variant)
"""
    archive = site[0] / "compiler" / "source.zip"
    with ZipFile(archive) as old:
        files = {name: old.read(name) for name in old.namelist()}
    with ZipFile(archive, "w") as new:
        for name, data in files.items():
            new.writestr(name, data + faulty.encode() if name == module else data)
    found = take("pyodide")
    assert "error" not in found, found["error"]
    check_same(found["taken"], expected(bundle, DEVICE))
    assert [sent["candidate"] for sent in found["taken"]] == [n for n in space.order if n != bad]


def drop(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "compiler" / name).unlink()


CLIENT_FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no interpreter": (drop("pyodide.asm.wasm"), "host"),
    "half an interpreter": (
        lambda f: os.truncate(f / "compiler" / "pyodide.asm.wasm", 1 << 20),
        "host",
    ),
    "no start script": (drop("pyodide.mjs"), "host"),
    "no standard library": (drop("python_stdlib.zip"), "host"),
    "no compiler": (drop("source.zip"), "host"),
    "a damaged compiler": (lambda f: (f / "compiler" / "source.zip").write_bytes(b"PK"), "host"),
    "no worker": (lambda f: (f / "tune" / "sources" / "pyodide_worker.js").unlink(), "host"),
    "another version": (
        lambda f: edit_manifest(f, lambda m: m.update(tool="tilewright 9")),
        "bundle-version",
    ),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("fault", CLIENT_FAULTS)
def test_compiler_that_does_not_start(take: Take, site: tuple[Path, str], fault: str) -> None:
    refused(take, "pyodide", site[0], CLIENT_FAULTS[fault])


def test_client_can_be_stopped(take: Take) -> None:
    """While Python starts."""
    assert take("pyodide", abort=50)["error"] == "AbortError"
