"""Milliseconds that a server needs between two trials of a page: the code of one candidate.

Input: kernels.  Output: results/tuning.server_part.json: listing the space, making a candidate,
bytes of its module.  It starts no browser.

    python -m benchmarks tuning.server_part --kernel K0
"""

from __future__ import annotations

import statistics
import time
from typing import Annotated

from benchmarks.common import Run
from benchmarks.options import among
from benchmarks.records import Row
from benchmarks.tuning.candidate_times import device_here
from benchmarks.tuning.subjects import SUBJECTS
from lab.paper_spaces import PAPER
from tilewright.tuning.candidates import build, space_of


def measure(name: str) -> Row:
    """Makes every candidate of a space once, as a server does between two rounds.

    Measures processor time too: on a shared machine, wall time includes others' work.
    """
    kernel, device = SUBJECTS[name]().kernel, device_here()
    start = time.perf_counter()
    space = space_of(kernel, device)
    listing = (time.perf_counter() - start) * 1e3
    spent, busy, sizes = [], [], []
    for schedule in space.schedules:
        start, worked = time.perf_counter(), time.process_time()
        built = build(kernel, schedule, device.target, device.variant)
        spent.append((time.perf_counter() - start) * 1e3)
        busy.append((time.process_time() - worked) * 1e3)
        sizes.append(len(built.module))
    return {
        "host": "", "subject": name, "start": "", "device": device.id,
        "candidates": len(spent), "space_ms": round(listing, 1),
        "median_ms": round(statistics.median(spent), 1), "most_ms": round(max(spent), 1),
        "cpu_ms": round(statistics.median(busy), 1), "cpu_most_ms": round(max(busy), 1),
        "median_bytes": int(statistics.median(sizes)), "most_bytes": max(sizes),
    }  # fmt: skip


def main(
    run: Run,
    kernel: Annotated[list[str] | None, among(SUBJECTS, "Kernels; repeatable")] = None,
) -> None:
    for name in kernel or PAPER:
        run.keep(measure(name))
