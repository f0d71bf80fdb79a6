"""All candidates of a kernel, timed beside each other: one bundle has them, a plan each.

Input: a kernel, schedules, a host.  Output: milliseconds of each.  Plans share weights, inputs and
page.  All alternate, each paired with the first one, one thread, warm; slow ones are dropped.
Results are checked against the reference host before anything is timed.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.accuracy import require_close
from lab.subjects import candidates
from tilewright.api.host_registry import Timer, open_timers
from tilewright.bundle import write
from tilewright.compiler import Options
from tilewright.fusion.kernel_steps import KernelStep
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.targets.device_classes import DeviceClass, match
from tilewright.targets.schedule import Schedule

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


#: Largest difference from the reference host, as a share of the largest value.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Timed:
    """Milliseconds of each candidate, and its judged rounds.

    Times are the fastest run of the default times the median of a candidate's ratios to it.
    """

    times: list[float]
    rounds: list[int]


def repeats(step: KernelStep) -> int:
    """How often a plan runs the kernel."""
    least = LEAST_FLOPS.get(step.kernel.anchor, LEAST_OTHERS)
    return max(1, min(MOST_REPEATS, round(least / max(1, step.kernel.flops))))


def device_here() -> DeviceClass:
    """The class of this machine, with relaxed SIMD; L1 as the system tells it."""
    arch = "x86" if platform.machine().lower() in ("x86_64", "amd64") else "arm"
    size = Path("/sys/devices/system/cpu/cpu0/cache/index0/size")
    l1 = int(size.read_text().strip().removesuffix("K")) * 1024 if size.exists() else 0
    features = ("relaxed_simd", "dot_u8") if arch == "x86" else ("relaxed_simd",)
    return match({"kind": "wasm", "architecture": arch, "features": features, "l1": l1})


def write_candidates(
    step: KernelStep, schedules: Sequence[Schedule], device: DeviceClass, path: Path
) -> Path:
    options = Options(variants=(device.variant,))
    subject = candidates(step, schedules, options, repeats(step))
    write(subject.contents, path)
    return path


def check_candidates(path: Path) -> None:
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
    limit = TOLERANCE * float(np.abs(want).max())
    if not np.isfinite(limit) or (not limit and manifest.inputs):  # a border of zeros reads nothing
        raise SystemExit(f"The result of {path.name} on random inputs shows no errors: {limit}")
    for number, place in enumerate(host.places):
        (address,) = place.outputs
        host.memory.write(bytes(want.nbytes), address)
        host.time(1, number)
        got = np.frombuffer(host.memory.read(address, want.nbytes), np.float32)
        error = float(np.abs(got.reshape(want.shape) - want).max())
        require_close(f"candidate {number}", error, limit)


def alternate(timer: Timer, count: int) -> Timed:
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


def time_candidates(host: str, path: Path, count: int) -> Timed:
    """The bundle's plans in a host of their own."""
    with open_timers(host, [path], 1) as (timer,):
        return alternate(timer, count)


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
