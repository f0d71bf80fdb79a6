"""Latency of inferences while a tuner runs with its usual budget, and without one.

Input: a host, a model, duration, pace.  Output: results/tuning.latency.json: p50 and p95 of both,
and the interval of their ratio.  A latency is the page's time from the call of `engine.run` to its
answer, including the wait for jobs of the tuner in the engine's queue.

    python -m benchmarks tuning.latency --model minilm.onnx --every 0.3
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.common import Run
from benchmarks.models.agreement import example
from benchmarks.options import Host, SessionSeconds
from benchmarks.records import Row
from benchmarks.tuning.model_files import Model, Net, Shapes, bundles
from benchmarks.tuning.sessions import Session, named, page
from lab.timing import WARM_MS, timer_of, turn, warm_up
from tilewright.bundle import open_bundle
from tilewright.hosts.browser import Arrays, BrowserModel

#: Share of the time that tuning takes beside a page's own work.
BUDGET = 0.05
#: Turns of alone and beside, one after the other; every other one begins with beside.
TURNS = 6
#: Token ids are below this.
VOCABULARY = 1000
P95 = 0.95
#: Of the bootstrap.
DRAWS = 2000

#: Milliseconds of inferences alone, and beside a tuner.
Turn = tuple[Sequence[float], Sequence[float]]


def measure(host: str, path: Path, name: str, seconds: float, every: float) -> Row:
    """Turns of inferences alone and beside a tuner, `seconds` of each in all.

    every: seconds from one to the next, on average; 0 is one right after the other
    """
    turns: list[Turn] = []
    sessions = [Session() for _ in range(TURNS)]
    for number, session in enumerate(sessions):
        kinds = turn(number, (None, session))
        found = {kind is None: half(host, path, seconds / TURNS, every, number, kind)
                 for kind in kinds}  # fmt: skip
        turns.append((found[True], found[False]))
    alone, beside = (np.concatenate([turn[side] for turn in turns]) for side in (0, 1))
    low, high = interval(turns)
    trials = [trial for session in sessions for trial in session.trials]
    return {
        "host": host, "start": "good", "device": named([s.device for s in sessions]),
        "subject": f"{name}, every {every:g} s" if every else name,
        "alone_median_ms": round(float(np.median(alone)), 3),
        "tuning_median_ms": round(float(np.median(beside)), 3),
        "median_ratio": round(float(np.median(beside) / np.median(alone)), 3),
        "alone_ms": round(mark(alone), 3), "tuning_ms": round(mark(beside), 3),
        "ratio": round(mark(beside) / mark(alone), 3),
        "ratio_low": round(low, 3), "ratio_high": round(high, 3),
        "n": len(beside), "turns": TURNS, "trials": len(trials), "busy_s": seconds,
        "tuning_s": round(sum(trial.milliseconds for trial in trials) / 1e3, 2),
    }  # fmt: skip


def half(
    host: str, path: Path, seconds: float, every: float, seed: int, session: Session | None
) -> list[float]:
    """Inferences in a page of their own; beside a tuner if there is a session to tell of it."""
    inputs = example(open_bundle(path).manifest, VOCABULARY)
    with page(host) as browser:
        model = browser.load(path, threads=1)
        warm_up(timer_of(model), WARM_MS)
        if session is None:
            return inferences(model, inputs, seconds, every, seed)
        options = {"budget": BUDGET, "report": False}
        tuner = threading.Thread(target=model.tune, args=(options, session.take))
        tuner.start()
        try:
            return inferences(model, inputs, seconds, every, seed)
        finally:
            # it would go on for minutes, but tuning on an idle page is not measured here
            model.dispose()
            tuner.join()


def inferences(
    model: BrowserModel, inputs: Arrays, seconds: float, every: float, seed: int
) -> list[float]:
    """Half to one and a half times `every` apart, so that they are not in step with the tuner."""
    random, found = Random(seed), list[float]()
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        found.append(model.run(inputs).total_milliseconds)
        wait = every * random.uniform(0.5, 1.5)
        time.sleep(max(0.0, now + wait - time.monotonic()))
    return found


def mark(times: Sequence[float] | NDArray[np.float64]) -> float:
    return float(np.quantile(times, P95))


def interval(turns: Sequence[Turn], draws: int = DRAWS) -> tuple[float, float]:
    """The 90 % bootstrap interval of the ratio of p95, over turns and inferences in each."""
    random = np.random.default_rng(1)
    found = []
    for _ in range(draws):
        drawn = [turns[n] for n in random.integers(len(turns), size=len(turns))]
        alone, beside = (
            mark(np.concatenate([random.choice(t[side], len(t[side])) for t in drawn]))
            for side in (0, 1)
        )
        found.append(beside / alone)
    low, high = np.quantile(found, (0.05, 0.95))
    return float(low), float(high)


def main(
    run: Run,
    host: Host = "chromium",
    model: Model = None,
    net: Net = None,
    shape: Shapes = None,
    seconds: SessionSeconds = 20.0,
    every: Annotated[float, typer.Option(help="Mean seconds between inferences.")] = 0.0,
) -> None:
    with bundles(model, net, shape, ["good"]) as (name, paths):
        run.keep(measure(host, paths["good"], name, seconds, every))
