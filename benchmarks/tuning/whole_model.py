"""Sessions of the page's tuner on a whole model, with all of the time for tuning.

Input: a host, a model, poor or good defaults.  Output: results/tuning.whole_model.json: seconds
until the last kernel was replaced, the speed relative to the model of good defaults, and the gain
that the session itself reports.

    python -m benchmarks tuning.whole_model --model minilm.onnx --shape input_ids=1x128
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from benchmarks.common import Run
from benchmarks.options import Host, SessionSeconds, among
from benchmarks.records import Row
from benchmarks.tuning.model_files import Model, Net, Shapes, bundles
from benchmarks.tuning.sessions import (
    BUILT,
    STARTS,
    evaluation_of,
    page,
    speed_ratios,
    tuned,
)


def measure(host: str, paths: Mapping[str, Path], name: str, start: str, seconds: float) -> Row:
    """Tunes all kernels of a model from one start; then compares it with that of good defaults."""
    with page(host) as browser:
        model, session, summary = tuned(browser, paths[start], seconds)
        # without swaps both are the same model, whatever the clock says
        same = start == "good" and not session.current
        ratios = [] if same else speed_ratios(model, browser.load(paths["good"], threads=1))
    return {
        "host": host, "subject": name, "start": start, "device": session.device,
        "kernels": len(summary.kernels), "rounds": len(session.trials),
        "swaps": sum(use.candidate != BUILT for use in session.uses), "seconds": seconds,
        "spent_s": round(session.spent, 2), "last_swap_s": round(session.last_swap, 2),
        "gain": round(statistics.median(ratios), 3) if ratios else None,
        "gain_least": round(min(ratios), 3) if ratios else None, "n": len(ratios),
        **summary.gain.row(), **evaluation_of(session.trials),
    }  # fmt: skip


def main(
    run: Run,
    host: Host = "chromium",
    model: Model = None,
    net: Net = None,
    shape: Shapes = None,
    start: Annotated[list[str] | None, among(STARTS, "Defaults; repeatable")] = None,
    seconds: SessionSeconds = 20.0,
) -> None:
    with bundles(model, net, shape, list(STARTS)) as (name, paths):
        for first in start or STARTS:
            run.keep(measure(host, paths, name, first, seconds))
