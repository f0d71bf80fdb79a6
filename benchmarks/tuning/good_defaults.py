"""Whether tuning ever makes a model of good defaults slower: sessions, then both models by turns.

Input: a host, a model.  Output: results/tuning.good_defaults.json: sessions that replaced a kernel,
their gain, and the noise of those that did not.

    python -m benchmarks tuning.good_defaults --model squeezenet.onnx --seconds 3
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import Run
from benchmarks.optimum import SLOWER
from benchmarks.options import Host, Runs, SessionSeconds
from benchmarks.records import Row
from benchmarks.tuning.model_files import Model, Net, Shapes, bundles
from benchmarks.tuning.sessions import (
    named,
    page,
    speed_ratios,
    tuned,
)


def measure(host: str, path: Path, name: str, runs: int, seconds: float) -> Iterator[Row]:
    """Sessions from good defaults: is the tuned model ever the slower one?

    Sessions without swaps show the noise between two equal models, and must report no gain.
    Gives a row after each session.
    """
    changed: list[float] = []
    same: list[float] = []
    devices: list[str] = []
    verdicts: list[str] = []
    for _ in range(runs):
        with page(host) as browser:
            model, session, summary = tuned(browser, path, seconds)
            gain = statistics.median(speed_ratios(model, browser.load(path, threads=1)))
        devices.append(session.device)
        verdicts.append(summary.gain.verdict)
        (changed if session.current else same).append(round(gain, 3))
        yield {
            "host": host, "subject": name, "start": "good",
            "device": named(devices),
            "runs": len(changed) + len(same), "seconds": seconds, "changed": len(changed),
            "gain_median": statistics.median(changed) if changed else None,
            "gain_least": min(changed, default=None), "gains": changed,
            "slower": sum(g < SLOWER for g in changed),
            "same_least": min(same, default=None), "same_gains": same,
            "told": dict(Counter(verdicts)),
        }  # fmt: skip


def main(
    run: Run,
    host: Host = "chromium",
    model: Model = None,
    net: Net = None,
    shape: Shapes = None,
    seconds: SessionSeconds = 20.0,
    runs: Runs = 10,
) -> None:
    with bundles(model, net, shape, ["good"]) as (name, paths):
        for row in measure(host, paths["good"], name, runs, seconds):
            run.keep(row)
