"""K0 and K1 against the register-only multiply-add peak of the same run, per browser.

Input: browsers.  Output: results/kernels.json.  By turns (kernel, peak, kernel, peak), warm, one
thread; the first call of a fresh kernel is reported too.

    uv run python benchmarks/kernels.py [--host chromium --host firefox] [--rounds 8]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import common
import numpy as np

from tilewright.benchkernel import Subject, matmul, peak
from tilewright.bundle import write
from tilewright.hosts.browser import BrowserHost

#: nnJIT's kernels (M, K, N): requirements N13.
KERNELS = {"K0": (384, 768, 768), "K1": (640, 768, 3072)}
WARM_MS = 1500.0


def measure(host: BrowserHost, name: str, rounds: int, folder: Path) -> dict[str, Any]:
    subject, limit = matmul(*KERNELS[name]), peak()
    models = []
    for each in (subject, limit):
        path = folder / host.browser.name / each.name
        if not path.exists():
            write(each.contents, path)
        models.append(host.load(path))
    m, k, n = KERNELS[name]
    x = np.random.default_rng(1).standard_normal((m, k), np.float32)
    weight = np.random.default_rng(0).standard_normal((k, n), np.float32)
    first = models[0].run({"x": x})
    expected = x.astype(np.float64) @ weight
    error = float(np.linalg.norm(first.outputs["y"] - expected) / np.linalg.norm(expected))
    for model in models:
        spent = 0.0
        while spent < WARM_MS:
            spent += sum(model.time(10, 0).milliseconds)
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for found, model in zip(times, models, strict=True):
            found += model.time(8, 1).milliseconds
    for model in models:
        model.dispose()
    return row(host, name, subject, limit, times, first.milliseconds, error)


def row(
    host: BrowserHost,
    name: str,
    subject: Subject,
    limit: Subject,
    times: list[list[float]],
    first: float,
    error: float,
) -> dict[str, Any]:
    median, top = (statistics.median(t) for t in times)
    gflops, peak_gflops = subject.flops / median / 1e6, limit.flops / top / 1e6
    return {
        "kernel": name,
        "shape": "x".join(map(str, KERNELS[name])),
        "host": host.browser.name,
        "browser": host.info.get("userAgent", ""),
        "gflops": round(gflops, 2),
        "peak_gflops": round(peak_gflops, 2),
        "share_of_peak": round(gflops / peak_gflops, 3),
        "best_share_of_peak": round(
            (subject.flops / min(times[0])) / (limit.flops / min(times[1])), 3
        ),
        "median_ms": round(median, 3),
        "first_ms": round(first, 2),
        "n": len(times[0]),
        "spread": round(common.spread(times[0]), 3),
        "peak_spread": round(common.spread(times[1]), 3),
        "relative_error": error,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", action="append")
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        for name in args.host or ["chromium", "firefox"]:
            with BrowserHost(name) as host:
                for kernel in KERNELS:
                    rows.append(measure(host, kernel, args.rounds, Path(folder)))
                    print(rows[-1])
    print(common.save("kernels", rows))


if __name__ == "__main__":
    main()
