"""Tuning that cannot be handed the answer: the compiler's default is no candidate.

Input: browsers; kernels of sweep.py, or the longest of public models.  Output: a row per kernel,
start and order in results/tuning.withheld.json.  What the server sends has neither the default nor
what has the same code.  A session begins with

    poor      the naive schedule
    median    the candidate in the middle of all, by time

and gets the others in one of two orders: `model`, that of the cost model, or `random`.  A sweep in
the same browser finds the fastest; then all kernels that were in use are timed beside the three
fastest by turns, in three pages, so that a lucky reading of the sweep decides nothing.  `guess` is
the share of the cost model's first choice, which nobody measured; `random_rounds` what a random
order takes in the mean, by arithmetic, until one of the `good` comes.  `best` tells what became of
the three fastest in the session.

    python -m benchmarks tuning.withheld --host chromium --kernel K0
    python -m benchmarks tuning.withheld --model nudenet --budget 0.05 --seconds 120
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from benchmarks.common import Run
from benchmarks.models.public import PUBLIC
from benchmarks.optimum import near, reached, trials_at_random
from benchmarks.options import BROWSERS, Hosts, Models, SessionSeconds, among
from benchmarks.records import Row
from benchmarks.tuning import headroom
from benchmarks.tuning.candidate_times import (
    check_candidates,
    device_here,
    time_candidates,
    write_candidates,
)
from benchmarks.tuning.sessions import Trial, evaluation_of, page, tuned
from benchmarks.tuning.subjects import SUBJECTS
from lab.paper_spaces import PAPER
from lab.primitives.table import untuned
from lab.subjects import alone
from tilewright.bundle import write
from tilewright.compiler import Options
from tilewright.fusion.kernel_steps import KernelStep
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import DeviceClass, find
from tilewright.targets.lite_space import Objective
from tilewright.targets.protocol import Mark
from tilewright.targets.schedule import Schedule
from tilewright.targets.wasm import VARIANTS
from tilewright.tuning.candidates import Space, build, space_of

#: Kernels that sessions begin with, and orders of the others: see above.
BEGINNINGS, ORDERS = ("poor", "median"), ("model", "random")
#: Candidates of the sweep that are timed again beside those in use.
BEST = 3
#: Fresh pages in which they are.
PAGES = 3
#: Kernels of a model.
LONGEST = 4


class Unclear(Exception):
    """A busy machine hid a cache's size, so that the session was another class's."""


@dataclass(frozen=True)
class Swept:
    """The candidates that are left, in the order of the cost model, with their times."""

    step: KernelStep
    device: DeviceClass
    left: tuple[Schedule, ...]
    times: tuple[float, ...]

    def median(self) -> Schedule:
        middle = sorted(range(len(self.left)), key=self.times.__getitem__)[len(self.left) // 2]
        return self.left[middle]

    def good(self, start: Schedule) -> int:
        """Candidates within 3 % of the fastest, but the start."""
        limit = near(self.times)
        return sum(t <= limit for s, t in zip(self.left, self.times, strict=True) if s != start)


def without_default(kernel: Kernel, device: DeviceClass) -> tuple[Schedule, ...]:
    """The schedules that do not give the default's code, in the order of the cost model."""
    space = space_of(kernel, device)

    def digest(schedule: Schedule) -> str:
        return build(kernel, schedule, device.target, device.variant).digest

    own = digest(space.schedules[0])
    return tuple(s for s in (space.schedules[n] for n in space.order) if digest(s) != own)


def withheld(
    kernel: Kernel,
    device: str,
    objective: Objective,
    *,
    listed: Sequence[Schedule],
) -> Space:
    """What the server takes for the space: these alone, in this order; the first is the start."""
    space = space_of(kernel, find(device), objective)
    count = len(listed)
    others: list[Mark] = ["extended"] * (count - 1)
    return replace(
        space, schedules=tuple(listed), marks=("default", *others),
        needs=(space.needs[0],) * count, order=tuple(range(1, count)), useful=count - 1,
        checksum=f"withheld{count}", slow=None,
    )  # fmt: skip


def swept(host: str, step: KernelStep, device: DeviceClass) -> Swept:
    left = without_default(step.kernel, device)
    with tempfile.TemporaryDirectory(prefix="tilewright-withheld-") as place:
        path = write_candidates(step, left, device, Path(place) / "bundle")
        check_candidates(path)
        times = time_candidates(host, path, len(left)).times
    return Swept(step, device, left, tuple(times))


def listed(found: Swept, start: str, order: str, seed: int) -> list[Schedule]:
    machine = VARIANTS[found.device.variant].machine
    first = found.median() if start == "median" else untuned(found.step.kernel, machine)
    rest = [s for s in found.left if s != first]
    if order == "random":
        Random(seed).shuffle(rest)
    return [first, *rest]


def session(
    host: str, found: Swept, start: str, order: str, seed: int, seconds: float, budget: float
) -> Row:
    """One session; then its kernels and the fastest of the sweep, by turns in one page."""
    schedules = listed(found, start, order, seed)
    step, device = found.step, found.device
    with tempfile.TemporaryDirectory(prefix="tilewright-withheld-") as place:
        bundle = Path(place) / "bundle"
        write(alone(step, Options(schedule=lambda *_: schedules[0])).contents, bundle)
        with page(host, partial(withheld, listed=schedules)) as browser:
            _, told, summary = tuned(browser, bundle, seconds, budget)
        if summary.device != device.id:
            raise Unclear(f"the page's class is {summary.device}, not {device.id}")
        used = [schedules[max(use.candidate, 0)] for use in told.uses]
        ranked = sorted(range(len(found.left)), key=found.times.__getitem__)
        best = [found.left[n] for n in ranked[:BEST]]
        shown = [*best, found.left[0], schedules[0], *used]
        path = write_candidates(step, shown, device, Path(place) / "beside")
        pages = beside(host, path, len(shown))
    times = [statistics.median(turn) for turn in zip(*pages, strict=True)]
    top = min(times[:BEST])
    guess, *shares = (top / t for t in times[BEST:])
    trials = [0, *(use.trials for use in told.uses)]
    after = reached(list(zip(trials, shares, strict=True)))
    swaps = [use.at for use in told.uses if use.trials == after]
    sent = [schedules[trial.candidate] for trial in told.trials[: after or 0]]
    return {
        "start": start, "order": order, "seed": seed, "budget": budget, "seconds": seconds,
        "candidates": len(schedules) - 1, "tried": len(told.trials),
        "start_share": round(shares[0], 3), "guess_share": round(guess, 3),
        "share": round(shares[-1], 3), "rounds": after,
        "share_pages": [round(min(p[:BEST]) / p[-1], 3) for p in pages],
        "reached_s": round(swaps[0], 2) if swaps else None,
        "bytes": sum(
            len(build(step.kernel, s, device.target, device.variant).module) for s in sent
        ),
        "good": found.good(schedules[0]),
        "best": [
            {"share": round(top / t, 3), **_trial_of(told.trials, schedules.index(s))}
            for s, t in zip(best, times[:BEST], strict=True)
        ],
        "random_rounds": trials_at_random(len(schedules) - 1, found.good(schedules[0])),
        **evaluation_of(told.trials),
    }  # fmt: skip


def _trial_of(trials: Sequence[Trial], candidate: int) -> Row:
    """What the tuner found of it: against the kernel that was in use then."""
    tried = next(((n, t) for n, t in enumerate(trials, 1) if t.candidate == candidate), None)
    if tried is None:
        return {"round": None}
    number, trial = tried
    ratios = {"ratio": trial.ratio, "low": trial.low, "high": trial.high}
    known = {name: round(value, 3) for name, value in ratios.items() if value is not None}
    return {"round": number, "verdict": trial.verdict, **known}


def beside(host: str, bundle: Path, count: int) -> list[list[float]]:
    """By fresh page, the times of the bundle's plans in units of the first's.

    The same kernel differs by up to a tenth from page to page, by where its code and memory lie.
    """
    pages = []
    for _ in range(PAGES):
        times = time_candidates(host, bundle, count).times
        pages.append([t / times[0] for t in times])
    return pages


def subjects(
    kernels: Sequence[str], names: Sequence[str], models: Path, host: str
) -> Iterator[tuple[str, KernelStep]]:
    """Kernels of sweep.py, then the longest ones of public models."""
    for name in kernels:
        yield name, SUBJECTS[name]()
    for model in names:
        with tempfile.TemporaryDirectory(prefix="tilewright-withheld-") as place:
            path = headroom.built(model, models, Path(place) / "plain")
            for hot in headroom.hot_kernels(host, model, models, path)[:LONGEST]:
                yield f"{model} {hot.key[:8]}", hot.step


def main(
    run: Run,
    host: Hosts = None,
    kernel: Annotated[list[str] | None, among(SUBJECTS, "Kernels; repeatable")] = None,
    model: Annotated[list[str] | None, among(PUBLIC, "Models; repeatable")] = None,
    models: Models = Path("dist/public"),
    start: Annotated[list[str] | None, among(BEGINNINGS, "Repeatable")] = None,
    order: Annotated[list[str] | None, among(ORDERS, "Repeatable")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Random orders of a kernel.")] = 3,
    seconds: SessionSeconds = 20.0,
    budget: Annotated[float, typer.Option(help="Share of the time for tuning.")] = 1.0,
) -> None:
    device = device_here()
    kernels = kernel or ([] if model else list(PAPER))
    sessions = [
        (first, how, seed)
        for first in start or BEGINNINGS
        for how in order or ORDERS
        for seed in range(seeds if how == "random" else 1)
    ]
    for name in host or BROWSERS:
        for each, step in subjects(kernels, model or [], models, name):
            if len(space_of(step.kernel, device).schedules) == 1:
                continue
            found = swept(name, step, device)
            same = {"host": name, "kernel": each, "device": device.id}
            for first, how, seed in sessions:
                try:
                    row = session(name, found, first, how, seed, seconds, budget)
                except Unclear as error:
                    print(f"{each}, {first}, {how} {seed} left out: {error}", flush=True)
                else:
                    run.keep(same | row)
