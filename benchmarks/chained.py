"""The code variant for wasmtime's compiler beside the one for browsers: speed on wasmtime.

Input: kernels of families.py.  Output: results/chained.json: per kernel the time of one variant
over that of the other, by turns, one thread; the median of some turns, each of the fastest runs.

    uv run python benchmarks/chained.py [--kernel K0]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import common
from families import SUBJECTS
from space import repeats

from lab.subjects import alone
from tilewright.bundle import write
from tilewright.compiler import Options
from tilewright.hosts.wasmtime import VARIANTS, WasmtimeHost

TURNS, RUNS = 7, 3


def measure(name: str) -> dict[str, Any]:
    step, plain = SUBJECTS[name](), "x86"
    (own,) = VARIANTS
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", action="append", choices=list(SUBJECTS))
    args = parser.parse_args()
    for name in args.kernel or SUBJECTS:
        row = measure(name)
        print(row, flush=True)
        common.merge("chained", [row], ("kernel", "cpu"))


if __name__ == "__main__":
    main()
