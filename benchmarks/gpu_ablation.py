"""What each feature of a GPU is worth: the best kernel with all of them, and with each withheld.

Input: a GPU, Node, the npm package `webgpu`.  Output: results/gpu_ablation.json.  All candidates of
a kernel that the device runs lie beside each other in one bundle and are timed by turns, by the
GPU's own clock; without a feature the best is that of the candidates that do not need it.  A whole
model is loaded again without the feature instead.  Inputs are zeros.  It checks no results: gpu.py
does, and the tuner for every candidate.

    python benchmarks/gpu_ablation.py [--only GEMM] [--smoke] [--no-save]

What --only leaves out keeps its rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import common
from gpu import WGSL, facts
from gpu_js_time import SMALL
from products import CASES, READERS, Case
from rows import subject_graph

from benchmarks.peers.models import Text, roberta
from tilewright.benchkernel import CANDIDATE, candidates, product_step, steps_of
from tilewright.bundle import open_bundle, write
from tilewright.compiler import compile_model
from tilewright.fusion.steps import KernelStep
from tilewright.hosts.browser import BrowserHost, BrowserModel
from tilewright.hosts.browser_dawn import require_dawn
from tilewright.targets.classes import CLASSES, DeviceClass
from tilewright.targets.gpu.features import F16, MATRIX, PACKED, SUBGROUPS
from tilewright.targets.plain import Plain
from tilewright.targets.schedule import Schedule
from tilewright.tuning.candidates import space_of

Row = dict[str, Any]
#: Whether a kernel needs the feature, by the names that it needs and its schedule's fields.
FEATURES: Mapping[str, Callable[[Collection[str], Mapping[str, Any]], bool]] = {
    "f16": lambda needs, _: F16 in needs,
    "packed dot": lambda needs, _: PACKED in needs,
    "subgroups": lambda needs, _: any(name.startswith(SUBGROUPS) for name in needs),
    "subgroup matrices": lambda needs, _: MATRIX in needs,
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
#: Milliseconds of a timed run, runs of a candidate in a round, and rounds.
RUN_MS, RUNS, ROUNDS = 20.0, 2, 3
MOST_REPEATS = 512
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
    """The default and the first candidates of each set of features that the device has; where all
    need one, also what engines run without any."""
    space = space_of(step.kernel, device)
    seen: Counter[tuple[bool, ...]] = Counter()
    found = []
    for number in (0, *(n for n in space.trial_on(features) if n)):
        schedule = space.schedules[number]
        kind = used(schedule.features, schedule.to_json())
        seen[kind] += 1
        if seen[kind] <= same:
            found.append(schedule)
    return found if any(not s.features for s in found) else [*found, Plain()]


def used(needs: Collection[str], schedule: Mapping[str, Any]) -> tuple[bool, ...]:
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
        ways = [needs.get(str(way["slot"]), []) for way in (*call.get("better", ()), call)]
        found.append(next(way for way in ways if set(way) <= set(features)))
    return found


def measure(host: BrowserHost, subject: Subject, features: Collection[str], folder: Path) -> Row:
    # a copy of the rows as halves is shared, as in gpu.py
    write(candidates(subject.step, subject.schedules, WGSL, READERS).contents, folder)
    model = host.load(folder)
    times = [ms / READERS for ms in by_turns(model, len(subject.schedules))]
    model.dispose()
    ways = [
        used(needs, schedule.to_json())
        for needs, schedule in zip(needs_of(folder, features), subject.schedules, strict=True)
    ]
    best = min(range(len(times)), key=times.__getitem__)
    without = {
        feature: round(min(t for t, way in zip(times, ways, strict=True) if not way[at]), 6)
        for at, feature in enumerate(FEATURES)
        if any(way[at] for way in ways)
    }
    return {
        "case": subject.name, "candidates": len(times), "ms": round(times[best], 6),
        "tflops": round(subject.flops / times[best] / 1e9, 3), "default_ms": round(times[0], 6),
        "schedule": subject.schedules[best].to_json(),
        "uses": [f for f, uses in zip(FEATURES, ways[best], strict=True) if uses],
        "without": without,
    }  # fmt: skip


def by_turns(model: BrowserModel, count: int) -> list[float]:
    """Milliseconds of each candidate by the GPU's clock; every other round begins at the end."""
    found: list[list[float]] = [[] for _ in range(count)]
    repeats = [repeats_of(model, {CANDIDATE: 0}), *[0] * (count - 1)]
    begun = time.monotonic()
    while time.monotonic() < begun + WARM_S:
        model.time(RUNS, 0, {CANDIDATE: 0}, repeat=repeats[0])
    for number in range(ROUNDS):
        for n in range(count)[:: -1 if number % 2 else 1]:
            if not repeats[n]:
                repeats[n] = repeats_of(model, {CANDIDATE: n})
            found[n] += model.time(RUNS, 1, {CANDIDATE: n}, repeat=repeats[n]).milliseconds
    return [statistics.median(times) for times in found]


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


def whole(host: BrowserHost, smoke: bool, folder: Path) -> Row:
    """A 12-layer encoder with the compiler's defaults."""
    write(compile_model(roberta(SMALL if smoke else Text()), WGSL).contents, folder)
    times: dict[str, float] = {}
    names: list[str] = []
    known: Sequence[str] = ()
    for feature in ("", *FEATURES):
        if feature and feature not in names:
            continue
        left = [n for n in known if not FEATURES[feature]([n], {})] if feature else None
        model = host.load(folder, features=left)
        repeats = repeats_of(model)
        samples = model.time(RUNS * ROUNDS, 2, repeat=repeats).milliseconds
        times[feature] = round(statistics.median(samples), 5)
        if not feature:
            known = model.info["adapter"]["features"]
            uses = used(model.info["variant"]["features"], {})
            names = [name for name, own in zip(FEATURES, uses, strict=True) if own]
        model.dispose()
    best = times.pop("")
    about = {"case": "RoBERTa-base", "candidates": 1, "ms": best, "default_ms": best}
    return {**about, "uses": names, "without": times}


def adapter_features(host: BrowserHost, folder: Path) -> list[str]:
    """As the engine names them."""
    step = product_step("mk,kn->mn", (4, 4), (4, 4), weight=False)
    write(candidates(step, tried(step, CLASSES["webgpu"], ()), WGSL).contents, folder)
    model = host.load(folder)
    found: list[str] = model.info["adapter"]["features"]
    model.dispose()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="cases that begin so")
    parser.add_argument("--smoke", action="store_true", help="little products; nothing is written")
    parser.add_argument("--no-save", action="store_true", help="nothing is written")
    parser.add_argument("--commit", default="", help="what was measured, where there is no git")
    args = parser.parse_args()
    asked = tuple(args.only) or ("",)
    dawn, rows = require_dawn(), []
    device = CLASSES.get(f"webgpu-{dawn.adapter['vendor']}", CLASSES["webgpu"])
    with tempfile.TemporaryDirectory(prefix="ablation-") as at, BrowserHost(dawn) as host:
        features = adapter_features(host, Path(at, "first"))
        for number, (name, step, flops) in enumerate(steps(args.smoke)):
            if name.startswith(asked):
                same = 1 if args.smoke else SAME
                subject = Subject(name, step, tried(step, device, features, same), flops)
                rows.append(measure(host, subject, features, Path(at, str(number))))
                print(json.dumps(rows[-1]), flush=True)
        if "RoBERTa-base".startswith(asked):
            rows.append(whole(host, args.smoke, Path(at, "whole")))
            print(json.dumps(rows[-1]), flush=True)
    if args.smoke or args.no_save:
        return
    known = facts(dawn, args.commit)
    rows = [{"gpu": known["machine"].get("gpu"), **row} for row in rows]
    print(common.merge("gpu_ablation", rows, ("gpu", "case"), device=device.id, **known))


if __name__ == "__main__":
    main()
