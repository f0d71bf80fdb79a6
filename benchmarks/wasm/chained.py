"""The code variant for wasmtime's compiler beside the one for browsers: speed on wasmtime.

Input: kernels of tuning/families.py.  Output: results/wasm.chained.json: per kernel the time of one
variant over that of the other, by turns, one thread; the median of some turns, each of the fastest
runs.

    python -m benchmarks wasm.chained [--kernel K0]
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Annotated

from benchmarks.common import Run
from benchmarks.options import among
from benchmarks.records import Row
from benchmarks.tuning.candidate_times import repeats
from benchmarks.tuning.subjects import ALL_SUBJECTS
from lab.subjects import alone
from tilewright.bundle import write
from tilewright.compiler import Options
from tilewright.hosts.wasmtime import VARIANTS, WasmtimeHost

TURNS, RUNS = 7, 3


def measure(name: str) -> Row:
    step, plain = ALL_SUBJECTS[name](), "x86"
    (own,) = list(VARIANTS)
    with tempfile.TemporaryDirectory(prefix="tilewright-chained-") as folder:
        hosts = {}
        for variant in (plain, own):
            path = Path(folder) / variant
            write(alone(step, Options(variants=(variant,)), repeats(step)).contents, path)
            hosts[variant] = WasmtimeHost(path)
            hosts[variant].time(RUNS)
        turns = [{v: min(host.time(RUNS)) for v, host in hosts.items()} for _ in range(TURNS)]
    ratios = [turn[plain] / turn[own] for turn in turns]
    return {
        "kernel": name, "gain": round(statistics.median(ratios), 3), "least": round(min(ratios), 3),
        "ms": round(min(t[own] for t in turns) / repeats(step), 4), "n": TURNS,
    }  # fmt: skip


def main(
    run: Run, kernel: Annotated[list[str] | None, among(ALL_SUBJECTS, "Kernels; repeatable")] = None
) -> None:
    for name in kernel or ALL_SUBJECTS:
        run.keep(measure(name))
