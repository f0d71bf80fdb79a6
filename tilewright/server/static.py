"""The server as files: all that a page needs, for any server of static files.

Input: a bundle's folder.  Output: engine, tuner, page and compiler beside the bundle's own files,
under addresses that are relative to it.  docs/modes.md lists them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from tilewright.bundle.writer import replace
from tilewright.server.app import WEB
from tilewright.server.pyodide import FILES, SOURCE
from tilewright.tuning.source import source_zip

#: Folders of the web part that a static page asks for.
SCRIPTS = ("engine", "tune", "static")
#: Of the last one, what must lie at the top: a service worker sees only what is below it.
TOP = ("index.html", "sw.js")
COMPILER = "compiler"


def write_pages(folder: Path, web: Path = WEB) -> int:
    """Engine, tuner and page; gives the bytes."""
    total = _copy((web / "static" / name for name in TOP), folder)
    for name in SCRIPTS:
        scripts = (f for f in (web / name).glob("*.js") if f.name not in TOP)
        total += _copy(scripts, folder / name)
    return total


def write_compiler(folder: Path, core: Path) -> int:
    """The compiler's source and Pyodide's core (server/pyodide.py); gives the bytes."""
    into = folder / COMPILER
    copied = _copy((core / name for name in FILES), into)
    source = source_zip()
    replace(into / SOURCE, source)
    return copied + len(source)


def _copy(files: Iterable[Path], into: Path) -> int:
    into.mkdir(parents=True, exist_ok=True)
    return sum(Path(shutil.copyfile(f, into / f.name)).stat().st_size for f in sorted(files))
