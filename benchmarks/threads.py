"""Speed-up and overhead of threads: one thread and several, alternating, in each browser.

Input: browsers, thread counts, model files.  Output: results/threads.json: empty steps, small
dependent matmuls, K0 and K1, and whole models, each with its speed-up over one thread.

    uv run python benchmarks/threads.py [--host chromium] [--threads 2] [--model roberta.onnx]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common

from lab.subjects import Subject, empty_steps, matmul, matmul_chain
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.frontend import load
from tilewright.hosts.browser import BrowserHost, BrowserModel

STEPS = 100
SHOWN = ("subject", "host", "threads", "fastest_ms", "step_us", "gflops", "speedup")
#: Named dimensions of models get these sizes.
LENGTH = 384
WARM_MS = 1500.0
#: Shorter runs are timed together.
TICKS_MS = 0.5
BATCH_MS = 10.0
#: Longer runs are timed one by one, without a warm-up run in each turn.
SLOW_MS = 200.0


def subjects(models: list[Path]) -> dict[str, Subject]:
    made = {
        "empty steps, shared": empty_steps(STEPS, 2),
        "empty steps, shared, long plan": empty_steps(20 * STEPS, 2),
        "empty steps, serial": empty_steps(STEPS, 1),
        "matmul 48x64x64": matmul_chain(STEPS, 48, 64),
        "K0": matmul(384, 768, 768),
        "K1": matmul(640, 768, 3072),
    }
    for path in models:
        buckets = dict.fromkeys(load(path).dim_names, (LENGTH,))
        contents = compile_model(path, Options(buckets=buckets)).contents
        flops = sum(step.flops for step in contents.manifest.plans[0].steps)
        made[path.stem] = Subject(path.stem, contents, flops)
    return made


def measure(
    host: BrowserHost, name: str, subject: Subject, path: Path, threads: list[int], rounds: int
) -> list[dict[str, Any]]:
    steps = len(subject.contents.manifest.plans[0].steps)
    models = [host.load(path, threads=count) for count in threads]
    usual = max(common.warmed(_timer(model), WARM_MS, BATCH_MS) for model in models)
    runs = max(3 if usual < SLOW_MS else 1, min(400, round(BATCH_MS / max(usual, 0.01))))
    rounds = rounds * 5 if usual < TICKS_MS else rounds
    times: list[list[float]] = [[] for _ in models]
    for _ in range(rounds):
        for found, model in zip(times, models, strict=True):
            batch = model.time(runs, 1 if usual < SLOW_MS else 0).milliseconds
            # a short run takes only a few ticks of a browser's clock: use the mean of several
            found += batch if usual > TICKS_MS else [statistics.mean(batch)]
    for model in models:
        model.dispose()
    rows = []
    for count, model, found in zip(threads, models, times, strict=True):
        fast, middle = min(found), statistics.median(found)
        rows.append(
            {
                "subject": name,
                "host": host.browser.name,
                "threads": model.info["features"]["threads"],
                "steps": steps,
                "fastest_ms": round(fast, 4),
                "median_ms": round(middle, 4),
                "step_us": round(fast / steps * 1e3, 3),
                "gflops": round(subject.flops / fast / 1e6, 2),
                "speedup": round(min(times[0]) / fast, 3),
                "speedup_median": round(statistics.median(times[0]) / middle, 3),
                "spread": round(common.spread(found), 3),
                "n": len(found),
                "asked": count,
            }
        )
    return rows


def _timer(model: BrowserModel) -> Callable[[int], list[float]]:
    return lambda runs: model.time(runs, 0).milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", action="append")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--model", type=Path, action="append")
    parser.add_argument("--only", action="append", help="names of subjects")
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    threads = [1, *(args.threads or [2])]
    rows = []
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        chosen = subjects(args.model or [])
        chosen = {k: v for k, v in chosen.items() if not args.only or k in args.only}
        for name, subject in chosen.items():
            write(subject.contents, Path(folder) / name)
        for host_name in args.host or ["chromium", "firefox"]:
            with BrowserHost(host_name) as host:
                browser = host.info.get("userAgent", "")
                for name, subject in chosen.items():
                    found = measure(host, name, subject, Path(folder) / name, threads, args.rounds)
                    rows += [row | {"browser": browser} for row in found]
                    for row in found:
                        print(*(row[key] for key in SHOWN), flush=True)
    print(common.save("threads", rows))


if __name__ == "__main__":
    main()
