"""What tuning in a page reaches, costs and disturbs: the page's own tuner, driven from here.

Input: a browser, a part, models as ONNX files.  Output: results/tuning.json, a row per case.

    rounds   from poor and from good defaults, per kernel: rounds until the kernel in use has 97 %
             of the speed of the exhaustive optimum (results/space.json), and its share after 32.
             All kernels that were in use are timed anew beside the optimum, by turns
    known    what one device found, linked into the bundle as a server does for the next one of its
             class: the first inference in a new browser, and the share of the optimum's speed
    server   milliseconds for the code of one candidate
    model    a whole model: seconds until the last swap, and the gain
    never    sessions from good defaults, each followed by tuned and default by turns
    p95      inferences while tuning has its share of the time, beside inferences without

    uv run python benchmarks/tuning.py rounds --host chromium --kernel K0
    uv run python benchmarks/tuning.py model --host chromium --model minilm.onnx --shape 1x128
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import common
import space as sweeps

from tilewright.benchkernel import alone
from tilewright.bundle import open_bundle, write
from tilewright.cli.hosts import open_timers
from tilewright.cli.workers import makers
from tilewright.compiler import Options, compile_model
from tilewright.graph.steps import Step
from tilewright.hosts.browser import BrowserHost, BrowserModel
from tilewright.kernel.schedule import Machine, Schedule, default_schedule
from tilewright.kernel.spec import Kernel
from tilewright.server import Tuning
from tilewright.targets.classes import DeviceClass, find
from tilewright.targets.wasm import TARGETS
from tilewright.tuning.candidates import build, space_of
from tilewright.tuning.primitives import untuned
from tilewright.tuning.relink import relink

Row = dict[str, Any]
KERNELS = ("K0", "K1", "K2", "K3")
STARTS: Mapping[str, Callable[[Kernel, Machine], Schedule]] = {
    "poor": untuned,
    "good": default_schedule,
}
#: Rounds in which the optimum must be reached, and the share that counts as reached.
MOST_ROUNDS, REACHED = 32, 0.97
WARM_MS = 1000.0
#: Browsers with nothing in them, for each kind of bundle.
NEW_DEVICES = 5
#: Share of the time that tuning takes beside a page's own work.
BUDGET = 0.05
#: A tuned model is slower below this.
SLOWER = 0.98
#: Pages in which p95 is looked at, one after the other.
TURNS = 3
KEY = ("part", "host", "subject", "start")


@dataclass
class Session:
    """What the tuner told: trials in order, and which candidate was in use after which trial."""

    trials: list[Row] = field(default_factory=list)
    used: list[tuple[int, int]] = field(default_factory=list)
    last_swap: float = 0.0
    started: float = field(default_factory=time.monotonic)

    def take(self, event: Row) -> None:
        kind = event["type"]
        if kind == "trial":
            self.trials.append(event)
        elif kind == "swap":
            self.used.append((len(self.trials), event["candidate"]))
            self.last_swap = time.monotonic() - self.started


def page(host: str) -> BrowserHost:
    """A browser whose server makes candidates; nothing is reported or remembered."""
    return BrowserHost(host, tuning=Tuning(makers(1)))


def kernel_bundle(step: Step, start: str, path: Path) -> Path:
    """A bundle of that one kernel, with poor or with good defaults."""
    write(alone(step, Options(schedule=STARTS[start])).contents, path)
    return path


def tuned(host: BrowserHost, path: Path, seconds: float) -> tuple[BrowserModel, Session, Row]:
    model = host.load(path, threads=1)
    model.time(3)
    session = Session()
    return model, session, model.tune({"seconds": seconds, "budget": 1}, session.take)


def visit(host: str, path: Path, seconds: float) -> tuple[Session, DeviceClass]:
    """A browser of its own, from its start to the end of one session."""
    with page(host) as browser:
        _, session, summary = tuned(browser, path, seconds)
    return session, find(summary["class"])


# ---- rounds --------------------------------------------------------------------------------------


def rounds(host: str, name: str, start: str, seconds: float) -> Row:
    """One session from one start, then every kernel that was in use, timed beside the optimum."""
    step, optimum = sweeps.SUBJECTS[name](), optimum_of(host, name)
    with tempfile.TemporaryDirectory(prefix="tilewright-tuning-") as folder:
        path = kernel_bundle(step, start, Path(folder) / "bundle")
        session, device = visit(host, path, seconds)
        space, machine = space_of(step.kernel, device), TARGETS[device.variant].machine
        before = STARTS[start](step.kernel, machine)
        used = [(0, -1), *session.used]
        listed = [
            optimum,
            *(space.schedules[c] if c >= 0 else before for _, c in used),
        ]
        beside = sweeps.written(step, listed, device, Path(folder) / "beside")
        with open_timers(host, [beside], 1) as (timer,):
            times = sweeps.sweep(timer, len(listed)).times
    shares = [(at, times[0] / t) for (at, _), t in zip(used, times[1:], strict=True)]
    evaluation = [t["milliseconds"] for t in session.trials]
    return {
        "part": "rounds", "host": host, "subject": name, "start": start,
        "device": device.id, "tried": len(session.trials),
        "start_share": round(shares[0][1], 3),
        "rounds": reached(shares), "share": round(share_after(shares, MOST_ROUNDS), 3),
        "last_share": round(shares[-1][1], 3),
        "evaluation_ms": round(statistics.median(evaluation), 1) if evaluation else None,
        "evaluation_most_ms": round(max(evaluation, default=0.0), 1),
        "seconds": round(session.last_swap, 2),
        "verdicts": counted(t["verdict"] for t in session.trials),
    }  # fmt: skip


def optimum_of(host: str, name: str) -> Schedule:
    """The fastest candidate of the exhaustive sweep."""
    rows = json.loads((common.RESULTS / "space.json").read_text())["rows"]
    found = [r for r in rows if (r["host"], r["kernel"]) == (host, name)]
    if not found:
        raise SystemExit(f"no sweep of {name} on {host}: run benchmarks/space.py first")
    return Schedule.from_json(found[0]["optimum"]["schedule"])


def share_after(shares: Sequence[tuple[int, float]], count: int) -> float:
    """The share of the kernel in use after so many rounds."""
    return [share for at, share in shares if at <= count][-1]


def reached(shares: Sequence[tuple[int, float]], least: float = REACHED) -> int | None:
    """The round from which on the share stays reached; None if it does not."""
    since = None
    for at, share in shares:
        since = None if share < least else at if since is None else since
    return since


def counted(verdicts: Iterator[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for verdict in verdicts:
        found[verdict] = found.get(verdict, 0) + 1
    return found


# ---- the next device of the class ----------------------------------------------------------------


def known(host: str, name: str, start: str, seconds: float) -> Row:
    """What the next device of the class starts with, beside the optimum as its bundle's default."""
    step, optimum = sweeps.SUBJECTS[name](), optimum_of(host, name)
    with tempfile.TemporaryDirectory(prefix="tilewright-tuning-") as folder:
        built = kernel_bundle(step, start, Path(folder) / "bundle")
        session, device = visit(host, built, seconds)
        space = space_of(step.kernel, device)
        found = {0: space.schedules[session.used[-1][1]]} if session.used else {}
        relinked, best = Path(folder) / "relinked", Path(folder) / "best"
        write(relink(open_bundle(built), device, found), relinked)
        write(alone(step, Options(schedule=lambda *_: optimum)).contents, best)
        first: dict[Path, list[float]] = {built: [], relinked: [], best: []}
        for number in range(NEW_DEVICES):
            for path in list(first)[:: 1 if number % 2 else -1]:
                with page(host) as browser:
                    first[path].append(browser.load(path, threads=1).time(1, 0).first)
        with page(host) as browser:
            shares = by_turns(*(browser.load(path, threads=1) for path in (relinked, best)))
    built_ms, first_ms, best_ms = (statistics.median(times) for times in first.values())
    return {
        "part": "known", "host": host, "subject": name, "start": start, "device": device.id,
        "built_first_ms": round(built_ms, 2), "first_ms": round(first_ms, 2),
        "optimum_first_ms": round(best_ms, 2), "first_share": round(best_ms / first_ms, 3),
        "share": round(statistics.median(shares), 3), "n": NEW_DEVICES,
    }  # fmt: skip


# ---- the server's part ---------------------------------------------------------------------------


def server(name: str) -> Row:
    """Every candidate of a space made once, as a server does between two rounds.

    Processor time too: on a machine that others use, the clock counts their work.
    """
    kernel, device = sweeps.SUBJECTS[name]().kernel, sweeps.device_here()
    start = time.perf_counter()
    space = space_of(kernel, device)
    listing = (time.perf_counter() - start) * 1e3
    spent, busy, sizes = [], [], []
    for schedule in space.schedules:
        start, worked = time.perf_counter(), time.process_time()
        built = build(kernel, schedule, TARGETS[device.variant])
        spent.append((time.perf_counter() - start) * 1e3)
        busy.append((time.process_time() - worked) * 1e3)
        sizes.append(len(built.module))
    return {
        "part": "server", "host": "", "subject": name, "start": "",
        "candidates": len(spent), "space_ms": round(listing, 1),
        "median_ms": round(statistics.median(spent), 1), "most_ms": round(max(spent), 1),
        "cpu_ms": round(statistics.median(busy), 1), "cpu_most_ms": round(max(busy), 1),
        "median_bytes": int(statistics.median(sizes)), "most_bytes": max(sizes),
    }  # fmt: skip


# ---- whole models --------------------------------------------------------------------------------


def model_bundle(
    source: Path, shapes: Mapping[str, Sequence[int | str]], path: Path, start: str = "good"
) -> Path:
    write(compile_model(source, Options(shapes=shapes, schedule=STARTS[start])).contents, path)
    return path


def whole(host: str, paths: Mapping[str, Path], name: str, start: str, seconds: float) -> Row:
    """All kernels of a model, from that start; then it and the one of good defaults by turns."""
    with page(host) as browser:
        model, session, summary = tuned(browser, paths[start], seconds)
        ratios = by_turns(model, browser.load(paths["good"], threads=1))
    return {
        "part": "model", "host": host, "subject": name, "start": start,
        "kernels": len(summary["kernels"]), "rounds": len(session.trials),
        "swaps": len(session.used), "seconds": round(seconds, 2),
        "last_swap_s": round(session.last_swap, 2), "gain": round(statistics.median(ratios), 3),
        "gain_least": round(min(ratios), 3),
    }  # fmt: skip


def by_turns(model: BrowserModel, plain: BrowserModel, count: int = 12) -> list[float]:
    """Default's time over the tuned one's, round after round; each time is the fastest of some."""
    for each in (model, plain):
        common.warm_up(each, WARM_MS)
    found = []
    for number in range(count):
        pair = (model, plain) if number % 2 else (plain, model)
        times = {id(m): min(m.time(5, 1).milliseconds) for m in pair}
        found.append(times[id(plain)] / times[id(model)])
    return found


def never(host: str, path: Path, name: str, runs: int, seconds: float) -> Iterator[Row]:
    """Sessions from good defaults: is the tuned model ever the slower one?

    Sessions that changed nothing say how far two equal models lie apart here.  A row after each.
    """
    changed: list[float] = []
    same: list[float] = []
    for _ in range(runs):
        with page(host) as browser:
            model, _, summary = tuned(browser, path, seconds)
            gain = statistics.median(by_turns(model, browser.load(path, threads=1)))
        kernels = summary["kernels"]
        won = any(k["current"]["candidate"] != k["default"]["candidate"] for k in kernels)
        (changed if won else same).append(round(gain, 3))
        yield {
            "part": "never", "host": host, "subject": name, "start": "good",
            "runs": len(changed) + len(same), "seconds": seconds, "changed": len(changed),
            "gain_median": statistics.median(changed) if changed else None,
            "gain_least": min(changed, default=None), "gains": changed,
            "slower": sum(g < SLOWER for g in changed),
            "same_least": min(same, default=None), "same_gains": same,
        }  # fmt: skip


def p95(host: str, path: Path, name: str, seconds: float, every: float) -> Row:
    """Inferences alone, then beside a tuner with its usual budget, in turns.

    every: seconds from one to the next; 0 is one right after the other
    """
    alone: list[float] = []
    beside: list[float] = []
    trials: list[Row] = []
    for _ in range(TURNS):
        with page(host) as browser:
            model = browser.load(path, threads=1)
            common.warm_up(model, WARM_MS)
            alone += inferences(model, seconds / TURNS, every)
            session = Session()
            options = {"budget": BUDGET, "report": False}
            tuner = threading.Thread(target=model.tune, args=(options, session.take))
            tuner.start()
            beside += inferences(model, seconds / TURNS, every)
            # it would go on for minutes: what it does for a page that rests is not the question
            model.dispose()
            tuner.join()
            trials += session.trials
    marks = [statistics.quantiles(times, n=20)[-1] for times in (alone, beside)]
    middles = [statistics.median(times) for times in (alone, beside)]
    return {
        "part": "p95", "host": host, "start": "good",
        "subject": f"{name}, every {every:g} s" if every else name,
        "alone_ms": round(marks[0], 3), "tuning_ms": round(marks[1], 3),
        "ratio": round(marks[1] / marks[0], 3), "median_ratio": round(middles[1] / middles[0], 3),
        "n": len(beside), "trials": len(trials), "busy_s": seconds,
        "tuning_s": round(sum(t["milliseconds"] for t in trials) / 1e3, 2),
    }  # fmt: skip


def inferences(model: BrowserModel, seconds: float, every: float) -> list[float]:
    found: list[float] = []
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        found += model.time(1, 0).milliseconds
        time.sleep(max(0.0, now + every - time.monotonic()))
    return found


# ---- runs ----------------------------------------------------------------------------------------


def rows_of(args: argparse.Namespace) -> Iterator[Row]:
    if args.part == "server":
        yield from (server(name) for name in args.kernel or KERNELS)
        return
    of_kernels = {"rounds": rounds, "known": known}
    if args.part in of_kernels:
        for name in args.kernel or KERNELS:
            for start in args.start or STARTS:
                yield of_kernels[args.part](args.host, name, start, args.seconds)
        return
    shapes = dict(text.split("=", 1) for text in args.shape)
    sizes = {k: [int(n) if n.isdigit() else n for n in v.split("x")] for k, v in shapes.items()}
    with tempfile.TemporaryDirectory(prefix="tilewright-tuning-") as folder:
        path = model_bundle(args.model, sizes, Path(folder) / args.model.stem)
        if args.part == "model":
            poor = model_bundle(args.model, sizes, Path(folder) / "poor", "poor")
            paths = {"good": path, "poor": poor}
            for start in args.start or STARTS:
                yield whole(args.host, paths, args.model.stem, start, args.seconds)
        elif args.part == "never":
            yield from never(args.host, path, args.model.stem, args.runs, args.seconds)
        else:
            yield p95(args.host, path, args.model.stem, args.seconds, args.every)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["rounds", "known", "server", "model", "never", "p95"])
    parser.add_argument("--host", default="chromium")
    parser.add_argument("--kernel", action="append", choices=list(sweeps.SUBJECTS))
    parser.add_argument("--start", action="append", choices=list(STARTS))
    parser.add_argument("--model", type=Path, help="an ONNX file, for whole models")
    parser.add_argument("--shape", action="append", default=[], metavar="INPUT=1x128")
    parser.add_argument("--seconds", type=float, default=20.0, help="of one session")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--every", type=float, default=0.0, help="seconds between inferences")
    args = parser.parse_args()
    if args.model is None and args.part in ("model", "never", "p95"):
        parser.error(f"{args.part} needs --model")
    for row in rows_of(args):
        print(row, flush=True)
        print(common.merge("tuning", [row], KEY))


if __name__ == "__main__":
    main()
