"""nnJIT's kernels against the register-only multiply-add peak of the same run, per browser.

Input: browsers.  Output: results/wasm.kernels.json.  Alternating (kernel, peak, kernel, peak),
warm, one thread; the first call of a fresh kernel is reported too.  Ends after enough undisturbed
rounds, or when the time is up.

    python -m benchmarks wasm.kernels [--host chromium --host firefox] [--seconds 40]
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy import relative_error
from benchmarks.common import Run
from benchmarks.options import BROWSERS, Hosts, Seconds
from benchmarks.records import Row
from lab.paper_spaces import PAPER
from lab.subjects import Subject, matmul, peak, product
from lab.timing import WARM_MS, spread, timer_of, warm_up
from tilewright.bundle import write
from tilewright.hosts.browser import BrowserHost

#: Runs of the kernel in a round, and of the peak.
RUNS = 3
#: Number of undisturbed rounds, and how much longer than the fastest their peak runs may take.
QUIET_ROUNDS = 20
QUIET = 1.03

#: Milliseconds of a round's runs: of the kernel, and of the peak after it.
Round = tuple[list[float], list[float]]


def subject_of(name: str) -> tuple[Subject, dict[str, NDArray[np.float32]], NDArray[np.float64]]:
    """The kernel, its inputs, and its result in float64."""
    p, rng = PAPER[name], np.random.default_rng(1)
    if p.batch == 1:
        x = rng.standard_normal((p.m, p.k), np.float32)
        weight = np.random.default_rng(0).standard_normal((p.k, p.n), np.float32)
        return matmul(p.m, p.k, p.n), {"x": x}, x.astype(np.float64) @ weight
    shapes = (p.batch, p.m, p.k), (p.batch, p.k, p.n)
    a, b = (rng.standard_normal(shape, np.float32) for shape in shapes)
    subject = product("bmk,bkn->bmn", *shapes, weight=False)
    return subject, {"a": a, "b": b}, a.astype(np.float64) @ b


def measure(host: BrowserHost, name: str, seconds: float, folder: Path) -> Row:
    subject, inputs, expected = subject_of(name)
    limit = peak()
    models = []
    for part, each in ((name, subject), ("peak", limit)):
        path = folder / host.browser.name / part
        if not path.exists():
            write(each.contents, path)
        models.append(host.load(path, threads=1))
    first = models[0].run(inputs)
    (got,) = first.outputs.values()
    error = relative_error(got, expected)
    for model in models:
        warm_up(timer_of(model), WARM_MS)
    rounds: list[Round] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end and len(quiet(rounds)) < QUIET_ROUNDS:
        rounds.append((models[0].time(RUNS, 1).milliseconds, models[1].time(RUNS, 1).milliseconds))
    for model in models:
        model.dispose()
    facts = {
        "kernel": name,
        "shape": str(PAPER[name]),
        "host": host.browser.name,
        "browser": host.info.get("userAgent", ""),
    }
    last = {"first_ms": round(first.milliseconds, 2), "relative_error": error}
    return facts | summary(rounds, subject, limit) | last


def quiet(rounds: Sequence[Round]) -> list[Round]:
    """Undisturbed rounds, by the peak kernel's times before and after, never by the kernel's."""
    most = QUIET * min((min(peaks) for _, peaks in rounds), default=0.0)
    calm = [max(peaks) <= most for _, peaks in rounds]
    return [r for r, sides in zip(rounds[1:], pairwise(calm), strict=True) if all(sides)]


def summary(rounds: Sequence[Round], subject: Subject, limit: Subject) -> Row:
    """The fastest run, the median of undisturbed rounds and that of all, of kernel and peak alike.

    A neighbour on the same physical core takes up to half of it, for seconds or minutes; a kernel
    that also loads and stores slows down more than the peak does.
    """
    calm = quiet(rounds)
    times, steady = ([[ms for r in of for ms in r[at]] for at in (0, 1)] for of in (rounds, calm))
    fast, middle = ([min(t) for t in times], [statistics.median(t) for t in times])
    figures: Row = {"n_quiet": len(steady[0])}
    found = {"": fast, "_median": middle}
    if calm:
        found["_quiet"] = [statistics.median(t) for t in steady]
    for suffix, (kernel_ms, peak_ms) in found.items():
        gflops, peak_gflops = subject.flops / kernel_ms / 1e6, limit.flops / peak_ms / 1e6
        figures |= {
            f"gflops{suffix}": round(gflops, 2),
            f"peak_gflops{suffix}": round(peak_gflops, 2),
            f"share_of_peak{suffix}": round(gflops / peak_gflops, 3),
        }
    return figures | {
        "fastest_ms": round(fast[0], 3),
        "median_ms": round(middle[0], 3),
        "spread": round(spread(times[0]), 3),
        "peak_spread": round(spread(times[1]), 3),
        "n": len(times[0]),
    }


def main(run: Run, host: Hosts = None, seconds: Seconds = 40.0) -> None:
    rows = []
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        for name in host or BROWSERS:
            with BrowserHost(name) as browser:
                for kernel in PAPER:
                    rows.append(measure(browser, kernel, seconds, Path(folder)))
                    run.show(rows[-1])
    run.save(rows)
