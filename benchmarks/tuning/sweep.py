"""Every candidate of every kernel, timed: where the optimum is, and how soon the order finds it.

Input: hosts, kernels.  Output: results/tuning.sweep.json: a row per host, kernel and device class
with the time of each candidate, by candidate_times.py.

    python -m benchmarks tuning.sweep --host chromium --kernel K0 --kernel K1
    python -m benchmarks tuning.sweep --cross       winners of each shape on the other shapes
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypedDict, cast

import typer

from benchmarks.common import Run, stored_rows
from benchmarks.optimum import near, trials_until_near
from benchmarks.options import Hosts, among
from benchmarks.records import Row
from benchmarks.tuning.candidate_times import (
    Timed,
    check_candidates,
    device_here,
    repeats,
    time_candidates,
    write_candidates,
)
from benchmarks.tuning.subjects import SUBJECTS
from tilewright.api.host_registry import engine_of, timing_hosts
from tilewright.fusion.kernel_steps import KernelStep
from tilewright.targets.device_classes import DeviceClass, find
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.strategies import lower, schedule_from_json
from tilewright.tuning.candidates import Space, space_of

#: Kernels whose winners are tried on each other: the same kind, another shape.
CROSSED = (
    ("K0", "K1", "MiniLM 384>384", "MiniLM 384>1536", "MiniLM 1536>384", "one row"),
    ("K2", "K3"),
)


class Ranked(TypedDict):
    """A candidate of a sweep.  trial: its place in the order of trial, 0 for the default"""

    candidate: int
    mark: str
    schedule: Mapping[str, object]
    ms: float
    share: float
    trial: int


class SweepRow(TypedDict):
    """A row of results/tuning.sweep.json.  times: milliseconds of each candidate"""

    host: str
    engine: str
    kernel: str
    kind: str
    shape: str
    device: str
    checksum: str
    flops: int
    candidates: int
    lite_candidates: int
    optimum: Ranked
    default: Ranked
    lite: Ranked | None
    powers: Ranked | None
    rounds: int | None
    rounds_without_default: int | None
    least_rounds: int
    times: Sequence[float]


def best_of(times: Sequence[float], numbers: Iterable[int]) -> int | None:
    return min(numbers, key=lambda n: times[n], default=None)


def powers_of_two(schedule: Schedule) -> bool:
    """nnJIT's heuristic 2, of all sizes that its candidates have."""
    sizes = [n for n in vars(schedule).values() if type(n) is int]
    return all(n & (n - 1) == 0 for n in sizes)


def row(
    host: str, engine: str, name: str, step: KernelStep, space: Space, found: Timed
) -> SweepRow:
    """One row of the results: times, and conclusions from them."""
    times, marks = found.times, space.marks
    top = min(times)

    def told(number: int) -> Ranked:
        in_order = space.order.index(number) + 1 if number in space.order else 0
        return {
            "candidate": number,
            "mark": marks[number],
            "schedule": space.schedules[number].to_json(),
            "ms": round(times[number] / repeats(step), 4),
            "share": round(top / times[number], 3),
            "trial": in_order,
        }

    def best(numbers: Iterable[int]) -> Ranked | None:
        number = best_of(times, numbers)
        return None if number is None else told(number)

    numbers = range(len(times))
    return {
        "host": host,
        "engine": engine,
        "kernel": name,
        "kind": space.kind,
        "shape": space.shape,
        "device": space.device.id,
        "checksum": space.checksum,
        "flops": step.kernel.flops,
        "candidates": len(times),
        "lite_candidates": marks.count("lite"),
        "optimum": told(times.index(top)),
        "default": told(0),
        "lite": best(n for n in numbers if marks[n] == "lite"),
        "powers": best(n for n in numbers if powers_of_two(space.schedules[n])),
        "rounds": 0 if times[0] <= near(times) else trials_until_near(times, space.order),
        "rounds_without_default": trials_until_near(times, space.order),
        "least_rounds": min(found.rounds),
        "times": [round(t / repeats(step), 5) for t in times],
    }


def optimum_of(rows: Sequence[SweepRow], host: str, name: str, space: Space) -> Schedule:
    """The fastest candidate of this space (same checksum), for this class of devices."""
    wanted = (host, name, space.device.id, space.checksum)
    for r in rows:
        if (r["host"], r["kernel"], r["device"], r["checksum"]) == wanted:
            return schedule_from_json(r["optimum"]["schedule"])
    command = f"--host {host} --kernel {shlex.quote(name)} --device {space.device.id}"
    raise SystemExit(
        f"No sweep of {name} on {host} for the class {space.device.id} and its space of today: "
        f"run python -m benchmarks tuning.sweep {command}"
    )


# ---- runs ----------------------------------------------------------------------------------------


def swept() -> list[SweepRow]:
    """The rows of results/tuning.sweep.json."""
    return cast("list[SweepRow]", stored_rows("tuning.sweep"))


def measure(host: str, name: str, device: DeviceClass) -> SweepRow:
    step = SUBJECTS[name]()
    space = space_of(step.kernel, device)
    with tempfile.TemporaryDirectory(prefix="tilewright-space-") as folder:
        path = write_candidates(step, space.schedules, device, Path(folder) / "bundle")
        check_candidates(path)
        times = time_candidates(host, path, len(space.schedules))
    found = row(host, engine_of(host), name, step, space, times)
    shown = (host, name, found["candidates"], found["default"]["share"], found["optimum"])
    print(*shown, flush=True)
    return found


def cross(host: str, device: DeviceClass, rows: Sequence[SweepRow]) -> Iterator[Row]:
    """Each shape under the winners of others: time with its own over time with theirs.

    tiles: of the shape with that schedule; with few, the shape's extended space lacks it
    """
    ours = [r for r in rows if (r["host"], r["device"]) == (host, device.id)]
    winners = {r["kernel"]: r["optimum"]["schedule"] for r in ours}
    for group in CROSSED:
        names = [n for n in group if n in winners]
        schedules = [schedule_from_json(winners[n]) for n in names]
        for name in names:
            step = SUBJECTS[name]()
            with tempfile.TemporaryDirectory(prefix="tilewright-space-") as folder:
                path = write_candidates(step, schedules, device, Path(folder) / "bundle")
                check_candidates(path)
                times = time_candidates(host, path, len(schedules)).times
            own = times[names.index(name)]
            shares = {other: round(own / t, 3) for other, t in zip(names, times, strict=True)}
            tiles = {n: lower(step.kernel, s).tiles for n, s in zip(names, schedules, strict=True)}
            yield {
                "host": host, "kernel": name, "device": device.id, "shares": shares, "tiles": tiles,
            }  # fmt: skip


def main(
    run: Run,
    host: Hosts = None,
    kernel: Annotated[list[str] | None, among(SUBJECTS, "Kernels; repeatable")] = None,
    device: Annotated[str, typer.Option(help="A class of devices; by default this one's.")] = "",
    crossed: Annotated[
        bool, typer.Option("--cross", help="Winners on the other shapes: tuning.sweep.shapes.json.")
    ] = False,
) -> None:
    known = find(device) if device else device_here()
    for name in host or timing_hosts():
        if crossed:
            rows = list(cross(name, known, swept()))
            for row in rows:
                run.show(row)
            run.save(rows, part="shapes")
            continue
        for each in kernel or SUBJECTS:
            run.save([measure(name, each, known)])
