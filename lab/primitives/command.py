"""`primitives`: times the two settings of every schedule primitive against each other on each
engine.

Input: hosts, findings of other machines.  Output: the ratio of each primitive per device, which
ratios are consistent, and the file that fixes settings in the space of candidates.
"""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Group

from lab.primitives import findings
from lab.primitives.findings import Device, Finding, Findings
from lab.primitives.table import MATMUL, MEASURED, Columns, Setup, setup
from lab.subjects import WASM, candidates, matmul_step
from tilewright import __version__
from tilewright.api.host_registry import (
    Timer,
    check_timing,
    engine_of,
    open_timers,
    targets_of,
    timing_hosts,
)
from tilewright.base.errors import UsageError, one_of
from tilewright.bundle import write
from tilewright.cli.options import Json
from tilewright.cli.output import Answer, Show, progress, table
from tilewright.cli.output_files import Output
from tilewright.cli.tools import cpu
from tilewright.compiler import Options
from tilewright.hosts.browser_discovery import KINDS
from tilewright.targets import DEFAULT

# Engines compile a function again, in the background, after it has run for a while.  So all
# settings run for some passes before they are timed.
LEAST_PASSES, MOST_PASSES = 5, 16
#: A pass in which nothing became faster by more than this ends the warm-up.
WARM = 0.95
#: Runs of a setting in a round; the fastest counts.
RUNS = 2
#: Rounds of a primitive, and how many are enough if the settings differ by more than `FAR`.  Their
#: number is fixed: testing after every round until the interval decides would find false
#: differences.
ROUNDS, FEW_ROUNDS, FAR = 15, 6, 1.25


@dataclass(frozen=True)
class BundleKind:
    """The options that one bundle is compiled with: how its code is made, and the layout of the
    columns."""

    columns: Columns
    without: frozenset[str]
    variants: tuple[str, ...]


@dataclass(frozen=True)
class TimedPlan:
    """A plan: the number of its bundle, and its number in the bundle."""

    bundle: int
    plan: int


def primitives(
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="Measure on this host: chromium, firefox or wasmtime. You can repeat this option."
        ),
    ] = None,
    add: Annotated[
        list[Path] | None,
        typer.Option(
            help="Add the findings in this file from another machine. You can repeat this option."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", help="Write all findings to this file. Findings of other devices stay in it."
        ),
    ] = None,
    as_json: Json = False,
) -> Answer:
    """Measure which setting of each schedule primitive is faster, on every engine that is here."""
    able = [name for name in timing_hosts() if targets_of(name) == DEFAULT]
    hosts = list(dict.fromkeys(host or (() if add else able)))
    for name in hosts:
        check_timing(name)
        if name not in able:
            raise UsageError(
                f"The kernels of {name} have no primitives yet",
                hint=one_of(able),
            )
    documents = [findings.read(path) for path in add or ()]
    file = None if output is None else Output(output, lambda _: True)  # the type is checked below
    if file is not None:
        file.check()
        if file.path.is_file():
            documents.insert(0, findings.read(file.path))
    with progress(as_json) as report:
        documents.append(Findings(MATMUL, tuple(measure(name, report) for name in hosts)))
    document = findings.merged(documents)
    if file is not None:
        with file.open() as stream:
            stream.write(findings.encoded(document))
    return Answer(findings.to_json(document), _view(document))


def measure(host: str, report: Show) -> Device:
    """Measures all primitives on one engine with one thread."""
    engine = engine_of(host)
    report(host, 0, 1)
    with tempfile.TemporaryDirectory(prefix="tilewright-primitives-") as folder:
        paths, places = bundles(Path(folder))
        with open_timers(host, paths, 1) as timers:
            found = _timed(host, timers, places, report)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Device(host, host in KINDS, engine, cpu(), today, __version__, found)


def bundles(folder: Path) -> tuple[list[Path], dict[tuple[str, bool], TimedPlan]]:
    """Writes one bundle per `BundleKind`, with one plan per schedule.  Returns the folders, and the
    plan of each (primitive, whether tuned)."""
    ways: dict[BundleKind, list[Setup]] = {}
    places: dict[tuple[str, bool], TimedPlan] = {}
    steps = {c: matmul_step(*MATMUL, weight=c == "packed") for c in get_args(Columns)}
    for primitive in MEASURED:
        for tuned in (False, True):
            built = setup(primitive, tuned, steps[primitive.columns].kernel)
            way = BundleKind(primitive.columns, built.without, built.variants)
            setups = ways.setdefault(way, [])
            if built not in setups:
                setups.append(built)
            places[primitive.name, tuned] = TimedPlan(list(ways).index(way), setups.index(built))
    paths = []
    for number, (way, setups) in enumerate(ways.items()):
        options = Options(targets=(WASM,), variants=way.variants, without=way.without)
        subject = candidates(steps[way.columns], [dict(s.schedules) for s in setups], options)
        paths.append(folder / str(number))
        write(subject.contents, paths[-1])
    return paths, places


def _timed(
    host: str, timers: Sequence[Timer], places: dict[tuple[str, bool], TimedPlan], report: Show
) -> dict[str, Finding]:
    def run(name: str, tuned: bool) -> float:
        place = places[name, tuned]
        return min(timers[place.bundle](RUNS, place.plan))

    total = len(MEASURED) + 1
    distinct = {place: key for key, place in places.items()}
    warm_up([partial(run, *key) for key in distinct.values()])
    found = {}
    for done, primitive in enumerate(MEASURED, 1):
        report(f"{host}: {primitive.name}", done, total)
        found[primitive.name] = comparison(partial(run, primitive.name))
    return found


def warm_up(runs: Sequence[Callable[[], float]]) -> None:
    """Runs all in turn until none becomes faster; an engine compiles one while the others run."""
    best = [float("inf")] * len(runs)
    for number in range(MOST_PASSES):
        times = [run() for run in runs]
        settled = all(t > WARM * b for t, b in zip(times, best, strict=True))
        if settled and number >= LEAST_PASSES:
            return
        best = [min(pair) for pair in zip(times, best, strict=True)]


def comparison(run: Callable[[bool], float]) -> Finding:
    """The ratio of untuned to tuned times, from alternating runs; each is first in every other
    round."""
    ratios: list[float] = []
    while len(ratios) < ROUNDS:
        first = len(ratios) % 2 == 1
        times = {tuned: run(tuned) for tuned in (first, not first)}
        if min(times.values()) <= 0:
            raise UsageError("The clock is too coarse for this product", hint="Use another host")
        ratios.append(times[False] / times[True])
        if len(ratios) == FEW_ROUNDS and (min(ratios) > FAR or max(ratios) < 1 / FAR):
            break
    return findings.median_interval(ratios)


def _view(document: Findings) -> Group:
    decided = findings.decisions(document.devices)
    rows = []
    for primitive in MEASURED:
        if primitive.name not in decided:
            continue
        cells = [_cell(d.findings.get(primitive.name)) for d in document.devices]
        decision = decided[primitive.name]
        verdict: str = decision.verdict
        if decision.tuned is not None:
            verdict += f": {primitive.setting(decision.tuned).label}"
        rows.append(
            (primitive.name, primitive.untuned.label, primitive.tuned.label, *cells, verdict)
        )
    shape = "x".join(map(str, document.matmul))
    browsers = [d for d in document.devices if d.browser]
    count = len(browsers)
    heads = [d.host for d in document.devices]
    said = (
        f"Matmul {shape}, one thread: time at the untuned setting over time at the tuned one, with "
        f"its interval.\nDecided by {count} {'browser' if count == 1 else 'browsers'} on "
        f"{len({d.cpu for d in browsers})} kind(s) of processor: consistent needs "
        f"{findings.SURE_LEAST} sure ones that agree; --add joins others."
    )
    return Group(table(("primitive", "untuned", "tuned", *heads, "across devices"), rows), "", said)


def _cell(found: Finding | None) -> str:
    return "" if found is None else f"{found.ratio:.2f} [{found.low:.2f} {found.high:.2f}]"
