"""The paper's ablation (nnJIT, table 5): compile time and speed of each Wasm pass.

Input: a browser.  Output: results/passes.json: compile time and kernel time of one matmul (K0) with
no pass, (1), (1)+(2), (1)+(2)+(3), alternating in one page.

    uv run python benchmarks/passes.py [--host chromium]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import common
import numpy as np

from tilewright.benchkernel import compile_matmul
from tilewright.bundle import write
from tilewright.compiler import Options
from tilewright.hosts.browser import BrowserHost
from tilewright.targets import wasm

SHAPE = (384, 768, 768)
WARM_MS = 2000.0


def variants() -> list[tuple[str, frozenset[str]]]:
    """No pass, then one more each time, in the paper's order."""
    names = [name for name, _ in wasm.PASSES]
    return [
        (" + ".join(names[:count]) or "no pass", wasm.ALL - frozenset(names[count:]))
        for count in range(len(names) + 1)
    ]


def compile_ms(options: Options, repeats: int = 15) -> tuple[float, float]:
    """Median milliseconds from schedule to linked bytes, and without the linking."""
    found = []
    for _ in range(repeats):
        compiled = compile_matmul(*SHAPE, options)
        seconds = compiled.seconds
        found.append((seconds["code"] + seconds["link"], seconds["code"]))
    whole, code = zip(*found, strict=True)
    return statistics.median(whole) * 1e3, statistics.median(code) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="chromium")
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    m, k, _ = SHAPE
    x = np.random.default_rng(1).standard_normal((m, k), np.float32)
    rows: list[dict[str, Any]] = []
    models = []
    with (
        tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder,
        BrowserHost(args.host) as host,
    ):
        results = []
        for label, passes in variants():
            options = Options(variants=("x86",), without=wasm.ALL - passes)
            whole, code = compile_ms(options)
            compiled = compile_matmul(*SHAPE, options)
            path = Path(folder) / str(len(rows))
            write(compiled.contents, path)
            models.append(host.load(path, threads=1))
            first = models[-1].run({"x": x})
            results.append(first.outputs["y"])
            rows.append(
                {
                    "passes": label,
                    "compile_ms": round(whole, 2),
                    "code_stage_ms": round(code, 2),
                    "code_bytes": compiled.manifest.targets["wasm"].builds[0].code.bytes,
                    "first_ms": round(first.milliseconds, 2),
                }
            )
        # an engine fuses all multiply-adds or none, so all variants give the same bits
        same = all(np.array_equal(results[0], r) for r in results)
        for model in models:
            common.warm_up(model, WARM_MS, 5)
        times: list[list[float]] = [[] for _ in models]
        for _ in range(args.rounds):
            for found, model in zip(times, models, strict=True):
                found += model.time(4, 1).milliseconds
        browser = host.info.get("userAgent", "")
    for row, found in zip(rows, times, strict=True):
        # as in kernels.py: the median also shows disturbances
        row["kernel_ms"] = round(min(found), 3)
        row["median_ms"] = round(statistics.median(found), 3)
        row["spread"] = round(common.spread(found), 3)
        row["n"] = len(found)
        row["gflops"] = round(2 * SHAPE[0] * SHAPE[1] * SHAPE[2] / row["kernel_ms"] / 1e6, 2)
        row["speedup"] = round(rows[0]["kernel_ms"] / row["kernel_ms"], 3)
        print(row)
    facts = {"kernel": "matmul 384x768x768", "host": args.host, "browser": browser}
    print(common.save("passes", rows, results_identical=same, **facts))


if __name__ == "__main__":
    main()
