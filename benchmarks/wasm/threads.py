"""Speed-up and overhead of threads: one thread and several, alternating, in each browser.

Input: browsers, thread counts, model files.  Output: results/wasm.threads.json: empty steps, small
dependent matmuls, K0 and K1, and whole models, each with its speed-up over one thread.

    python -m benchmarks wasm.threads [--host chromium] [--threads 2] [--model roberta.onnx]
"""

from __future__ import annotations

import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import Run
from benchmarks.options import BROWSERS, Hosts, Only, Rounds, chosen
from benchmarks.records import Row
from lab.paper_spaces import PAPER
from lab.subjects import Subject, empty_steps, matmul, matmul_chain
from lab.timing import (
    BATCH_MS,
    COARSE_MS,
    WARM_MS,
    by_turns,
    runs_in,
    spread,
    timer_of,
    warmed,
)
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.frontend import load
from tilewright.hosts.browser import BrowserHost, BrowserModel

#: Of a plan of empty steps or of small products.
STEPS = 100
#: What the terminal shows of a row.
SHOWN = ("subject", "host", "threads", "fastest_ms", "step_us", "gflops", "speedup")
#: Named dimensions of models get these sizes.
LENGTH = 384
#: Longer runs are timed one by one, without a warm-up run in each turn.
SLOW_MS = 200.0


def subjects(models: list[Path]) -> dict[str, Subject]:
    made = {
        "empty steps, shared": empty_steps(STEPS, 2),
        "empty steps, shared, long plan": empty_steps(20 * STEPS, 2),
        "empty steps, serial": empty_steps(STEPS, 1),
        "matmul 48x64x64": matmul_chain(STEPS, 48, 64),
        **{name: matmul(p.m, p.k, p.n) for name, p in PAPER.items() if p.batch == 1},
    }
    for path in models:
        buckets = dict.fromkeys(load(path).dim_names, (LENGTH,))
        contents = compile_model(path, Options(buckets=buckets)).contents
        flops = sum(step.flops for step in contents.manifest.plans[0].steps)
        made[path.stem] = Subject(path.stem, contents, flops)
    return made


def measure(
    host: BrowserHost, name: str, subject: Subject, path: Path, threads: list[int], rounds: int
) -> list[Row]:
    steps = len(subject.contents.manifest.plans[0].steps)
    models = [host.load(path, threads=count) for count in threads]
    usual = max(warmed(timer_of(model), WARM_MS, BATCH_MS) for model in models)
    runs = max(3 if usual < SLOW_MS else 1, runs_in(BATCH_MS, usual))

    def batch(model: BrowserModel) -> list[float]:
        times = model.time(runs, 1 if usual < SLOW_MS else 0).milliseconds
        # a short run takes only a few ticks of a browser's clock: use the mean of several
        return times if usual > COARSE_MS else [statistics.mean(times)]

    timers = {number: partial(batch, model) for number, model in enumerate(models)}
    times = by_turns(timers, rounds * 5 if usual < COARSE_MS else rounds)
    for model in models:
        model.dispose()
    rows = []
    for count, model, found in zip(threads, models, times.values(), strict=True):
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
                "spread": round(spread(found), 3),
                "n": len(found),
                "asked": count,
            }
        )
    return rows


def main(
    run: Run,
    host: Hosts = None,
    threads: Annotated[
        list[int] | None, typer.Option(help="Numbers of threads beside one; repeatable.")
    ] = None,
    model: Annotated[list[Path] | None, typer.Option(help="ONNX files; repeatable.")] = None,
    only: Only = None,
    rounds: Rounds = 12,
) -> None:
    counts = [1, *(threads or [2])]
    rows = []
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        made = subjects(model or [])
        for name in (names := chosen(made, only)):
            write(made[name].contents, Path(folder) / name)
        for host_name in host or BROWSERS:
            with BrowserHost(host_name) as browser:
                agent = browser.info.get("userAgent", "")
                for name in names:
                    found = measure(browser, name, made[name], Path(folder) / name, counts, rounds)
                    for row in found:
                        rows.append(row | {"browser": agent})
                        print(*(row[key] for key in SHOWN), flush=True)
    run.save(rows)
