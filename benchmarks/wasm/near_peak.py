"""K0 and K1 by several register tiles and walks against the register-only multiply-add peak.

Input: hosts.  Output: results/wasm.near_peak.json: a row per host, kernel and schedule with its
share of the peak.  All schedules of a kernel are plans of one bundle and alternate with the peak,
warm, one thread; what counts are rounds in which the peak kernel was not disturbed before or after,
as in kernels.py.

    python -m benchmarks wasm.near_peak [--host chromium] [--kernel K0] [--seconds 60]
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, cast

from benchmarks.common import Run
from benchmarks.options import BROWSERS, Hosts, Seconds, among
from benchmarks.records import Row
from benchmarks.tuning.candidate_times import (
    check_candidates,
    device_here,
    repeats,
    write_candidates,
)
from benchmarks.tuning.subjects import SUBJECTS
from benchmarks.wasm.kernels import Round, quiet
from lab.subjects import peak
from lab.timing import BATCH_MS, WARM_MS, spread, warmed
from tilewright.api.host_registry import engine_of, open_timers
from tilewright.bundle import write
from tilewright.kernel.form import Contraction, form_as
from tilewright.kernel.spec import Kernel
from tilewright.targets.simd.contraction import ContractionSchedule, tiled_schedule
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.strategies import default_schedule

KERNELS = ("K0", "K1")
#: Runs of a schedule in a round, and of the peak.
RUNS = 2
#: Rows and columns of register tiles.
TILES = ((5, 8), (4, 8), (4, 12), (3, 12), (2, 24), (2, 20))
#: Undisturbed rounds of each schedule; measuring ends when all have as many.
ENOUGH = 15


def schedules(kernel: Kernel, machine: Machine) -> Mapping[str, ContractionSchedule]:
    """The default, other register tiles, other walks."""
    default = default_schedule(kernel, machine)
    assert isinstance(default, ContractionSchedule)
    roles = form_as(kernel, Contraction).operands
    tiles = {f"{x}x{y}": tiled_schedule(kernel, roles, (x, y), machine) for x, y in TILES}
    chained = default_schedule(kernel, replace(machine, chained=True))
    step = default.x0
    return {
        "default": default,
        **tiles,
        "chained sums": cast("ContractionSchedule", chained),
        "passes of 4": replace(default, r0=4),
        "passes of 16": replace(default, r0=16),
        "blocks of 256 steps": replace(default, r1=256),
        "blocks of 384 steps": replace(default, r1=384),
        "tiles of 48 rows": replace(default, x1=48 // step * step),
        "tiles of all rows": replace(default, x1=-(-roles.m.extent // step) * step),
        "tiles of 32 columns": replace(default, y1=32),
        "tiles of 128 columns": replace(default, y1=128),
    }


def measure(host: str, name: str, seconds: float, folder: Path) -> list[Row]:
    """A row for each schedule."""
    step, device = SUBJECTS[name](), device_here()
    assert isinstance(device.machine, Machine)
    found = schedules(step.kernel, device.machine)
    path = write_candidates(step, list(found.values()), device, folder / name)
    check_candidates(path)
    limit = peak()
    write(limit.contents, folder / f"{name}-peak")
    order: list[tuple[str, Round]] = []
    with open_timers(host, [path, folder / f"{name}-peak"], 1) as (timer, top):
        warmed(top, WARM_MS, BATCH_MS)
        for plan in range(len(found)):
            warmed(partial(timer, plan=plan), WARM_MS / 5, BATCH_MS)
        end = time.monotonic() + seconds
        while time.monotonic() < end and least(order, found) < ENOUGH:
            for plan, label in enumerate(found):
                order.append((label, (list(timer(RUNS, plan)), list(top(RUNS)))))
    flops = step.kernel.flops * repeats(step)
    return [
        {
            "host": host,
            "engine": engine_of(host),
            "kernel": name,
            "device": device.id,
            "label": label,
        }
        | shares(label, order, flops, limit.flops)
        | {"schedule": schedule.to_json()}
        for label, schedule in found.items()
    ]


def undisturbed(order: Sequence[tuple[str, Round]]) -> list[tuple[str, Round]]:
    kept = {id(r) for r in quiet([r for _, r in order])}
    return [(label, r) for label, r in order if id(r) in kept]


def least(order: Sequence[tuple[str, Round]], names: Iterable[str]) -> int:
    """Undisturbed rounds of the schedule that has fewest."""
    seen = Counter(label for label, _ in undisturbed(order))
    return min(seen[name] for name in names)


def shares(label: str, order: Sequence[tuple[str, Round]], flops: int, peak_flops: int) -> Row:
    """GFLOP/s and share of the peak: medians of undisturbed rounds, and the fastest runs of all."""
    all_peaks = [ms for _, (_, peaks) in order for ms in peaks]
    fastest = min(ms for name, (times, _) in order if name == label for ms in times)
    calm = undisturbed(order)
    peaks = [ms for _, (_, found) in calm for ms in found]
    times = [ms for name, (found, _) in calm if name == label for ms in found]
    top, best = peak_flops / min(all_peaks) / 1e6, flops / fastest / 1e6
    found: Row = {
        "n": len(times), "gflops_fastest": round(best, 2), "peak_gflops_fastest": round(top, 2),
        "share_fastest": round(best / top, 3),
    }  # fmt: skip
    if len(times) < 2:
        return found
    middle = flops / statistics.median(times) / 1e6
    usual = peak_flops / statistics.median(peaks) / 1e6
    return found | {
        "gflops": round(middle, 2), "peak_gflops": round(usual, 2),
        "share": round(middle / usual, 3), "spread": round(spread(times), 3),
        "peak_spread": round(spread(peaks), 3),
    }  # fmt: skip


def main(
    run: Run,
    host: Hosts = None,
    kernel: Annotated[list[str] | None, among(KERNELS, "Repeatable")] = None,
    seconds: Seconds = 60.0,
) -> None:
    for each in kernel or KERNELS:
        for name in host or (*BROWSERS, "wasmtime"):
            with tempfile.TemporaryDirectory(prefix="tilewright-peak-") as folder:
                rows = measure(name, each, seconds, Path(folder))
            for row in rows:
                shown = ("host", "kernel", "label", "n", "share", "spread", "share_fastest")
                print(*(row.get(key) for key in shown), flush=True)
            run.save(rows)
