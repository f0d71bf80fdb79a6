"""The service worker keeps every file that the page needs, and the engine stays small."""

from __future__ import annotations

import re
from pathlib import Path

import tilewright

WEB = Path(tilewright.__file__).parent / "web"
ENGINE_BYTES = 60_000
#: What no page fetches: documentation, types, and the service worker itself.
NOT_FETCHED = {"LICENSE", "README.md", "tokenizers.min.d.mts", "types.d.ts", "sw.js"}
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
    return {f"{prefix}{name}" for name in names if name.rpartition("/")[2] not in NOT_FETCHED}


def test_service_worker_keeps_every_file() -> None:
    page = {"/" if f == "/index.html" else f for f in files_of("page", "/")}
    served = page | files_of("engine", "/engine/") | files_of("vendor", "/vendor/")
    assert kept_files() == served | COMPUTED


def test_engine_is_small() -> None:
    sizes = {p.name: p.stat().st_size for p in (WEB / "engine").rglob("*.js")}
    assert "engine.js" in sizes
    assert sum(sizes.values()) <= ENGINE_BYTES, sizes
