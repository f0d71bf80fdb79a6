"""Sessions of the page's tuner on one kernel: trials until the kernel in use is near the optimum.

Input: a host, kernels, poor or good defaults.  Output: results/tuning.rounds.json: trials until the
kernel in use has 97 % of the speed of the optimum of a sweep (results/tuning.sweep.json), its share
after 32 trials, milliseconds of a trial.  Kernels that were in use are timed again with the optimum
by turns.

    python -m benchmarks tuning.rounds --host chromium --kernel K0
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated

from benchmarks.common import Run
from benchmarks.optimum import reached, share_after
from benchmarks.options import Host, SessionSeconds, among
from benchmarks.records import Row
from benchmarks.tuning.candidate_times import time_candidates, write_candidates
from benchmarks.tuning.sessions import (
    BUILT,
    STARTS,
    Use,
    evaluation_of,
    kernel_bundle,
    visit,
)
from benchmarks.tuning.subjects import SUBJECTS
from benchmarks.tuning.sweep import optimum_of, swept
from lab.paper_spaces import PAPER
from tilewright.targets.wasm import VARIANTS
from tilewright.tuning.candidates import space_of


def measure(host: str, name: str, start: str, seconds: float) -> Row:
    """One session from one start, then every kernel that was in use, timed against the optimum."""
    step = SUBJECTS[name]()
    with tempfile.TemporaryDirectory(prefix="tilewright-tuning-") as folder:
        path = kernel_bundle(step, start, Path(folder) / "bundle")
        session, device = visit(host, path, seconds)
        space, machine = space_of(step.kernel, device), VARIANTS[device.variant].machine
        optimum = optimum_of(swept(), host, name, space)
        before = STARTS[start](step.kernel, machine)
        uses = [Use(0, BUILT), *session.uses]
        listed = [
            optimum,
            *(before if u.candidate == BUILT else space.schedules[u.candidate] for u in uses),
        ]
        beside = write_candidates(step, listed, device, Path(folder) / "beside")
        times = time_candidates(host, beside, len(listed)).times
    shares = [(use.trials, times[0] / t) for use, t in zip(uses, times[1:], strict=True)]
    return {
        "host": host, "subject": name, "start": start,
        "device": device.id, "tried": len(session.trials),
        "start_share": round(shares[0][1], 3),
        "rounds": reached(shares), "share": round(share_after(shares), 3),
        "last_share": round(shares[-1][1], 3),
        **evaluation_of(session.trials),
        "seconds": round(session.last_swap, 2),
        "verdicts": dict(Counter(trial.verdict for trial in session.trials)),
    }  # fmt: skip


def main(
    run: Run,
    host: Host = "chromium",
    kernel: Annotated[list[str] | None, among(SUBJECTS, "Kernels; repeatable")] = None,
    start: Annotated[list[str] | None, among(STARTS, "Defaults; repeatable")] = None,
    seconds: SessionSeconds = 20.0,
) -> None:
    for name in kernel or PAPER:
        for first in start or STARTS:
            run.keep(measure(host, name, first, seconds))
