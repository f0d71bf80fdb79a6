"""Tuning a whole 12-layer encoder on a GPU, through Dawn in Node: seconds, candidates, gain.

Input: a GPU, Node, the npm package `webgpu`.  Output: results/gpu.encoder_tuning.json.
RoBERTa-base's sizes, 384 tokens, random weights; the page's own tuner goes on from the compiler's
defaults until it has nothing left to try or the time is over.  The gain is that of whole inferences
by the GPU's own clock, by turns with the model as it was built.

    python -m benchmarks gpu.encoder_tuning [--seconds 20] [--smoke]
"""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import Run
from benchmarks.gpu.dawn import WGSL, facts
from benchmarks.gpu.js_time import SMALL
from benchmarks.options import Smoke
from benchmarks.peers.models import Text, roberta
from benchmarks.records import Row
from benchmarks.tuning.sessions import page, tuned
from lab.timing import by_turns, spread
from tilewright.bundle import write
from tilewright.compiler import compile_model
from tilewright.hosts.browser import BrowserModel
from tilewright.hosts.browser_dawn import require_dawn

HOST = "dawn"
ROUNDS, REPEATS, RUNS = 5, 8, 3


def by_clock(model: BrowserModel, repeats: int) -> list[float]:
    """Milliseconds of an inference by the GPU's own clock."""
    return model.time(RUNS, 1, repeat=repeats).milliseconds


def measure(bundle: Path, seconds: float, repeats: int) -> Row:
    with page(HOST) as host:
        model, session, summary = tuned(host, bundle, seconds)
        plain = host.load(bundle)
        plain.time(3)
        sides = {"built": plain, "tuned": model}
        timers = {name: partial(by_clock, side, repeats) for name, side in sides.items()}
        times = by_turns(timers, ROUNDS)
    tried = Counter(trial.spec for trial in session.trials)
    built, after = (statistics.median(times[key]) for key in ("built", "tuned"))
    return {
        "device": session.device,
        "kernels": len(summary.kernels),
        "candidates": sum(tried.values()),
        "most_of_a_kernel": max(tried.values(), default=0),
        "verdicts": dict(Counter(trial.verdict for trial in session.trials)),
        "swaps": len(session.current),
        "seconds": round(session.spent, 2),
        "trials_s": round(sum(trial.milliseconds for trial in session.trials) / 1e3, 2),
        "first_trial_s": round(min((trial.at for trial in session.trials), default=0.0), 2),
        "last_trial_s": round(max((trial.at for trial in session.trials), default=0.0), 2),
        "last_swap_s": round(session.last_swap, 2),
        "swaps_at_s": [round(use.at, 2) for use in session.uses],
        "built_ms": round(built, 4),
        "tuned_ms": round(after, 4),
        "gain": round(built / after, 4),
        "spread": round(spread(times["tuned"]), 4),
        **summary.gain.row(),
    }


def main(
    run: Run,
    seconds: Annotated[float, typer.Option(help="Most of the session.")] = 20.0,
    smoke: Smoke = False,
) -> None:
    sizes, dawn = SMALL if smoke else Text(), require_dawn()
    with tempfile.TemporaryDirectory(prefix="gpu-tuning-") as folder:
        write(compile_model(roberta(sizes), WGSL).contents, Path(folder))
        found = measure(Path(folder), seconds, 1 if smoke else REPEATS)
    row = {"model": "RoBERTa-base", **vars(sizes), "most_seconds": seconds, **found}
    run.show(row)
    if not smoke:
        run.save([row], facts=facts(dawn))
