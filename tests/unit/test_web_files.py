"""The service worker keeps every file that the page needs, and the engine stays small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.delivered import delivered, need_bundler

from benchmarks.models import sizes
from tilewright.server.app import WEB

#: What no page fetches: documentation, types, and the service worker itself.
NOT_FETCHED = {"LICENSE", "README.md", "sw.js"}
NO_SCRIPTS = (".d.ts", ".d.mts", ".map")
#: The server's answers that are no files.
COMPUTED = {"/api/bundles"}


@pytest.fixture(params=["checkout", "delivered"])
def web(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return WEB if request.param == "checkout" else delivered(tmp_path_factory)


def kept_files(web: Path) -> set[str]:
    """The list FILES of sw.js: single addresses, and names that are mapped to a template."""
    text = (web / "page" / "sw.js").read_text()
    (listed,) = re.findall(r"const FILES = \[\n(.*?)\n\];", text, re.DOTALL)
    mapped = re.compile(r"\.\.\.\[([^\]]*)\]\s*\.map\(\(name\) => `([^`]*)`\)")
    kept = set()
    for names, template in mapped.findall(listed):
        kept |= {template.replace("${name}", n) for n in re.findall(r"'([^']+)'", names)}
    return kept | set(re.findall(r"'([^']+)'", mapped.sub("", listed)))


def files_of(root: Path, prefix: str) -> set[str]:
    names = (p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())
    fetched = (n for n in names if n.rpartition("/")[2] not in NOT_FETCHED)
    return {f"{prefix}{name}" for name in fetched if not name.endswith(NO_SCRIPTS)}


def imported(file: Path, found: set[Path]) -> set[Path]:
    """Files that this one leads to: what it imports, now or on demand, and its workers."""
    if file in found or not file.exists():
        return found
    found.add(file)
    named = r"(?:from |import\(|import |new URL\()'(\.[^']+\.js)'"
    for name in re.findall(named, file.read_text()):
        imported((file.parent / name).resolve(), found)
    return found


def tuner_files() -> set[str]:
    """Of web/tune, what the page and the engine lead to: not the sources that other pages use."""
    found: set[Path] = set()
    for file in (*(WEB / "page").glob("*.js"), *(WEB / "engine").glob("*.js")):
        imported(file.resolve(), found)
    tuner = WEB / "tune"
    return {f"/tune/{f.relative_to(tuner).as_posix()}" for f in found if tuner in f.parents}


def test_service_worker_keeps_every_file(web: Path) -> None:
    page = {f.removesuffix("index.html").removesuffix(".html") for f in files_of(web / "page", "/")}
    served = page | files_of(web / "engine", "/engine/") | files_of(web / "vendor", "/vendor/")
    served |= tuner_files() | files_of(web / "language", "/language/")
    assert kept_files(web) == served | COMPUTED


def test_engine_is_small() -> None:
    """As it is delivered, without its comments."""
    need_bundler()
    files = sizes.delivered()
    assert set(sizes.ENGINE) < set(files)
    assert sum(files.values()) <= sizes.ENGINE_LIMIT, files


def test_language_models_are_small() -> None:
    """With the engine, the tokenizer and the template engine."""
    need_bundler()
    files = sizes.delivered(sizes.LANGUAGE)
    assert set(sizes.ENGINE) < set(files)
    assert sum(files.values()) <= sizes.LANGUAGE_LIMIT, files
