"""The winners of one device, linked into the bundle as a server does for the next of its class.

Input: a host, kernels, poor or good defaults.  Output: results/tuning.next_device.json: the first
inference in new browsers, and the share of the optimum's speed.  Two bundles of the optimum show
how much first inferences differ by themselves.

    python -m benchmarks tuning.next_device --host chromium --kernel K0
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from benchmarks.common import Run
from benchmarks.options import Host, Runs, SessionSeconds, among
from benchmarks.records import Row
from benchmarks.tuning.sessions import (
    STARTS,
    kernel_bundle,
    page,
    speed_ratios,
    visit,
)
from benchmarks.tuning.subjects import SUBJECTS
from benchmarks.tuning.sweep import optimum_of, swept
from lab.paper_spaces import PAPER
from lab.subjects import alone
from lab.timing import turn
from tilewright.bundle import open_bundle, write
from tilewright.compiler import Options
from tilewright.tuning.candidates import space_of
from tilewright.tuning.relink import relink


def measure(host: str, name: str, start: str, seconds: float, runs: int) -> Row:
    """The start of the next device of the class, compared with the optimum as default."""
    step = SUBJECTS[name]()
    with tempfile.TemporaryDirectory(prefix="tilewright-tuning-") as folder:
        built = kernel_bundle(step, start, Path(folder) / "bundle")
        session, device = visit(host, built, seconds)
        space = space_of(step.kernel, device)
        optimum = optimum_of(swept(), host, name, space)
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
        "host": host, "subject": name, "start": start, "device": device.id,
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


def main(
    run: Run,
    host: Host = "chromium",
    kernel: Annotated[list[str] | None, among(SUBJECTS, "Kernels; repeatable")] = None,
    start: Annotated[list[str] | None, among(STARTS, "Defaults; repeatable")] = None,
    seconds: SessionSeconds = 20.0,
    runs: Runs = 15,
) -> None:
    for name in kernel or PAPER:
        for first in start or STARTS:
            run.keep(measure(host, name, first, seconds, runs))
