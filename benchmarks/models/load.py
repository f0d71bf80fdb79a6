"""Load to ready, first run and peak memory beside onnxruntime-web: a first visit, then second ones.

Input: models (the names of benchmarks/peers).  Output: results/models.load.BROWSER.json: a row per
model and engine.  Both engines alternate and do the same: a new browser with an empty profile,
first visit, some runs, then a reload in the same browser with full caches.

    python -m benchmarks models.load --models dist/models --only minilm,roberta_base
    python -m benchmarks models.load --models dist/models --quick

Memory, for both alike: Wasm memory plus JavaScript heap when the model has run, and the most that
the page's process had in memory until then, less what it had before the engine was loaded.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import Run
from benchmarks.options import Browser, Models, separated
from benchmarks.peers.browsers import install, needs, say
from benchmarks.peers.cases import CASES, chosen
from benchmarks.peers.files import Files, prepared
from benchmarks.peers.measure import compared
from benchmarks.peers.session import Session
from benchmarks.records import Row
from lab.timing import WARM_MS

ENGINES = ("tilewright", "ort")
MODELS = ("minilm", "roberta_base", "mobilenet_v2", "squeezenet")
#: Runs between the first visit and the second, so that code which browsers keep is there to keep.
WARM_RUNS = 50


@dataclass
class Seen:
    """What the visits of one engine took: milliseconds, and bytes."""

    cold: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)
    first_cold: list[float] = field(default_factory=list)
    first_warm: list[float] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    peak: list[int] = field(default_factory=list)
    net_peak: list[int] = field(default_factory=list)


def visit(seen: Seen, session: Session, files: Files, again: int) -> None:
    """A first visit in a browser that has just been started, then `again` more."""
    session.add(files)
    empty = session.memory()["resident_peak_bytes"]
    for number in range(1 + again):
        if number:
            session.reload()
        ready = session.open(files)["milliseconds"]
        first, outputs, _ = session.first()
        error, why = compared(outputs, files.expected)
        if why or not error <= files.case.tolerance:
            raise SystemExit(f"{session.engine}, {files.case.name}: {why or f'error {error:.1e}'}")
        (seen.warm if number else seen.cold).append(ready)
        (seen.first_warm if number else seen.first_cold).append(first)
        if number == 0:
            session.warm(WARM_MS, WARM_RUNS)
            memory = session.memory()
            seen.counted.append(memory["wasm_bytes"] + (memory["js_bytes"] or 0))
            if empty is not None:
                seen.peak.append(memory["resident_peak_bytes"])
                seen.net_peak.append(memory["resident_peak_bytes"] - empty)


def figures(seen: Seen) -> dict[str, float | None]:
    """Medians, and the fastest loads too, which are more reliable on a busy machine."""
    found: dict[str, float | None] = {}
    for visit, ready, first in (
        ("cold", seen.cold, seen.first_cold),
        ("warm", seen.warm, seen.first_warm),
    ):
        found |= {
            f"load_{visit}_ms": round(statistics.median(ready), 1),
            f"load_{visit}_fastest_ms": round(min(ready), 1),
            f"load_{visit}_n": len(ready),
            f"first_{visit}_ms": round(statistics.median(first), 1),
        }
    for name, sizes in (
        ("counted_bytes", seen.counted),
        ("resident_peak_bytes", seen.peak),
        ("net_peak_bytes", seen.net_peak),
    ):
        found[name] = int(statistics.median(sizes)) if sizes else None
    return found


def ratios(ours: Mapping[str, float | None], theirs: Mapping[str, float | None]) -> str:
    """Ours over theirs, for the terminal."""
    names = ["load_cold_ms", "load_warm_ms", "load_warm_fastest_ms"]
    names += ["counted_bytes", "resident_peak_bytes", "net_peak_bytes"]
    pairs = ((name, ours[name], theirs[name]) for name in names)
    return ", ".join(f"{name} {mine / other:.2f}" for name, mine, other in pairs if mine and other)


def measure(files: Files, browser: str, threads: int, rounds: int, again: int) -> list[Row]:
    """A row for each engine."""
    seen = {engine: Seen() for engine in ENGINES}
    for number in range(rounds):
        for engine in ENGINES if number % 2 == 0 else reversed(ENGINES):
            with Session(engine, threads, browser) as session:
                visit(seen[engine], session, files, again)
    found = {engine: figures(seen[engine]) for engine in ENGINES}
    say(f"{files.case.name}: {ratios(*found.values())}")
    about: Row = {"case": files.case.name, "threads": threads}
    return [{**about, "engine": engine, **of} for engine, of in found.items()]


def main(
    run: Run,
    only: Annotated[str, typer.Option(help="Models, with commas.")] = ",".join(MODELS),
    models: Models = Path("dist/models"),
    browser: Browser = "chromium",
    threads: Annotated[int, typer.Option(min=1)] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="New browsers per engine.")] = 5,
    visits: Annotated[int, typer.Option(min=1, help="Second visits in each browser.")] = 5,
    quick: Annotated[bool, typer.Option(help="One round, two visits, nothing is written.")] = False,
) -> None:
    rounds, visits = (1, 2) if quick else (rounds, visits)
    install()
    rows: list[Row] = []
    for case in chosen(CASES, separated(only)):
        files = prepared(case, models, needs(ENGINES))
        made = measure(files, browser, threads, rounds, visits)
        for found in made:
            say(str(found))
        rows += made
    if not quick:
        run.save(rows, part=browser, facts={"browser": browser})
