"""Memory of the browser with a model that has run, while the page tunes it, and afterwards.

Input: a host, a model.  Output: results/tuning.memory.json: megabytes; see browser_memory.py.

    python -m benchmarks tuning.memory --host firefox --net bart-base-128
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.common import Run
from benchmarks.options import Host, SessionSeconds
from benchmarks.records import Row
from benchmarks.tuning.browser_memory import Sampled, resting
from benchmarks.tuning.model_files import Model, Net, Shapes, bundles
from benchmarks.tuning.sessions import page, tune
from tilewright.bundle import open_bundle

#: Seconds for which the memory of a page that rests is sampled.
RESTING = 3.0


def measure(host: str, path: Path, name: str, seconds: float) -> Row:
    """Megabytes of the browser with a model that has run, while it is tuned, and afterwards."""
    with page(host) as browser:
        model = browser.load(path, threads=1)
        model.time(10)
        before = resting(RESTING)
        with Sampled() as during:
            session, summary = tune(model, seconds)
        model.time(10)
        after = resting(RESTING)
    return {
        "host": host, "subject": name, "start": "good", "device": session.device,
        "kernels": len(summary.kernels), "rounds": len(session.trials), "seconds": seconds,
        "before_mb": before.usual, "during_mb": during.usual, "most_mb": during.most,
        "after_mb": after.usual,
        "weights_mb": round(open_bundle(path).manifest.weights.bytes / 1e6, 1),
    }  # fmt: skip


def main(
    run: Run,
    host: Host = "chromium",
    model: Model = None,
    net: Net = None,
    shape: Shapes = None,
    seconds: SessionSeconds = 20.0,
) -> None:
    with bundles(model, net, shape, ["good"]) as (name, paths):
        run.keep(measure(host, paths["good"], name, seconds))
