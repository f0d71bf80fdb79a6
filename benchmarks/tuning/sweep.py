"""Every candidate of every kernel, timed: where the optimum is, and how soon the order finds it.

Input: hosts, kernels.  Output: results/tuning.sweep.json: a row per host, kernel and device class
with the time of each candidate.  One bundle per kernel has all candidates, a plan each, so that
they share weights, inputs and page.  All alternate, each paired with the default, one thread, warm;
slow ones are dropped.  Candidates are checked against the reference host before anything is timed.

    python -m benchmarks tuning.sweep --host chromium --kernel K0 --kernel K1
    python -m benchmarks tuning.sweep --cross       winners of each shape on the other shapes
"""

from __future__ import annotations

import platform
import shlex
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, TypedDict, cast

import numpy as np
import typer

from benchmarks.common import Run, rows_of
from benchmarks.models import row_kernels
from benchmarks.models.layers import LAYERS
from benchmarks.optimum import near, trials_until_near
from benchmarks.options import Hosts, among
from benchmarks.records import Row
from lab.paper_spaces import PAPER
from lab.subjects import candidates, matmul_step, paper_step, steps_of
from tilewright.api.hosts import Timer, engine_of, open_timers, timing_hosts
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.fusion.steps import KernelStep
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.targets.classes import DeviceClass, find, match
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.strategies import lower, schedule_from_json
from tilewright.tuning.candidates import Space, space_of

#: Rounds of all candidates; the first do not count, since engines still recompile hot functions.
#: (round, factor): after that round, candidates slower than the best by that factor are dropped.
ROUNDS, WARM_ROUNDS = 16, 2
BEHIND = {4: 2.0, 6: 1.3, 8: 1.15, 11: 1.06}
#: Seconds after which no round begins but the first ones: long runs are the less noisy ones.
SECONDS, FEWEST = 40.0, 6
#: Candidates between two runs of the default, and the largest ratio of these two: a neighbour on
#: the same physical core takes up to half of it, for seconds, and ratios are wrong meanwhile.
GROUP, CALM, ATTEMPTS = 3, 1.12, 3
#: Warm-up: a time must be below the best by this factor to be an improvement; ends after this many
#: runs without one.
SETTLED, SETTLING = 1.03, 40
#: Floating point operations of a run at least: some milliseconds, or clocks are too coarse.
LEAST_FLOPS = {"contract": 1e8, "attention": 5e7}
LEAST_OTHERS = 1e7
MOST_REPEATS = 50


def layer(model: str, name: str) -> KernelStep:
    """The convolution of a layer of models/layers.py, with its bias and ReLU."""
    (found,) = (x for x in LAYERS if (x.model, x.name) == (model, name))
    compiled = compile_model(found.onnx(), Options(variants=("x86",)))
    return max(compiled.plans[0].steps, key=lambda s: s.kernel.flops)


def row_kernel(name: str) -> KernelStep:
    return max(steps_of(row_kernels.subject_graph(name)), key=lambda s: s.kernel.flops)


#: nnJIT's kernels; those of MiniLM at 128 tokens; convolutions; row-wise kernels; attention.
SUBJECTS: Mapping[str, Callable[[], KernelStep]] = {
    **{name: partial(paper_step, name) for name in PAPER},
    "MiniLM 384>384": partial(matmul_step, 128, 384, 384),
    "MiniLM 384>1536": partial(matmul_step, 128, 384, 1536),
    "MiniLM 1536>384": partial(matmul_step, 128, 1536, 384),
    "one row": partial(matmul_step, 1, 768, 3072),
    "conv 3x3": partial(layer, "ResNet-50", "3x3 64>64@56"),
    "conv 1x1": partial(layer, "ResNet-50", "1x1 64>256@56"),
    "depthwise 3x3": partial(layer, "MobileNetV2", "3x3 dw 144>144@56"),
    "attention": partial(row_kernel, "attention 128x32"),
    "softmax": partial(row_kernel, "softmax"),
    "layer norm": partial(row_kernel, "layer norm"),
}
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


@dataclass(frozen=True)
class Timed:
    """Milliseconds of each candidate, and its judged rounds.

    Times are the fastest run of the default times the median of a candidate's ratios to it.
    """

    times: list[float]
    rounds: list[int]


def repeats(step: KernelStep) -> int:
    least = LEAST_FLOPS.get(step.kernel.anchor, LEAST_OTHERS)
    return max(1, min(MOST_REPEATS, round(least / max(1, step.kernel.flops))))


def device_here() -> DeviceClass:
    """The class of this machine, with relaxed SIMD; L1 as the system tells it."""
    arch = "x86" if platform.machine().lower() in ("x86_64", "amd64") else "arm"
    size = Path("/sys/devices/system/cpu/cpu0/cache/index0/size")
    l1 = int(size.read_text().strip().removesuffix("K")) * 1024 if size.exists() else 0
    features = ("relaxed_simd", "dot_u8") if arch == "x86" else ("relaxed_simd",)
    return match({"kind": "wasm", "architecture": arch, "features": features, "l1": l1})


def written(
    step: KernelStep, schedules: Sequence[Schedule], device: DeviceClass, path: Path
) -> Path:
    options = Options(variants=(device.variant,))
    subject = candidates(step, schedules, options, repeats(step))
    write(subject.contents, path)
    return path


def check(path: Path) -> None:
    """Every candidate's result against the reference host's, on random inputs; wasmtime runs it.

    Inputs of a kernel that takes a root or a logarithm of them are positive.
    """
    host, reference = WasmtimeHost(path), ReferenceHost(path)
    manifest, random = host.bundle.manifest, np.random.default_rng(1)
    shapes = list(zip(manifest.inputs, manifest.plans[0].inputs, strict=True))
    values = {i.name: random.standard_normal(shape, np.float32) for i, shape in shapes}
    want = reference.run(values).outputs["y"]
    if not np.isfinite(want).all():
        values = {i.name: random.uniform(0.5, 1.5, s).astype(np.float32) for i, s in shapes}
        want = reference.run(values).outputs["y"]
    host.run(values)
    limit = 1e-4 * float(np.abs(want).max())
    assert limit < np.inf
    assert limit or not manifest.inputs  # a border of zeros reads nothing
    for number, place in enumerate(host.places):
        (address,) = place.outputs
        host.memory.write(bytes(want.nbytes), address)
        host.time(1, number)
        got = np.frombuffer(host.memory.read(address, want.nbytes), np.float32)
        error = float(np.abs(got.reshape(want.shape) - want).max())
        assert error <= limit, f"candidate {number} is off by {error}, {limit} is allowed"


def sweep(timer: Timer, count: int) -> Timed:
    """All candidates in order and back, each paired with the default."""
    settle(timer)
    ratios: list[list[float]] = [[] for _ in range(count)]
    ratios[0] = [1.0] * ROUNDS
    alive, fastest = list(range(1, count)), float("inf")
    start = time.monotonic()
    for number in range(1, ROUNDS + 1):
        if number > FEWEST and time.monotonic() - start > SECONDS:
            break
        turn = alive if number % 2 else alive[::-1]
        for at in range(0, len(turn), GROUP):
            group = turn[at : at + GROUP]
            found, base = _beside(timer, group)
            fastest = min(fastest, base)
            if number > WARM_ROUNDS:
                for n, ratio in zip(group, found, strict=True):
                    ratios[n].append(ratio)
        if number in BEHIND:
            middle = {n: statistics.median(ratios[n]) for n in alive}
            limit = BEHIND[number] * min([1.0, *middle.values()])
            alive = [n for n in alive if middle[n] <= limit]
    times = [fastest * statistics.median(r) for r in ratios]
    return Timed(times, [len(r) for r in ratios])


def _beside(timer: Timer, group: Sequence[int]) -> tuple[list[float], float]:
    """The ratio of each to the default, and the default's time; again if the core was disturbed."""
    before = _once(timer, 0)
    for _ in range(ATTEMPTS):
        times = [_once(timer, n) for n in group]
        after = _once(timer, 0)
        if max(before, after) <= CALM * min(before, after):
            break
        before = after
    return [2 * t / (before + after) for t in times], min(before, after)


def timed(host: str, path: Path, count: int) -> Timed:
    """The bundle's plans in a host of their own."""
    with open_timers(host, [path], 1) as (timer,):
        return sweep(timer, count)


def settle(timer: Timer) -> None:
    """Runs until the default's time stops falling: some engines compile a whole module at once."""
    best, calm = _once(timer, 0), 0
    while calm < SETTLING:
        found = _once(timer, 0)
        calm = 0 if found * SETTLED < best else calm + 1
        best = min(best, found)


def _once(timer: Timer, plan: int) -> float:
    (found,) = timer(1, plan)
    return found


# ---- what follows from times ---------------------------------------------------------------------


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
    return cast("list[SweepRow]", rows_of("tuning.sweep"))


def measure(host: str, name: str, device: DeviceClass) -> SweepRow:
    step = SUBJECTS[name]()
    space = space_of(step.kernel, device)
    with tempfile.TemporaryDirectory(prefix="tilewright-space-") as folder:
        path = written(step, space.schedules, device, Path(folder) / "bundle")
        check(path)
        times = timed(host, path, len(space.schedules))
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
                path = written(step, schedules, device, Path(folder) / "bundle")
                check(path)
                times = timed(host, path, len(schedules)).times
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
