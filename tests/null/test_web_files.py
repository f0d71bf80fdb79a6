"""The service worker keeps every file that the page needs, and the engine stays small."""

from __future__ import annotations

import re
from pathlib import Path

import tilewright

WEB = Path(tilewright.__file__).parent / "web"
ENGINE_BYTES = 60_000
#: What no page fetches: documentation, types, and the service worker itself.
NOT_FETCHED = {"LICENSE", "README.md", "sw.js"}
TYPES = (".d.ts", ".d.mts")
#: The server's answers that are no files.
COMPUTED = {"/api/bundles"}


def kept_files() -> set[str]:
    """The list FILES of sw.js: single addresses, and names that are mapped to a template."""
    text = (WEB / "page" / "sw.js").read_text()
    (listed,) = re.findall(r"const FILES = \[\n(.*?)\n\];", text, re.DOTALL)
    mapped = re.compile(r"\.\.\.\[([^\]]*)\]\s*\.map\(\(name\) => `([^`]*)`\)")
    kept = set()
    for names, template in mapped.findall(listed):
        kept |= {template.replace("${name}", n) for n in re.findall(r"'([^']+)'", names)}
    return kept | set(re.findall(r"'([^']+)'", mapped.sub("", listed)))


def files_of(folder: str, prefix: str) -> set[str]:
    root = WEB / folder
    names = (p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())
    fetched = (n for n in names if n.rpartition("/")[2] not in NOT_FETCHED)
    return {f"{prefix}{name}" for name in fetched if not name.endswith(TYPES)}


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
    return {f"/tune/{f.name}" for f in found if f.parent.name == "tune"}


def test_service_worker_keeps_every_file() -> None:
    page = {f.removesuffix("index.html").removesuffix(".html") for f in files_of("page", "/")}
    served = page | files_of("engine", "/engine/") | files_of("vendor", "/vendor/")
    served |= tuner_files()
    assert kept_files() == served | COMPUTED


def test_engine_is_small() -> None:
    sizes = {p.name: p.stat().st_size for p in (WEB / "engine").rglob("*.js")}
    assert "engine.js" in sizes
    assert sum(sizes.values()) <= ENGINE_BYTES, sizes
