"""The paper's ablation from a naive base: each pass alone, all three, and what placement adds.

Input: hosts.  Output: results/ablation.json, a row per host and set: compile time, code size and
kernel time of one matmul (K0).  The base recomputes each address and each constant at each use; the
schedule is the same throughout.  Kernels of a host are timed by turns.  passes.py is the shorter
table, whose base has values placed outside loops already.

    uv run python benchmarks/ablation.py [--host chromium --host firefox --host wasmtime]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
from passes import SHAPE, compile_ms

from tilewright.benchkernel import compile_matmul
from tilewright.bundle import write
from tilewright.cli.hosts import engine_of, open_timers
from tilewright.compiler import Options
from tilewright.targets import wasm

HOSTS = ("chromium", "firefox", "wasmtime")
KEY = ("host", "set")


def sets() -> dict[str, frozenset[str]]:
    """Names of sets, and what they run: nothing, one pass each, all three, placement, both."""
    names = [name for name, _ in wasm.PASSES]
    passes = frozenset(names)
    return {
        "naive": frozenset(),
        **{name: frozenset({name}) for name in names},
        "three passes": passes,
        "placement alone": wasm.ALL - passes,
        "ours": wasm.ALL,
    }


def compiled_to(folder: Path, repeats: int) -> tuple[list[Path], list[dict[str, Any]]]:
    """A bundle for each set, and what its compilation took."""
    paths, rows = [], []
    for number, (name, enabled) in enumerate(sets().items()):
        options = Options(variants=("x86",), without=wasm.ALL - enabled)
        whole, code = compile_ms(options, repeats)
        compiled = compile_matmul(*SHAPE, options)
        paths.append(folder / str(number))
        write(compiled.contents, paths[-1])
        size = compiled.manifest.targets["wasm"].builds[0].code.bytes
        rows.append(
            {
                "set": name,
                "compile_ms": round(whole, 2),
                "code_stage_ms": round(code, 2),
                "code_bytes": size,
            }
        )
    return paths, rows


def timed(host: str, paths: Sequence[Path], warm: int, rounds: int) -> list[list[float]]:
    """Milliseconds of single runs per bundle, by turns, after `warm` rounds that do not count."""
    times: list[list[float]] = [[] for _ in paths]
    with open_timers(host, paths, 1) as timers:
        for number in range(warm + rounds):
            for found, timer in zip(times, timers, strict=True):
                measured = timer(4)
                if number >= warm:
                    found += measured
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", action="append", choices=HOSTS)
    parser.add_argument("--warm", type=int, default=20, help="rounds before those that count")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--compiles", type=int, default=15)
    args = parser.parse_args()
    m, k, n = SHAPE
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        paths, compiled = compiled_to(Path(folder), args.compiles)
        for host in args.host or HOSTS:
            times = timed(host, paths, args.warm, args.rounds)
            base = min(times[0])
            rows = [
                {"host": host, "engine": engine_of(host), "kernel": "K0", **row}
                | {
                    "kernel_ms": round(min(found), 3),
                    "median_ms": round(statistics.median(found), 3),
                    "n": len(found),
                    "gflops": round(2 * m * k * n / min(found) / 1e6, 2),
                    "speedup": round(base / min(found), 3),
                }
                for row, found in zip(compiled, times, strict=True)
            ]
            for row in rows:
                print(row, flush=True)
            print(common.merge("ablation", rows, KEY))


if __name__ == "__main__":
    main()
