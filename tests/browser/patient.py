"""The web files of an engine and a tuner that give nobody up soon, however busy the machine is.

Input: which limits stay as people have them.  Output: a folder for the server.  A candidate that
hangs on purpose (`hangs` in its header, tuning.mjs) is given up once it was silent for a second.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tilewright.server.app import WEB

from .replacing import replace_once

LONG = "600_000"
#: By name: a file, a line of it that is there once, and what stands there instead.
LIMITS = {
    "auto": ("engine/auto.js", "[TIMEOUT, TIMES] = [10_000,", f"[TIMEOUT, TIMES] = [{LONG},"),
    "start": ("engine/pool.js", "START_LIMIT = 10_000;", f"START_LIMIT = {LONG};"),
    "take": ("engine/exchange.js", "TAKE_LIMIT = 2000;", f"TAKE_LIMIT = {LONG};"),
    "files": ("engine/opfs_cache.js", "TIMEOUT = 30_000;", f"TIMEOUT = {LONG};"),
    "job": ("tune/exchange/guard.js", "TIMEOUT = 5000;", f"TIMEOUT = {LONG};"),
    "answer": (
        "tune/exchange/unresponsive_gpu.js",
        "[ANSWER, TIMES] = [500,",
        f"[ANSWER, TIMES] = [{LONG},",
    ),
    "server": ("tune/sources/socket.js", "TIMEOUT = 15_000;", f"TIMEOUT = {LONG};"),
    "trial": ("tune/trial/trials.js", "TIMEOUT = 4000;", f"TIMEOUT = {LONG};"),
}
#: What goes on after a job was given up may take its time in any case.
ALWAYS = (
    ("tune/exchange/guard.js", "slowest()) * times)",
     "slowest()) * times * (acts ? 100 : 1))"),
    ("tune/trial/trials.js", "    this.#trusted = this.#asked++",
     "    globalThis.underTrial = work.candidate.digest;\n    this.#trusted = this.#asked++"),
    ("tune/trial/trials.js", "Math.ceil(this.#patience / LOOK)",
     "Math.ceil((this.#trying && globalThis.hanging?.includes(globalThis.underTrial)"
     " ? 1000 : this.#patience) / LOOK)"),
)  # fmt: skip


def patient(folder: Path, *, but: tuple[str, ...] = ()) -> Path:
    """but: names of limits that stay"""
    web = shutil.copytree(WEB, folder / "web")
    for file, line, instead in (*(LIMITS[n] for n in LIMITS if n not in but), *ALWAYS):
        replace_once(web / file, line, instead)
    return web


def with_gpu_worker(folder: Path, more: str, *, but: tuple[str, ...] = ()) -> Path:
    """The same, with `more` at the end of the engine's worker of WebGPU."""
    web = patient(folder, but=but)
    worker = web / "engine" / "gpu_worker.js"
    worker.write_text(worker.read_text() + more)
    return web


@cache
def _shared(but: tuple[str, ...]) -> tuple[Path, TemporaryDirectory[str]]:
    folder = TemporaryDirectory()
    return patient(Path(folder.name), but=but), folder


def shared(*but: str) -> Path:
    """The same for all tests of a process; nobody changes it."""
    return _shared(but)[0]
