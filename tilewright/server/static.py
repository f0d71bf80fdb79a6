"""A static site: everything a page needs as files, for any static file server.

Input: a bundle's folder.  Output: engine, tuner, page and compiler beside the bundle's own files,
with relative addresses.  docs/modes.md lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.bundle.owned_files import FolderPart, check
from tilewright.server.app import WEB
from tilewright.server.pyodide import FILES, SOURCE
from tilewright.tuning.source_zip import source_zip

#: Folders of tilewright/web that a static page loads files from.
SCRIPTS = ("engine", "tune", "static")
#: Files of `static` that are copied to the top folder, since a service worker controls only its own
#: folder and those below.
TOP = ("index.html", "sw.js")
COMPILER = "compiler"


def page_files(web: Path = WEB) -> dict[str, Path]:
    """Engine, tuner and page: source file by path below the folder."""
    top = {name: web / "static" / name for name in TOP}
    kinds = (web / name for name in SCRIPTS)
    scripts = (p for k in kinds for p in sorted(k.rglob("*")) if p.suffix in (".js", ".css"))
    return top | {p.relative_to(web).as_posix(): p for p in scripts if p.name not in TOP}


def compiler_files() -> tuple[str, ...]:
    """Paths of the files that `write_compiler` writes."""
    return tuple(f"{COMPILER}/{name}" for name in (*FILES, SOURCE))


def write_pages(folder: Path, web: Path = WEB) -> int:
    """Writes engine, tuner and page; returns their bytes.  Raises as `written.check`."""
    return put(folder, "page", {name: p.read_bytes() for name, p in page_files(web).items()})


def write_compiler(folder: Path, core: Path) -> int:
    """Writes the compiler's source and Pyodide's core (server/pyodide.py); returns their size in
    bytes.

    Raises UsageError as `owned_files.check`.
    """
    files = {f"{COMPILER}/{name}": (core / name).read_bytes() for name in FILES}
    return put(folder, COMPILER, files | {f"{COMPILER}/{SOURCE}": source_zip()})


def put(folder: Path, name: str, files: Mapping[str, bytes]) -> int:
    check(folder, files)
    with FolderPart(folder, name) as section:
        section.put_all(files)
    return sum(map(len, files.values()))
