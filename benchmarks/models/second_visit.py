"""Whether browsers cache the optimised code of a bundle's kernels for the next visit.

Input: a bundle.  Output: results/models.second_visit.json: a row per module, habit and visit.
There are three visits with one profile, each in a new browser process: load, first inference, a
while of inferences, then some idle seconds.  Modules alternate, with new profiles each round.

    python -m benchmarks models.second_visit .demo/bundle

Habits of Chromium: `usual`, and `eager`, where a flag of V8 writes optimised code at once instead
of after two seconds without any (see docs/decisions/0006): the best case.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import Run
from benchmarks.records import Row
from lab.timing import WARM_MS, turn
from tilewright.bundle import Bundle, open_bundle, write
from tilewright.hosts.browser import BrowserHost
from tilewright.hosts.browser_discovery import require
from tilewright.targets.device_classes import DeviceClass, find
from tilewright.targets.schedule import Schedule
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import kernels_of
from tilewright.tuning.relink import relink

#: Visits of a profile, and rounds of new ones.
ROUNDS, VISITS = 5, 3
#: Seconds that a visitor stays after the inferences: V8 waits two before it writes.
STAYS = {"usual": 3.0, "eager": 0.5}
HABITS: Mapping[str, tuple[str, ...]] = {
    "usual": (),
    "eager": ("--js-flags=--wasm-caching-timeout-ms=0",),
}
DEVICE = "wasm-x86-relaxed-48k"
#: Kernels that the relinked bundle has with another schedule.
RELINKED = 3


def kept(profile: Path) -> int:
    """Bytes of compiled WebAssembly in the profile."""
    entries = (profile / "Default" / "Code Cache" / "wasm").glob("*_0")
    return max((entry.stat().st_size for entry in entries), default=0)


@dataclass(frozen=True)
class Subject:
    """A module to load again: its bundle and code."""

    name: str
    habit: str
    bundle: Path
    variant: str

    def module_bytes(self) -> int:
        builds = open_bundle(self.bundle).manifest.section("wasm").builds
        return next(b.code.bytes for b in builds if b.variant == self.variant)


@dataclass
class Seen:
    """Milliseconds of a visit in each round; the most bytes of cached code that it found."""

    load: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    found: list[int] = field(default_factory=list)


def winners(bundle: Bundle, device: DeviceClass) -> dict[int, Schedule]:
    """Other schedules of the largest products."""
    products = [(n, k) for n, k in enumerate(kernels_of(bundle)) if k.name.startswith("contract")]
    products.sort(key=lambda product: -product[1].flops)
    chosen = {}
    for number, kernel in products[:RELINKED]:
        space = space_of(kernel, device)
        chosen[number] = space.schedules[space.order[0]]
    return chosen


def visit(subject: Subject, profile: Path, port: int, seen: Seen) -> None:
    seen.found.append(kept(profile))
    flags = (f"--user-data-dir={profile}", *HABITS[subject.habit])
    with BrowserHost(replace(require("chromium"), flags=flags), port=port) as host:
        model = host.load(subject.bundle, threads=1, variant=subject.variant)
        bucket = model.info["plans"][0]["dims"]
        seen.load.append(model.info["loadMilliseconds"])
        seen.first.append(model.time(1, 0, bucket).first)
        end = time.monotonic() + WARM_MS / 1000
        while time.monotonic() < end:
            model.time(20, 0, bucket)
        time.sleep(STAYS[subject.habit])


def row(subject: Subject, number: int, seen: Seen) -> Row:
    return {
        "subject": subject.name, "habit": subject.habit, "visit": number,
        "module_bytes": subject.module_bytes(),
        "code_bytes": statistics.median(seen.found),
        "code_found": sum(map(bool, seen.found)),
        "load_ms": round(statistics.median(seen.load), 1),
        "first_ms": round(statistics.median(seen.first), 1),
        "first_fastest_ms": round(min(seen.first), 1),
        "n": len(seen.first),
    }  # fmt: skip


def free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def measure(subjects: list[Subject], rounds: int) -> list[Row]:
    port = free_port()
    seen = {subject: [Seen() for _ in range(VISITS)] for subject in subjects}
    for number in range(rounds):
        for subject in turn(number, subjects):
            with tempfile.TemporaryDirectory(prefix="tilewright-visits-") as profile:
                for visits in seen[subject]:
                    visit(subject, Path(profile), port, visits)
    return [row(s, n, found) for s in subjects for n, found in enumerate(seen[s], 1)]


def main(
    run: Run,
    bundle: Annotated[Path, typer.Argument(help="The folder of a bundle.")],
    rounds: Annotated[int, typer.Option(min=1, help="With fewer, nothing is written.")] = ROUNDS,
) -> None:
    opened, device = open_bundle(bundle), find(DEVICE)
    with tempfile.TemporaryDirectory(prefix="tilewright-relinked-") as folder:
        relinked = Path(folder) / "bundle"
        write(relink(opened, device, winners(opened, device)), relinked)
        subjects = [
            Subject(name, habit, path, "x86")
            for habit in HABITS
            for name, path in (("as built", bundle), ("relinked", relinked))
        ]
        subjects.append(Subject("below 128 KiB", "eager", bundle, "x86-simd"))
        rows = measure(subjects, rounds)
    for found in rows:
        run.show(found)
    if rounds >= ROUNDS:
        run.save(rows)
