"""The server as files: all that a page needs, for any server of static files.

Input: a bundle's folder.  Output: engine, tuner, page and compiler beside the bundle's own files,
under addresses that are relative to it.  docs/modes.md lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.bundle.written import FolderPart, check
from tilewright.server.app import WEB
from tilewright.server.pyodide import FILES, SOURCE
from tilewright.tuning.source import source_zip

#: Folders of the web part that a static page asks for.
SCRIPTS = ("engine", "tune", "static")
#: Of the last one, what must lie at the top: a service worker sees only what is below it.
TOP = ("index.html", "sw.js")
COMPILER = "compiler"


def page_files(web: Path = WEB) -> dict[str, Path]:
    """Engine, tuner and page: where each lies below the folder, and where it comes from."""
    top = {name: web / "static" / name for name in TOP}
    scripts = (path for name in SCRIPTS for path in sorted((web / name).rglob("*.js")))
    return top | {p.relative_to(web).as_posix(): p for p in scripts if p.name not in TOP}


def compiler_files() -> tuple[str, ...]:
    """What `write_compiler` writes."""
    return tuple(f"{COMPILER}/{name}" for name in (*FILES, SOURCE))


def write_pages(folder: Path, web: Path = WEB) -> int:
    """Engine, tuner and page; gives the bytes."""
    return _put(folder, "page", {name: p.read_bytes() for name, p in page_files(web).items()})


def write_compiler(folder: Path, core: Path) -> int:
    """The compiler's source and Pyodide's core (server/pyodide.py); gives the bytes."""
    files = {f"{COMPILER}/{name}": (core / name).read_bytes() for name in FILES}
    return _put(folder, COMPILER, files | {f"{COMPILER}/{SOURCE}": source_zip()})


def _put(folder: Path, name: str, files: Mapping[str, bytes]) -> int:
    check(folder, files)
    with FolderPart(folder, name) as section:
        for file, data in files.items():
            section.put(file, data)
    return sum(map(len, files.values()))
