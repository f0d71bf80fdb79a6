"""Compares Tilewright with other engines, alternating in the same browser and the same run.

Input: names of cases or groups, engines, threads.  Output: results/peers.browsers.json, case by
case; rows of other cases from earlier runs stay.  See README.md in this folder.

    python -m benchmarks peers.browsers --only k0,mobilenet_v2 --engines tilewright,ort
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import Run
from benchmarks.options import Browser, Models, separated
from benchmarks.peers.cases import CASES, QUICK, Case, chosen, groups
from benchmarks.peers.engines import ENGINES, HERE, Engine
from benchmarks.peers.files import Absent, Files, prepared
from benchmarks.peers.machine import ENGINE as MACHINE
from benchmarks.peers.machine import limit_files, limits
from benchmarks.peers.measure import QUICK as QUICK_PLAN
from benchmarks.peers.measure import (
    EngineRow,
    Lane,
    Plan,
    about,
    attempt,
    finished,
    idle,
    label,
    opened,
    remembered,
    rounds,
    warmed,
)
from benchmarks.peers.session import Session, quietly_closed
from benchmarks.records import Row
from tilewright.base.errors import TilewrightError
from tilewright.hosts.browser_discovery import require

#: Turns of 30 ms, behind 1.2 s in which the kernels get warm.
LIMIT_PLAN = Plan(seconds=2.4, rounds=40)


class Sessions:
    """Sessions that kernels share; one that failed is ended, the next case gets a new one."""

    def __init__(self, browser: str, engines: Mapping[str, Engine] = ENGINES) -> None:
        self.browser, self.engines = browser, engines
        self._open: dict[tuple[str, int], Session] = {}
        self.limits: list[Lane] = []

    def start_limits(self, threads: Sequence[int]) -> None:
        """The kernels that show what the machine can do, for each number of threads."""
        for files in limit_files():
            for count in threads:
                # a page each: both are ready at any time
                session = self._open.setdefault(
                    (f"{MACHINE} {files.case.name}", count),
                    Session(MACHINE, count, self.browser).__enter__(),
                )
                session.add(files)
                lane = Lane(session, files, {"status": "ok", "why": ""}, driver=True)
                self.limits.append(lane)
                attempt(lane, partial(opened, lane, "again"), say)
                attempt(lane, partial(warmed, lane, LIMIT_PLAN), say)

    def get(self, engine: str, threads: int, fresh: bool) -> Session:
        key = (engine, threads)
        if fresh:
            self.drop(key)
        if key not in self._open:
            asked = self.engines[engine].asked
            self._open[key] = Session(engine, threads, self.browser, asked).__enter__()
        return self._open[key]

    def drop(self, key: tuple[str, int]) -> None:
        if key in self._open:
            quietly_closed(self._open.pop(key))

    def drop_all(self) -> None:
        for key in list(self._open):
            self.drop(key)


@contextmanager
def sessions(browser: str, engines: Mapping[str, Engine] = ENGINES) -> Iterator[Sessions]:
    made = Sessions(browser, engines)
    try:
        yield made
    finally:
        made.drop_all()


def measure(
    files: Files, pool: Sessions, wanted: Sequence[tuple[str, int]], plan: Plan
) -> list[EngineRow]:
    """All engines with their threads on one case; a row each, also for engines that cannot run."""
    model = files.case.group == "model"
    rows: list[EngineRow] = []
    lanes: list[Lane] = []
    for engine, count in wanted:
        version = ENGINES[engine].version
        row = EngineRow(engine=engine, threads=count, status="ok", why="", version=version)
        rows.append(row)
        if (why := files.missing.get(ENGINES[engine].needs)) is not None:
            row |= {"status": "skipped", "why": why}
            continue
        try:
            session = pool.get(engine, count, fresh=model)
        except TilewrightError as error:
            row |= {"status": "failed", "why": str(error)}
            continue
        session.add(files)
        lanes.append(Lane(session, files, row))
    for lane in lanes:
        attempt(lane, partial(_ready, lane, plan, model), say)
    idle(lanes, say)
    bounds = pool.limits
    for bound in bounds:
        bound.rounds.clear()
        bound.inside.clear()
    rounds([lane for lane in [*bounds, *lanes] if lane.alive], plan, time.monotonic, say)
    for bound in bounds:
        finished(bound)
    for lane in lanes:
        if model:
            attempt(lane, partial(remembered, lane), say)
        finished(lane)
        attempt(lane, lane.session.close, say)
        if model or not lane.alive:
            pool.drop((lane.session.engine, lane.session.threads))
    for row in rows:
        row |= {"flops": files.flops, "bytes": files.case.bytes}
        row |= limits(bounds, row["threads"])
    return rows


def _ready(lane: Lane, plan: Plan, model: bool) -> None:
    """A model's first visit in a new browser, then its second; a kernel in a page that is there."""
    say(f"  {label(lane)} …")
    opened(lane, "cold" if model else "again")
    if not lane.alive:
        say(f"  {label(lane)}: {lane.row['why']}")
        return
    if model:
        remembered(lane)
    if model and plan.visits and not lane.slow(plan):
        # engines keep optimised code for the next visit only after it has been used for a while
        warmed(lane, plan)
        lane.session.reload()
        opened(lane, "warm")
    warmed(lane, plan)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def install(engines: Mapping[str, Engine] = ENGINES) -> None:
    """The pinned packages, if they are not there yet."""
    if all((HERE / "node_modules" / e.package).is_dir() for e in engines.values() if e.package):
        return
    say("installing the other engines (npm ci)")
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run(command, cwd=HERE, check=True, stdout=sys.stderr)


def prepare(cases: Sequence[Case], engines: Sequence[str], models: Path) -> None:
    """Bundles and the other files that a run would make first."""
    for number, case in enumerate(cases, 1):
        try:
            missing = prepared(case, models, needs(engines)).missing
        except Absent as error:
            missing = {"model": str(error)}
        found = "; ".join(f"{kind}: {why}" for kind, why in missing.items())
        say(f"[{number}/{len(cases)}] {case.name} {found}")


def lanes_of(engines: str, threads: str) -> list[tuple[str, int]]:
    """`"ort,jax:1"` with `"1,2"` → ort on 1 and 2 threads, jax on 1."""
    counts = [int(count) for count in threads.split(",")]
    found = []
    for name, _, only in (part.partition(":") for part in separated(engines)):
        found += [(name, count) for count in counts if not only or count == int(only)]
    return found


def needs(engines: Sequence[str]) -> set[str]:
    return {ENGINES[engine].needs for engine in engines}


def main(
    run: Run,
    only: Annotated[
        str, typer.Option(help=f"Cases or groups ({', '.join(groups(CASES))}), with commas.")
    ] = "",
    engines: Annotated[
        str, typer.Option(help="With commas; jax:1 runs on one thread only.")
    ] = ",".join(ENGINES),
    threads: Annotated[str, typer.Option(help="With commas.")] = "1,2",
    browser: Browser = "chromium",
    models: Models = Path("dist/models"),
    seconds: Annotated[
        float | None, typer.Option(help="For an engine on a case, loading aside.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Instead of the usual number.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few cases and rounds, one visit.")
    ] = False,
    preparing: Annotated[
        bool, typer.Option("--prepare", help="Make the files, measure nothing.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="Names of all cases.")] = False,
) -> None:
    # a time limit around this command sends SIGTERM: the browsers must end then, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if listed:
        print("\n".join(f"{case.group:8} {case.name}" for case in CASES))
        return
    wanted = lanes_of(engines, threads)
    names = list(dict.fromkeys(engine for engine, _ in wanted))
    if unknown := set(names) - set(ENGINES):
        raise SystemExit(f"Unknown engines: {unknown}. Known are {', '.join(ENGINES)}")
    plan = QUICK_PLAN if quick else Plan()
    plan = replace(plan, seconds=seconds or plan.seconds, rounds=rounds or plan.rounds)
    cases = chosen(CASES, separated(only) or (QUICK if quick else ()))
    if any(ENGINES[name].package for name in names):
        install()
    if preparing:
        prepare(cases, names, models)
        return
    facts: Row = {
        "run": uuid.uuid4().hex[:8],
        "browser": browser,
        "browser_version": require(browser).version(),
        "quick": quick,
    }
    with sessions(browser) as pool:
        pool.start_limits(sorted({count for _, count in wanted}))
        for number, case in enumerate(cases, 1):
            say(f"[{number}/{len(cases)}] {case.name}")
            found = measured(case, models, pool, wanted, plan)
            rows = [{"case": case.name, "group": case.group, **facts, **row} for row in found]
            for row in rows:
                run.show(row)
            # at once: the run may be ended before its last case
            run.save(rows)


def measured(
    case: Case, models: Path, pool: Sessions, wanted: Sequence[tuple[str, int]], plan: Plan
) -> list[EngineRow]:
    """A row for each engine, or one that says why there is none."""
    try:
        files = prepared(case, models, needs([engine for engine, _ in wanted]))
    except Absent as error:
        say(f"  skipped: {error}")
        return [{"engine": "", "threads": 0, "status": "absent", "why": str(error)}]
    rows = measure(files, pool, wanted, plan)
    for row in rows:
        say(f"  {row['engine']:10} ×{row['threads']}  {about(row)}")
    return rows
