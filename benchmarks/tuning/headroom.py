"""Where tuning pays: the kernels of public models, and how much of that a session takes.

Input: browsers, names of models/public.py.  Output: results/tuning.headroom.json, rows by part:

    kernel    default against the fastest of its whole space, of each kernel with 2 % of the time
    model     the whole model with those, against the model as built, by turns
    session   the model after a session of so many seconds, against both, by turns

    python -m benchmarks tuning.headroom sweep --host chromium --model nudenet
    python -m benchmarks tuning.headroom session --host firefox --seconds 30
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Annotated, Literal, TypedDict, cast

import typer

from benchmarks.common import Run, stored_rows
from benchmarks.models.public import PUBLIC, fetched
from benchmarks.optimum import POOR
from benchmarks.options import BROWSERS, Hosts, Models, among
from benchmarks.records import Row
from benchmarks.tuning.candidate_times import (
    check_candidates,
    device_here,
    time_candidates,
    write_candidates,
)
from benchmarks.tuning.sessions import TunedKernel, page, speed_ratios, tuned
from lab.timing import WARM_MS, timer_of, warm_up
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.fusion.kernel_steps import KernelStep
from tilewright.hosts.browser_programs import node
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import DeviceClass
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import Machine, by_machine
from tilewright.targets.simd.strategies import default_schedule, schedule_from_json
from tilewright.tuning.candidates import key_of, space_of

#: Kernels with a smaller share of the model's time are not swept.
LEAST_SHARE = 0.02
#: Shares of headroom are not told below this gain: it is within the noise.
LEAST_GAIN = 1.01
#: Lengths of sessions.
SECONDS = (5.0, 30.0)


class KernelRow(TypedDict):
    """A stored row of part "kernel".

    kernel: see `short`;  share: of the default's time that the optimum takes
    times:  of each candidate, the default first
    """

    host: str
    model: str
    device: str
    kernel: str
    kind: str
    shape: str
    count: int
    time_share: float
    candidates: int
    share: float
    trial: int
    default: Mapping[str, object]
    optimum: Mapping[str, object]
    checksum: str
    times: Sequence[float]


def swept_kernels(device: DeviceClass) -> list[KernelRow]:
    """The stored rows of kernels, of this class."""
    rows = stored_rows("tuning.headroom")
    found = [r for r in rows if (r["part"], r["device"]) == ("kernel", device.id)]
    return cast("list[KernelRow]", found)


@dataclass(frozen=True)
class HotKernel:
    """A kernel that takes a part of a model's time.

    key: see `short`;  count: steps that run it;  share: of the model's time
    """

    step: KernelStep
    key: str
    count: int
    share: float


def short(kernel: Kernel) -> str:
    """The beginning of a kernel's key, by which results name it."""
    return key_of(kernel)[:12]


def host_name(host: str) -> str:
    """The host, as results name it: of Node with its major version, since its compiler differs."""
    return node().version().split(".")[0].lower().replace(" v", " ") if host == "node" else host


def built(name: str, folder: Path, path: Path, best: Mapping[str, Schedule] | None = None) -> Path:
    """The model's bundle, with these schedules by kernel; the others have their defaults."""

    def choose(kernel: Kernel, machine: Machine) -> Schedule:
        return (best or {}).get(short(kernel)) or default_schedule(kernel, machine)

    schedule = by_machine(choose) if best else None
    options = Options(shapes=PUBLIC[name].shapes, schedule=schedule)
    write(compile_model(fetched(name, folder), options).contents, path)
    return path


def steps_of(name: str, folder: Path) -> Sequence[KernelStep]:
    """The steps of the model as built."""
    return compile_model(fetched(name, folder), Options(shapes=PUBLIC[name].shapes)).plans[0].steps


def hot_kernels(host: str, name: str, folder: Path, path: Path) -> list[HotKernel]:
    """The kernels that take the time, the longest first."""
    steps = steps_of(name, folder)
    with page(host) as browser:
        model = browser.load(path, threads=1)
        warm_up(timer_of(model), WARM_MS)
        times = [row["milliseconds"] for row in model.profile(20)]
    total, first = sum(times), dict[str, KernelStep]()
    spent, count = dict[str, float](), dict[str, int]()
    for step, time in zip(steps, times, strict=True):
        key = short(step.kernel)
        first.setdefault(key, step)
        spent[key] = spent.get(key, 0.0) + time
        count[key] = count.get(key, 0) + 1
    found = [HotKernel(first[k], k, count[k], spent[k] / total) for k in first]
    return sorted((hot for hot in found if hot.share >= LEAST_SHARE), key=lambda hot: -hot.share)


def sweep(host: str, name: str, folder: Path, device: DeviceClass) -> Iterator[Row]:
    """A row per kernel, then one of the model."""
    same = {"host": host_name(host), "model": name, "device": device.id}
    with tempfile.TemporaryDirectory(prefix="tilewright-headroom-") as place:
        plain = built(name, folder, Path(place) / "plain")
        best: dict[str, Schedule] = {}
        rest, swept = 0.0, 0.0
        for hot in hot_kernels(host, name, folder, plain):
            space = space_of(hot.step.kernel, device)
            swept += hot.share
            if len(space.schedules) == 1:
                rest += hot.share
                continue
            path = write_candidates(hot.step, space.schedules, device, Path(place) / hot.key)
            check_candidates(path)
            times = time_candidates(host, path, len(space.schedules)).times
            top = min(range(len(times)), key=times.__getitem__)
            best[hot.key] = space.schedules[top]
            own = times[top] / times[0]
            rest += hot.share * own
            yield same | {
                "part": "kernel", "kernel": hot.key, "kind": space.kind, "shape": space.shape,
                "count": hot.count, "time_share": round(hot.share, 3),
                "candidates": len(times), "share": round(own, 3),
                "trial": space.order.index(top) + 1 if top else 0,
                "default": space.schedules[0].to_json(), "optimum": space.schedules[top].to_json(),
                "checksum": space.checksum, "times": [float(f"{t:.4g}") for t in times],
            }  # fmt: skip
        tuned_one = built(name, folder, Path(place) / "best", best)
        with page(host) as browser:
            mine, own_model = (browser.load(p, threads=1) for p in (tuned_one, plain))
            ratios = speed_ratios(mine, own_model)
        yield same | {
            "part": "model", "kernels": len(best), "swept_share": round(swept, 3),
            "expected": round(1 / (1 - swept + rest), 3),
            "headroom": round(statistics.median(ratios), 3), "least": round(min(ratios), 3),
            "n": len(ratios),
        }  # fmt: skip


def session(host: str, name: str, folder: Path, device: DeviceClass, seconds: float) -> Row:
    """A session from the model as built, against the model of the last sweep of this class."""
    swept = {
        row["kernel"]: row
        for row in swept_kernels(device)
        if (row["host"], row["model"]) == (host_name(host), name)
    }
    if not swept:
        raise SystemExit(f"No sweep of {name} on {host} for the class {device.id}: run it first")
    best = {key: schedule_from_json(row["optimum"]) for key, row in swept.items()}
    with tempfile.TemporaryDirectory(prefix="tilewright-headroom-") as place:
        plain = built(name, folder, Path(place) / "plain")
        optimal = built(name, folder, Path(place) / "best", best)
        with page(host) as browser:
            model, found, summary = tuned(browser, plain, seconds)
            own, top = (browser.load(p, threads=1) for p in (plain, optimal))
            gains, tops = speed_ratios(model, own), speed_ratios(top, own)
        if summary.device != device.id:
            raise SystemExit(f"The page is of class {summary.device}, not {device.id}: try again")
        poor = {key: row for key, row in swept.items() if row["share"] < POOR}
        below = list(reached(host, name, folder, device, poor, summary.kernels))
    gain, headroom = statistics.median(gains), statistics.median(tops)
    return {
        "part": "session", "host": host_name(host), "model": name, "device": device.id,
        "seconds": seconds, "rounds": len(found.trials), "swaps": len(found.current),
        "gain": round(gain, 3), "least": round(min(gains), 3), "headroom": round(headroom, 3),
        "taken": round(log(gain) / log(headroom), 2) if headroom >= LEAST_GAIN else None,
        "n": len(gains), "below": below, **summary.gain.row(),
    }  # fmt: skip


def reached(
    host: str, name: str, folder: Path, device: DeviceClass, poor: Mapping[str, KernelRow],
    kernels: Sequence[TunedKernel],
) -> Iterator[Row]:  # fmt: skip
    """Of each kernel with a poor default: the default's and the session's share of the fastest,
    timed beside the sweep's optimum in a page of their own.

    poor: by key, rows of the sweep;  kernels: the session's summary, which names kernels by kind
    and shape: those of which several are alike are left out
    """
    kinds = [(k.kind, k.shape) for k in kernels]
    for key, step in {short(step.kernel): step for step in steps_of(name, folder)}.items():
        row = poor.get(key)
        if not row or kinds.count(kind := (row["kind"], row["shape"])) != 1:
            continue
        space = space_of(step.kernel, device)
        used = kernels[kinds.index(kind)].candidate
        shown = [space.schedules[0], schedule_from_json(row["optimum"]), space.schedules[used]]
        with tempfile.TemporaryDirectory(prefix="tilewright-headroom-") as place:
            path = write_candidates(step, shown, device, Path(place) / "beside")
            times = time_candidates(host, path, len(shown)).times
        own, _, after = (round(min(times) / t, 3) for t in times)
        yield {"kernel": key, "shape": row["shape"], "default": own, "share": after}


def main(
    run: Run,
    step: Annotated[
        Literal["sweep", "session"], typer.Argument(help="Sessions need the sweep of this class.")
    ],
    host: Hosts = None,
    model: Annotated[list[str] | None, among(PUBLIC, "Models; repeatable")] = None,
    seconds: Annotated[
        list[float] | None, typer.Option(help="Of a session (5, 30); repeatable.")
    ] = None,
    models: Models = Path("dist/public"),
) -> None:
    device = device_here()
    for name in host or BROWSERS:
        for each in model or PUBLIC:
            if step == "sweep":
                found = sweep(name, each, models, device)
            else:
                found = (session(name, each, models, device, s) for s in seconds or SECONDS)
            for row in found:
                run.keep({"kernel": "", "seconds": 0, **row})
