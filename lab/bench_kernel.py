"""`bench-kernel`: times one kernel, and in the same run the machine's peak of multiply-adds.

Input: a kernel, its sizes, a host.  Output: GFLOP/s of the kernel and of a kernel that only
multiplies and adds in registers, measured alternately, so that both see the same clock and load.
On WebGPU there is no peak kernel yet, and the time of a run includes one submission.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Annotated

import typer

from lab.subjects import matmul, peak
from lab.timing import by_turns, spread, warm_up
from tilewright.api.host_registry import (
    Timer,
    check_timing,
    engine_of,
    open_timers,
    targets_of,
    timing_hosts,
    variants_of,
)
from tilewright.base.errors import UsageError, unknown_name
from tilewright.bundle import Contents, write
from tilewright.cli.options import Json, sizes
from tilewright.cli.output import Answer, pairs
from tilewright.compiler import Options
from tilewright.targets import DEFAULT

KERNELS = ("matmul",)
ROUND = 5
# Engines compile a function again after it has run for a while; times before that are not steady.
WARMUP_MS = 400.0


@dataclass(frozen=True)
class Series:
    """Times of single runs in milliseconds, and the work of one run."""

    milliseconds: Sequence[float]
    flops: int

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)

    @property
    def gflops(self) -> float:
        if self.median == 0:
            raise UsageError("The kernel is too short to time", hint="Use larger sizes")
        return self.flops / self.median / 1e6

    @property
    def spread(self) -> float:
        """The distance between the quartiles, divided by the median."""
        return spread(self.milliseconds)


def bench_kernel(
    kernel: Annotated[str, typer.Argument(help="Time this kernel: matmul.")],
    size: Annotated[str, typer.Argument(metavar="MxKxN", help="Give the kernel these sizes.")],
    host: Annotated[
        str, typer.Option(help=f"Run on this host: {', '.join(timing_hosts())}.")
    ] = "chromium",
    threads: Annotated[
        int, typer.Option(min=1, help="Run both kernels with this number of threads.")
    ] = 1,
    runs: Annotated[int, typer.Option(min=2, help="Time this number of runs.")] = 40,
    as_json: Json = False,
) -> Answer:
    """Time one kernel, and the peak: a kernel that only multiplies and adds in registers."""
    del as_json  # every command takes it; the entry point acts on it
    m, k, n = _sizes(kernel, size)
    check_timing(host)
    targets = targets_of(host)
    subjects = [matmul(m, k, n, Options(targets=targets, variants=variants_of(host)))]
    if targets == DEFAULT:
        subjects.append(peak())
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        paths = [_written(s.contents, Path(folder) / s.name) for s in subjects]
        with open_timers(host, paths, threads) as timers:
            (first,) = timers[0](1)
            found = warm_times(timers, runs)
    about = {"host": host, "engine": engine_of(host), "threads": threads}
    data = {"kernel": kernel, "size": [m, k, n], **about}
    series = [Series(times, s.flops) for times, s in zip(found, subjects, strict=True)]
    data |= summary(series[0], series[1] if len(series) > 1 else None, first)
    return Answer(data, pairs(data))


def warm_times(timers: Sequence[Timer], runs: int) -> list[list[float]]:
    """`runs` times of each timer, in milliseconds, after a warm-up."""
    for timer in timers:
        warm_up(timer, WARMUP_MS, ROUND)
    found = by_turns({n: partial(t, ROUND) for n, t in enumerate(timers)}, ceil(runs / ROUND))
    return [times[:runs] for times in found.values()]


def summary(subject: Series, peak: Series | None, first: float) -> dict[str, object]:
    """Figures of the kernel, and their ratio to the peak if that was measured.  first: milliseconds
    of the first run"""
    data: dict[str, object] = {
        "gflops": subject.gflops,
        "median_ms": subject.median,
        "first_ms": first,
        "spread": subject.spread,
        "n": len(subject.milliseconds),
    }
    if peak is None:
        return data
    ratio = subject.gflops / peak.gflops
    return data | {"peak_gflops": peak.gflops, "ratio": ratio, "peak_spread": peak.spread}


def _sizes(kernel: str, size: str) -> tuple[int, int, int]:
    if kernel not in KERNELS:
        raise unknown_name("kernel", kernel, KERNELS)
    hint = "matmul 384x768x768 (rows, depth, columns)"
    match sizes(size, "x", hint):
        case (m, k, n):
            return m, k, n
    raise UsageError(f"Not three sizes: {size}", hint=f"Write it as {hint}")


def _written(contents: Contents, folder: Path) -> Path:
    write(contents, folder)
    return folder
