"""Tuning in a page: speed reached, time taken, effect on inference; with the page's own tuner.

Input: a browser, a part, models as ONNX files.  Output: results/tuning.page_tuner.json, a row per
case.

    rounds   from poor and from good defaults, per kernel: rounds until the kernel in use has 97 %
             of the speed of the exhaustive optimum (results/tuning.sweep.json), and its share after
             32.  All kernels that were in use are timed again, alternating with the optimum
    known    winners of one device, linked into the bundle as a server does for the next one of its
             class: the first inference in new browsers, and the share of the optimum's speed; two
             bundles of the optimum show how much first inferences differ by themselves
    server   milliseconds for the code of one candidate
    model    a whole model: seconds until the last swap, the speed relative to the model of good
             defaults, and the gain that the session itself reports
    never    sessions from good defaults, each followed by tuned and default, alternating
    p95      latency of inferences with and without tuning; see latency.py
    memory   of the browser before, while and after a model is tuned

    python -m benchmarks tuning.page_tuner rounds --host chromium --kernel K0
    python -m benchmarks tuning.page_tuner model --model minilm.onnx --shape input_ids=1x128
    python -m benchmarks tuning.page_tuner memory --host firefox --net bart-base-128
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import onnx
import typer

from benchmarks.common import Run
from benchmarks.optimum import SLOWER, reached, share_after
from benchmarks.options import among, part_of
from benchmarks.peers.models import Text, bart
from benchmarks.records import Row
from benchmarks.tuning import sweep as sweeps
from benchmarks.tuning.browser_memory import Sampled, resting
from benchmarks.tuning.latency import p95
from benchmarks.tuning.sessions import (
    BUILT,
    STARTS,
    kernel_bundle,
    model_bundle,
    named,
    page,
    speed_ratios,
    told,
    tune,
    tuned,
    visit,
)
from lab.subjects import alone
from lab.timing import turn
from tilewright.base.errors import UsageError
from tilewright.bundle import open_bundle, write
from tilewright.cli.options import Shapes
from tilewright.compiler import Options
from tilewright.frontend import parse_shapes
from tilewright.targets.wasm import TARGETS
from tilewright.tuning.candidates import build, space_of
from tilewright.tuning.relink import relink

KERNELS = ("K0", "K1", "K2", "K3")
#: Published sizes but for the vocabulary, whose table is looked up only.
NETS = {"bart-base-128": lambda: bart(Text(length=128, layers=6, words=1000))}
OF_KERNELS, OF_MODELS = ("rounds", "known", "server"), ("model", "never", "p95", "memory")
PARTS = (*OF_KERNELS, *OF_MODELS)
#: Seconds of a look at the memory of a page that rests.
RESTING = 3.0
#: Browsers for each kind of bundle, or sessions.
RUNS = {"known": 15, "never": 10}
KEY = ("part", "host", "subject", "start")
#: What rows say of the time that trials took.
EVALUATION = (
    "evaluation_ms", "evaluation_p95_ms", "evaluation_most_ms", "evaluation_stages",
    "longest_stages",
)  # fmt: skip


# ---- rounds --------------------------------------------------------------------------------------


def rounds(host: str, name: str, start: str, seconds: float) -> Row:
    """One session from one start, then every kernel that was in use, timed against the optimum."""
    step = sweeps.SUBJECTS[name]()
    with tempfile.TemporaryDirectory(prefix="tilewright-tuning-") as folder:
        path = kernel_bundle(step, start, Path(folder) / "bundle")
        session, device = visit(host, path, seconds)
        space, machine = space_of(step.kernel, device), TARGETS[device.variant].machine
        optimum = sweeps.optimum_of(sweeps.swept(), host, name, space)
        before = STARTS[start](step.kernel, machine)
        used = [(0, BUILT), *session.used]
        listed = [
            optimum,
            *(before if c == BUILT else space.schedules[c] for _, c in used),
        ]
        beside = sweeps.written(step, listed, device, Path(folder) / "beside")
        times = sweeps.timed(host, beside, len(listed)).times
    shares = [(at, times[0] / t) for (at, _), t in zip(used, times[1:], strict=True)]
    return {
        "part": "rounds", "host": host, "subject": name, "start": start,
        "device": device.id, "tried": len(session.trials),
        "start_share": round(shares[0][1], 3),
        "rounds": reached(shares), "share": round(share_after(shares), 3),
        "last_share": round(shares[-1][1], 3),
        **evaluation_of(session.trials),
        "seconds": round(session.last_swap, 2),
        "verdicts": counted(t["verdict"] for t in session.trials),
    }  # fmt: skip


def evaluation_of(trials: Sequence[Row]) -> Row:
    """Milliseconds of the trials of one session: median, 95th percentile by rank, and most.

    stages: of the mean trial, and of the longest one (docs/tuning-loop.md)
    """
    if not trials:
        return dict.fromkeys(EVALUATION)
    found = sorted(trials, key=lambda t: float(t["milliseconds"]))
    spent = [t["milliseconds"] for t in found]
    last = -(-95 * len(found) // 100) - 1
    names = sorted({name for t in found for name in t["stages"]})
    means = {n: sum(t["stages"].get(n, 0.0) for t in found) / len(found) for n in names}
    values = (statistics.median(spent), spent[last], spent[-1])
    stages = [{n: round(ms, 1) for n, ms in told.items()} for told in (means, found[-1]["stages"])]
    return dict(zip(EVALUATION, [*(round(v, 1) for v in values), *stages], strict=True))


def counted(verdicts: Iterator[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for verdict in verdicts:
        found[verdict] = found.get(verdict, 0) + 1
    return found


# ---- the next device of the class ----------------------------------------------------------------


def known(host: str, name: str, start: str, seconds: float, runs: int) -> Row:
    """The start of the next device of the class, compared with the optimum as default."""
    step = sweeps.SUBJECTS[name]()
    with tempfile.TemporaryDirectory(prefix="tilewright-tuning-") as folder:
        built = kernel_bundle(step, start, Path(folder) / "bundle")
        session, device = visit(host, built, seconds)
        space = space_of(step.kernel, device)
        optimum = sweeps.optimum_of(sweeps.swept(), host, name, space)
        found = {spec: space.schedules[c] for spec, c in session.current.items()}
        relinked, best = Path(folder) / "relinked", Path(folder) / "best"
        write(relink(open_bundle(built), device, found), relinked)
        again = Path(folder) / "again"
        for path in (best, again):
            write(alone(step, Options(schedule=lambda *_: optimum)).contents, path)
        times: dict[Path, list[float]] = {built: [], relinked: [], best: [], again: []}
        for number in range(runs):
            for path in turn(number, list(times)):
                with page(host) as browser:
                    times[path].append(browser.load(path, threads=1).time(1, 0).first)
        with page(host) as browser:
            linked, optimal = (browser.load(path, threads=1) for path in (relinked, best))
            shares = speed_ratios(linked, optimal)
    return {
        "part": "known", "host": host, "subject": name, "start": start, "device": device.id,
        "swaps": len(session.current), **firsts(*times.values()),
        "share": round(statistics.median(shares), 3), "n": runs,
    }  # fmt: skip


def firsts(
    built: Sequence[float], linked: Sequence[float], best: Sequence[float], again: Sequence[float]
) -> Row:
    """Medians and fastest of first inferences, which differ by up to a factor of 2.

    again: of the same bundle as `best`: the share that it has of that is the noise
    """
    row: Row = {}
    for word, judged in (("first", statistics.median), ("fastest", min)):
        own, mine, optimum = judged(built), judged(linked), judged([*best, *again])
        row |= {
            f"built_{word}_ms": round(own, 2),
            f"{word}_ms": round(mine, 2),
            f"optimum_{word}_ms": round(optimum, 2),
            f"{word}_share": round(optimum / mine, 3),
            f"{word}_noise": round(judged(best) / judged(again), 3),
        }
    return row


# ---- the server's part ---------------------------------------------------------------------------


def server(name: str) -> Row:
    """Makes every candidate of a space once, as a server does between two rounds.

    Measures processor time too: on a shared machine, wall time includes others' work.
    """
    kernel, device = sweeps.SUBJECTS[name]().kernel, sweeps.device_here()
    start = time.perf_counter()
    space = space_of(kernel, device)
    listing = (time.perf_counter() - start) * 1e3
    spent, busy, sizes = [], [], []
    for schedule in space.schedules:
        start, worked = time.perf_counter(), time.process_time()
        built = build(kernel, schedule, device.target, device.variant)
        spent.append((time.perf_counter() - start) * 1e3)
        busy.append((time.process_time() - worked) * 1e3)
        sizes.append(len(built.module))
    return {
        "part": "server", "host": "", "subject": name, "start": "", "device": device.id,
        "candidates": len(spent), "space_ms": round(listing, 1),
        "median_ms": round(statistics.median(spent), 1), "most_ms": round(max(spent), 1),
        "cpu_ms": round(statistics.median(busy), 1), "cpu_most_ms": round(max(busy), 1),
        "median_bytes": int(statistics.median(sizes)), "most_bytes": max(sizes),
    }  # fmt: skip


# ---- whole models --------------------------------------------------------------------------------


def whole(host: str, paths: Mapping[str, Path], name: str, start: str, seconds: float) -> Row:
    """Tunes all kernels of a model from one start; then compares it with that of good defaults."""
    with page(host) as browser:
        model, session, summary = tuned(browser, paths[start], seconds)
        # without swaps both are the same model, whatever the clock says
        same = start == "good" and not session.current
        ratios = [] if same else speed_ratios(model, browser.load(paths["good"], threads=1))
    return {
        "part": "model", "host": host, "subject": name, "start": start, "device": session.device,
        "kernels": len(summary["kernels"]), "rounds": len(session.trials),
        "swaps": sum(c != BUILT for _, c in session.used), "seconds": seconds,
        "spent_s": round(session.spent, 2), "last_swap_s": round(session.last_swap, 2),
        "gain": round(statistics.median(ratios), 3) if ratios else None,
        "gain_least": round(min(ratios), 3) if ratios else None, "n": len(ratios), **told(summary),
        **evaluation_of(session.trials),
    }  # fmt: skip


def never(host: str, path: Path, name: str, runs: int, seconds: float) -> Iterator[Row]:
    """Sessions from good defaults: is the tuned model ever the slower one?

    Sessions without swaps show the noise between two equal models, and must report no gain.
    Gives a row after each session.
    """
    changed: list[float] = []
    same: list[float] = []
    devices: list[str] = []
    verdicts: list[str] = []
    for _ in range(runs):
        with page(host) as browser:
            model, session, summary = tuned(browser, path, seconds)
            gain = statistics.median(speed_ratios(model, browser.load(path, threads=1)))
        devices.append(session.device)
        verdicts.append(told(summary)["told"])
        (changed if session.current else same).append(round(gain, 3))
        yield {
            "part": "never", "host": host, "subject": name, "start": "good",
            "device": named(devices),
            "runs": len(changed) + len(same), "seconds": seconds, "changed": len(changed),
            "gain_median": statistics.median(changed) if changed else None,
            "gain_least": min(changed, default=None), "gains": changed,
            "slower": sum(g < SLOWER for g in changed),
            "same_least": min(same, default=None), "same_gains": same,
            "told": counted(iter(verdicts)),
        }  # fmt: skip


def made(name: str, folder: Path) -> Path:
    """A model of `NETS` as a file, whose name says that its weights are random."""
    path = folder / f"{name}-random.onnx"
    onnx.save(NETS[name](), path)
    return path


def memory(host: str, path: Path, name: str, seconds: float) -> Row:
    """Megabytes of the browser with a model that has run, while it is tuned, and afterwards."""
    with page(host) as browser:
        model = browser.load(path, threads=1)
        model.time(10)
        before = resting(RESTING)
        with Sampled() as during:
            session, summary = tune(model, seconds)
        model.time(10)
        after = resting(RESTING)
    return {
        "part": "memory", "host": host, "subject": name, "start": "good", "device": session.device,
        "kernels": len(summary["kernels"]), "rounds": len(session.trials), "seconds": seconds,
        "before_mb": before.usual, "during_mb": during.usual, "most_mb": during.most,
        "after_mb": after.usual,
        "weights_mb": round(open_bundle(path).manifest.weights.bytes / 1e6, 1),
    }  # fmt: skip


# ---- runs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What the parts are told"""

    host: str
    kernels: Sequence[str]
    starts: Sequence[str]
    seconds: float
    runs: int
    every: float


def of_kernels(part: str, asked: Asked) -> Iterator[Row]:
    for name in asked.kernels:
        if part == "server":
            yield server(name)
        for start in asked.starts if part in ("rounds", "known") else ():
            if part == "rounds":
                yield rounds(asked.host, name, start, asked.seconds)
            else:
                yield known(asked.host, name, start, asked.seconds, asked.runs)


def of_models(
    part: str, asked: Asked, source: Path, shapes: Mapping[str, Sequence[int | str]], folder: Path
) -> Iterator[Row]:
    name, host = source.stem, asked.host
    path = model_bundle(source, shapes, folder / name)
    if part == "model":
        paths = {"good": path, "poor": model_bundle(source, shapes, folder / "poor", "poor")}
        for start in asked.starts:
            yield whole(host, paths, name, start, asked.seconds)
    elif part == "memory":
        yield memory(host, path, name, asked.seconds)
    elif part == "never":
        yield from never(host, path, name, asked.runs, asked.seconds)
    else:
        yield p95(host, path, name, asked.seconds, asked.every)


def main(
    run: Run,
    part: Annotated[str, part_of(PARTS)],
    host: Annotated[str, typer.Option(help="Where to run.")] = "chromium",
    kernel: Annotated[list[str] | None, among(sweeps.SUBJECTS, "Kernels; repeatable")] = None,
    start: Annotated[list[str] | None, among(STARTS, "Defaults; repeatable")] = None,
    model: Annotated[Path | None, typer.Option(help="An ONNX file, for whole models.")] = None,
    net: Annotated[str | None, among(NETS, "A model with random weights instead")] = None,
    shape: Shapes = None,
    seconds: Annotated[float, typer.Option(help="Of one session.")] = 20.0,
    runs: Annotated[int, typer.Option(help="Browsers of known (15), sessions of never (10).")] = 0,
    every: Annotated[float, typer.Option(help="Of p95: seconds between inferences.")] = 0.0,
) -> None:
    asked = Asked(
        host, kernel or KERNELS, start or list(STARTS), seconds, runs or RUNS.get(part, 0), every
    )
    with tempfile.TemporaryDirectory(prefix="tilewright-tuning-") as folder:
        if part in OF_KERNELS:
            found = of_kernels(part, asked)
        else:
            if model is None and net is None:
                raise UsageError(f"{part} needs a model", hint="Give --model or --net")
            source = model or made(net or "", Path(folder))
            found = of_models(part, asked, source, parse_shapes(shape or []), Path(folder))
        for row in found:
            run.keep(row, KEY)
