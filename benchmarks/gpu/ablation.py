"""What each feature of a GPU is worth: the best kernel with all of them, and with each withheld.

Input: a GPU, Node, the npm package `webgpu`.  Output: results/gpu.ablation.json.  All candidates of
a kernel that the device runs lie beside each other in one bundle and are timed by turns, by the
GPU's own clock; without a feature the best is that of the candidates that do not need it.  A whole
model is loaded again without the feature instead.  Inputs of kernels are zeros.  It checks no
results: gpu.kernels does, and the tuner for every candidate.

A feature is withheld alone.  What walks in bands has a twin that differs in nothing else.  Where
another feature needs it (matrices of halves need f16 and subgroups), both sides of the comparison
are without that one, too: `base` is then the time that `without` is over, `along` what both lack.
Two things cannot be withheld alone and have no number, but are named in `inseparable`: what serves
another feature only, and packed dot products of products of bytes, which have no tiles without.

    python -m benchmarks gpu.ablation [--only GEMM] [--smoke] [--no-write]

What --only leaves out keeps its rows.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path

from benchmarks.common import Run, nvidia_driver
from benchmarks.gpu.ablation_models import Whole, wholes
from benchmarks.gpu.dawn import WGSL, facts
from benchmarks.gpu.gpu_clock import RUN_MS
from benchmarks.gpu.products import CASES, READERS, Case
from benchmarks.models.row_kernels import subject_graph
from benchmarks.options import Only, Smoke, begins
from benchmarks.records import Row
from lab.subjects import CANDIDATE, candidates, product_step, steps_of
from lab.timing import turn
from tilewright.bundle import open_bundle, write
from tilewright.fusion.kernel_steps import KernelStep
from tilewright.hosts.browser import BrowserHost, BrowserModel
from tilewright.hosts.browser_connection import Json
from tilewright.hosts.browser_dawn import require_dawn
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import CLASSES, DeviceClass
from tilewright.targets.gpu.workgroup_limits import (
    F16_FEATURE,
    MATRIX_FEATURE,
    PACKED_DOT_FEATURE,
    SUBGROUPS_FEATURE,
)
from tilewright.targets.schedule import Schedule
from tilewright.targets.wgsl.target import Wgsl
from tilewright.tuning.candidates import space_of

#: Of each feature, whether a kernel or a model uses it.
FeatureUse = tuple[bool, ...]
#: Whether a kernel needs the feature, by the names that it needs and its schedule's fields; none
#: needs one that comes after it.
FEATURES: Mapping[str, Callable[[Collection[str], Json], bool]] = {
    "f16": lambda needs, _: F16_FEATURE in needs,
    "packed dot": lambda needs, _: PACKED_DOT_FEATURE in needs,
    "subgroups": lambda needs, _: any(name.startswith(SUBGROUPS_FEATURE) for name in needs),
    "subgroup matrices": lambda needs, _: MATRIX_FEATURE in needs,
    "swizzle": lambda _, schedule: schedule.get("band", 1) > 1,
}
PRODUCTS = (
    "K0", "K1", "K2", "K3", "GEMM 4096", "GEMM 4096, 16 bits, halves by matrices",
    "GEMM 4096, bytes", "GEMV 11008x4096, 4 bits", "GEMV 11008x4096, 4 bits, rows in bytes",
)  # fmt: skip
#: Of these the first kernel.
ROWWISE = ("softmax", "layer norm", "attention 384", "attention decode")
SMOKE = ("attention 128x32",)
#: Candidates of a kernel that need the same features, first in the order of trial.
SAME = 8
#: Runs of a candidate in a round, and rounds.
RUNS, ROUNDS = 2, 3
#: Repeats of a plan in a run, at most.
MOST_REPEATS = 512
#: Candidates that took so many times the best of their kind run no further round.
CLOSE = 1.25
#: Seconds of runs before the first candidate: while candidates were compiled, the card fell to a
#: fifth of its clock.
WARM_S = 1.5


@dataclass(frozen=True)
class Subject:
    """A kernel with the candidates that are timed; `flops` of its own, without what prepares it."""

    name: str
    step: KernelStep
    schedules: Sequence[Schedule]
    flops: int


def steps(smoke: bool) -> Iterator[tuple[str, KernelStep, int]]:
    """Names, kernels, and flops."""
    for case in (c for c in CASES if c.name in PRODUCTS):
        timed = little(case) if smoke else case
        yield case.name, step_of(timed), timed.flops
    for name in SMOKE if smoke else ROWWISE:
        step = steps_of(subject_graph(name))[0]
        yield name, step, step.kernel.flops


def step_of(case: Case) -> KernelStep:
    if not case.weight:
        return product_step(case.equation, case.a, case.b, weight=False)
    return steps_of(case.graph())[0]


def little(case: Case) -> Case:
    """The same kind of product, little enough for a software adapter."""
    *batch, rows, _ = case.a
    outer = [min(size, 2) for size in batch]
    return replace(case, a=(*outer, min(rows, 128), 128), b=(*outer, 128, 128))


def tried(
    step: KernelStep, device: DeviceClass, features: Collection[str], same: int = SAME
) -> list[Schedule]:
    """The default and the first candidates of each set of features that the device has, with their
    twins."""
    space = space_of(step.kernel, device)
    seen: Counter[FeatureUse] = Counter()
    found: list[Schedule] = []
    for number in (0, *(n for n in space.trial_on(features) if n)):
        schedule = space.schedules[number]
        kind = used(schedule.features, schedule.to_json())
        seen[kind] += 1
        if seen[kind] <= same:
            found.append(schedule)
    twins = (straight(s) for s in found)
    return list(dict.fromkeys((*found, *(t for t in twins if not t.objection(step.kernel)))))


def straight(schedule: Schedule) -> Schedule:
    """The same but for the order of its tiles: not in bands."""
    if getattr(schedule, "band", 1) <= 1:
        return schedule
    return replace(schedule, **{"band": 1})  # noqa: PIE804  (of a type with the field)


def used(needs: Collection[str], schedule: Json) -> FeatureUse:
    """Of each feature, whether a kernel needs it."""
    return tuple(needed(needs, schedule) for needed in FEATURES.values())


def needs_of(bundle: Path, features: Collection[str]) -> list[list[str]]:
    """What the kernel needs that the engine takes, of each plan: the first that can run."""
    opened = open_bundle(bundle)
    (build,) = opened.manifest.section("wgsl").builds
    needs: Mapping[str, list[str]] = build.facts.get("needs", {})
    found = []
    for ref in build.plans:
        (*_, call) = json.loads(opened.read(ref))
        needed = [needs.get(str(one["slot"]), []) for one in (*call.get("better", ()), call)]
        found.append(next(names for names in needed if set(names) <= set(features)))
    return found


def measure(host: BrowserHost, subject: Subject, features: Collection[str], folder: Path) -> Row:
    # a copy of the rows as halves is shared, as in gpu.kernels
    write(candidates(subject.step, subject.schedules, WGSL, READERS).contents, folder)
    needs, schedules = needs_of(folder, features), list(subject.schedules)
    usual = schedules[0]
    replaced = not set(needs[0]) <= usual.features
    if replaced:  # engines that can do better than the default do
        schedules[0] = better(subject.step.kernel, needs[0])
    uses = [used(n, s.to_json()) for n, s in zip(needs, schedules, strict=True)]
    model = host.load(folder)
    times = candidate_times(model, uses)
    model.dispose()
    if replaced:
        model = host.load(folder, features=sorted(usual.features))
        times.append(milliseconds(model, {CANDIDATE: 0}))
        model.dispose()
        schedules.append(usual)
        uses.append(used(usual.features, usual.to_json()))
    times = [ms / READERS for ms in times]
    best = min(range(len(times)), key=times.__getitem__)
    return {
        "case": subject.name, "candidates": len(times), "ms": round(times[best], 6),
        "tflops": round(subject.flops / times[best] / 1e9, 3), "default_ms": round(times[0], 6),
        "schedule": schedules[best].to_json(),
        "uses": named(uses[best]),
        **vars(worth(times, uses)),
    }  # fmt: skip


def better(kernel: Kernel, needs: Collection[str]) -> Schedule:
    """What an engine takes instead of the default, by what it needs."""
    return next(s for s in Wgsl().defaults_with_features(kernel) if s.features == set(needs))


def named(use: FeatureUse) -> list[str]:
    return [feature for feature, uses in zip(FEATURES, use, strict=True) if uses]


@dataclass(frozen=True)
class Worth:
    """By feature: the best time without it, and the time that this is over; the features that both
    are without; and of features that cannot be withheld alone, what goes with them."""

    without: dict[str, float] = field(default_factory=dict)
    base: dict[str, float] = field(default_factory=dict)
    along: dict[str, list[str]] = field(default_factory=dict)
    inseparable: dict[str, list[str]] = field(default_factory=dict)

    def note(self, feature: str, without: float, base: float, along: list[str]) -> None:
        self.without[feature], self.base[feature] = without, base
        if along:
            self.along[feature] = along


def worth(times: Sequence[float], uses: Sequence[FeatureUse]) -> Worth:
    """Of each feature that something uses."""
    found = Worth()
    for at, feature in enumerate(FEATURES):
        along = dependents(at, uses)
        names = [name for n, name in enumerate(FEATURES) if n in along]
        able = [n for n, use in enumerate(uses) if not any(use[other] for other in along)]
        without = [n for n in able if not uses[n][at]]
        if not any(use[at] for use in uses):
            continue
        if len(without) == len(able):
            found.inseparable[feature] = names
        elif not without:  # engines have a loop left, which lacks much more than the feature
            found.inseparable[feature] = ["tiles"]
        else:
            best, base = (round(min(times[n] for n in of), 6) for of in (without, able))
            found.note(feature, best, base, names)
    return found


def dependents(at: int, uses: Sequence[FeatureUse]) -> list[int]:
    """The features that nothing uses without this one: they go with it."""
    return [
        n
        for n in range(at + 1, len(FEATURES))
        if any(use[n] for use in uses) and all(use[at] for use in uses if use[n])
    ]


def candidate_times(model: BrowserModel, kinds: Sequence[FeatureUse]) -> list[float]:
    """Milliseconds of each candidate by the GPU's clock; every other round begins at the end.  Each
    runs in the first, then those that may be the best of their kind, and the default."""
    found: list[list[float]] = [[] for _ in kinds]
    repeats = [repeats_of(model, {CANDIDATE: 0}), *[0] * (len(kinds) - 1)]
    warm(model, repeats[0], {CANDIDATE: 0})
    numbers = [*range(len(kinds))]
    for number in range(ROUNDS):
        for n in turn(number, numbers):
            if not repeats[n]:
                repeats[n] = repeats_of(model, {CANDIDATE: n})
            found[n] += model.time(RUNS, 1, {CANDIDATE: n}, repeat=repeats[n]).milliseconds
        numbers = [0, *close([statistics.median(times) for times in found], kinds)]
    return [statistics.median(times) for times in found]


def close(times: Sequence[float], kinds: Sequence[FeatureUse]) -> Iterator[int]:
    """The candidates but the first that are not much slower than the best of their kind."""
    best: dict[FeatureUse, float] = {}
    for kind, ms in zip(kinds, times, strict=True):
        best[kind] = min(ms, best.get(kind, ms))
    return (n for n in range(1, len(times)) if times[n] <= CLOSE * best[kinds[n]])


def warm(model: BrowserModel, repeats: int, bucket: Mapping[str, int] | None = None) -> None:
    begun = time.monotonic()
    while time.monotonic() < begun + WARM_S:
        model.time(RUNS, 0, bucket, repeat=repeats)


def repeats_of(model: BrowserModel, bucket: Mapping[str, int] | None = None) -> int:
    """How often it runs at a time, so that the clock can tell.  The first runs tell too much: a
    kernel is not there yet, and an idle card is slow."""
    repeats = 1
    while repeats < MOST_REPEATS:
        once = min(model.time(RUNS, 1, bucket, repeat=repeats).milliseconds)
        if once * repeats >= RUN_MS / 2:
            return min(MOST_REPEATS, ceil(RUN_MS / once))
        repeats *= 8
    return MOST_REPEATS


def measure_whole(host: BrowserHost, whole: Whole, known: Sequence[str], folder: Path) -> Row:
    """A model with what its build chooses by itself, loaded without each feature that it uses, then
    without what needs that one.  Bands stay: no load withholds them."""
    folder.mkdir()
    write(whole.make(folder).contents, folder / "bundle")
    loads: dict[frozenset[str], FeatureUse] = {}
    times: dict[FeatureUse, float] = {}

    def load(*withheld: str) -> FeatureUse:
        key = frozenset(withheld)
        if key not in loads:
            left = [n for n in known if not any(FEATURES[name]([n], {}) for name in withheld)]
            model = host.load(folder / "bundle", features=left)
            loads[key] = use = used(model.info["variant"]["features"], {})
            if use not in times:  # else it runs the same kernels
                if whole.inputs:
                    model.run(whole.inputs)
                times[use] = round(milliseconds(model), 6)
            model.dispose()
        return loads[key]

    every = load()
    found = Worth()
    uses = [every, *(load(name) for name in named(every))]
    for at, feature in ((n, name) for n, name in enumerate(FEATURES) if every[n]):
        names = [list(FEATURES)[n] for n in dependents(at, uses)]
        base = load(*names)
        if not base[at]:
            found.inseparable[feature] = names
        else:
            found.note(feature, times[load(feature)], times[base], names)
    return {
        "case": whole.name, "candidates": 1, "ms": times[every], "default_ms": times[every],
        "uses": named(every), **vars(found),
    }  # fmt: skip


def milliseconds(model: BrowserModel, bucket: Mapping[str, int] | None = None) -> float:
    """Of one run, by the GPU's clock."""
    repeats = repeats_of(model, bucket)
    warm(model, repeats, bucket)
    return statistics.median(model.time(RUNS * ROUNDS, 1, bucket, repeat=repeats).milliseconds)


def adapter_features(host: BrowserHost, folder: Path) -> list[str]:
    """As the engine names them."""
    step = product_step("mk,kn->mn", (4, 4), (4, 4), weight=False)
    write(candidates(step, tried(step, CLASSES["webgpu"], ()), WGSL).contents, folder)
    model = host.load(folder)
    found: list[str] = model.info["adapter"]["features"]
    model.dispose()
    return found


def main(run: Run, only: Only = None, smoke: Smoke = False) -> None:
    dawn = require_dawn()
    device = CLASSES.get(f"webgpu-{dawn.adapter['vendor']}", CLASSES["webgpu"])
    known, gpu = {"device": device.id, **facts(dawn)}, nvidia_driver().get("gpu")
    run = replace(run, writes=run.writes and not smoke)
    last = time.monotonic()

    def keep(row: Row) -> None:
        """At once: a run on a lent GPU may be cut off."""
        nonlocal last
        run.keep({"gpu": gpu, **row}, facts=known)
        begun, last = last, time.monotonic()
        print(f"{row['case']}: {last - begun:.1f} s", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="ablation-") as at, BrowserHost(dawn) as host:
        features = adapter_features(host, Path(at, "first"))
        for number, (name, step, flops) in enumerate(steps(smoke)):
            if begins(name, only):
                tries = tried(step, device, features, 1 if smoke else SAME)
                subject = Subject(name, step, tries, flops)
                keep(measure(host, subject, features, Path(at, str(number))))
        for number, whole in enumerate(wholes(smoke)):
            if begins(whole.name, only):
                keep(measure_whole(host, whole, features, Path(at, f"whole-{number}")))
