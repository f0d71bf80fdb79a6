"""Tuning that cannot be handed the answer: the compiler's default is no candidate.

Input: browsers; kernels of space.py, or the longest of public models.  Output: a row per kernel,
start and order in results/withheld.json.  What the server sends has neither the default nor what
has the same code.  A session begins with

    poor      the naive schedule
    median    the candidate in the middle of all, by time

and gets the others in one of two orders: `model`, that of the cost model, or `random`.  A sweep in
the same browser finds the fastest; then all kernels that were in use are timed beside the three
fastest by turns, in three pages, so that a lucky reading of the sweep decides nothing.  `guess` is
the share of the cost model's first choice, which nobody measured; `random_rounds` what a random
order takes in the mean, by arithmetic, until one of the `good` comes.  `best` tells what became of
the three fastest in the session.

    uv run python benchmarks/withheld.py --host chromium --kernel K0
    uv run python benchmarks/withheld.py --host firefox --model nudenet --budget 0.05 --seconds 120
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random

import common
import headroom
import space as sweeps
from sessions import Row, page, tuned
from tuning import evaluation_of, reached

from benchmarks.models.public import PUBLIC
from benchmarks.report.headroom import REACHED
from benchmarks.report.spaces import random_rounds
from lab.primitives.table import untuned
from lab.subjects import alone
from tilewright.bundle import write
from tilewright.cli.hosts import open_timers
from tilewright.compiler import Options
from tilewright.fusion.steps import KernelStep
from tilewright.kernel.spec import Kernel
from tilewright.targets.classes import DeviceClass, find
from tilewright.targets.lite_space import Objective
from tilewright.targets.schedule import Schedule
from tilewright.targets.wasm import TARGETS
from tilewright.tuning.candidates import Space, build, space_of

KEY = ("host", "kernel", "device", "start", "order", "budget", "seed")
STARTS, ORDERS = ("poor", "median"), ("model", "random")
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
        limit = min(self.times) / REACHED
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
    return replace(
        space, schedules=tuple(listed), marks=("default", *["extended"] * (count - 1)),
        needs=(space.needs[0],) * count, order=tuple(range(1, count)), useful=count - 1,
        checksum=f"withheld{count}", slow=None,
    )  # fmt: skip


def swept(host: str, step: KernelStep, device: DeviceClass) -> Swept:
    left = without_default(step.kernel, device)
    with tempfile.TemporaryDirectory(prefix="tilewright-withheld-") as place:
        path = sweeps.written(step, left, device, Path(place) / "bundle")
        sweeps.check(path)
        with open_timers(host, [path], 1) as (timer,):
            times = sweeps.sweep(timer, len(left)).times
    return Swept(step, device, left, tuple(times))


def listed(found: Swept, start: str, order: str, seed: int) -> list[Schedule]:
    machine = TARGETS[found.device.variant].machine
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
        if summary["class"] != device.id:
            raise Unclear(f"the page's class is {summary['class']}, not {device.id}")
        used = [schedules[max(c, 0)] for _, c in told.used]
        ranked = sorted(range(len(found.left)), key=found.times.__getitem__)
        best = [found.left[n] for n in ranked[:BEST]]
        shown = [*best, found.left[0], schedules[0], *used]
        path = sweeps.written(step, shown, device, Path(place) / "beside")
        pages = beside(host, path, len(shown))
    times = [statistics.median(turn) for turn in zip(*pages, strict=True)]
    top = min(times[:BEST])
    guess, *shares = (top / t for t in times[BEST:])
    rounds = [0, *(at for at, _ in told.used)]
    after = reached(list(zip(rounds, shares, strict=True)))
    swaps = [s for (at, _), s in zip(told.used, told.seconds, strict=True) if at == after]
    sent = [schedules[t["candidate"]] for t in told.trials[: after or 0]]
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
        "random_rounds": random_rounds(len(schedules) - 1, found.good(schedules[0])),
        **evaluation_of(told.trials),
    }  # fmt: skip


def _trial_of(trials: Sequence[Row], candidate: int) -> Row:
    """What the tuner found of it: against the kernel that was in use then."""
    tried = next(((n, t) for n, t in enumerate(trials, 1) if t["candidate"] == candidate), None)
    if tried is None:
        return {"round": None}
    number, trial = tried
    ratios = {k: round(trial[k], 3) for k in ("ratio", "low", "high") if trial[k] is not None}
    return {"round": number, "verdict": trial["verdict"], **ratios}


def beside(host: str, bundle: Path, count: int) -> list[list[float]]:
    """By fresh page, the times of the bundle's plans in units of the first's.

    The same kernel differs by up to a tenth from page to page, by where its code and memory lie.
    """
    pages = []
    for _ in range(PAGES):
        with open_timers(host, [bundle], 1) as (timer,):
            times = sweeps.sweep(timer, count).times
        pages.append([t / times[0] for t in times])
    return pages


def subjects(args: argparse.Namespace, host: str) -> Iterator[tuple[str, KernelStep]]:
    named: dict[str, Callable[[], KernelStep]] = dict(sweeps.SUBJECTS)
    for name in args.kernel or ([] if args.model else ["K0", "K1", "K2", "K3"]):
        yield name, named[name]()
    for model in args.model or []:
        with tempfile.TemporaryDirectory(prefix="tilewright-withheld-") as place:
            path = headroom.built(model, args.models, Path(place) / "plain")
            for part in headroom.parts(host, model, args.models, path)[:LONGEST]:
                yield f"{model} {part.key[:8]}", part.step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", action="append")
    parser.add_argument("--kernel", action="append", choices=list(sweeps.SUBJECTS))
    parser.add_argument("--model", action="append", choices=list(PUBLIC))
    parser.add_argument("--models", type=Path, default=Path("dist/public"), help="their folder")
    parser.add_argument("--start", action="append", choices=STARTS)
    parser.add_argument("--order", action="append", choices=ORDERS)
    parser.add_argument("--seeds", type=int, default=3, help="random orders of a kernel")
    parser.add_argument("--seconds", type=float, default=20.0, help="of one session")
    parser.add_argument("--budget", type=float, default=1.0, help="share of the time for tuning")
    args = parser.parse_args()
    device = sweeps.device_here()
    for host in args.host or ("chromium", "firefox"):
        for name, step in subjects(args, host):
            if len(space_of(step.kernel, device).schedules) == 1:
                continue
            found = swept(host, step, device)
            same = {"host": host, "kernel": name, "device": device.id}
            for start in args.start or STARTS:
                for order in args.order or ORDERS:
                    for seed in range(args.seeds if order == "random" else 1):
                        try:
                            row = session(
                                host, found, start, order, seed, args.seconds, args.budget
                            )
                        except Unclear as error:
                            print(f"{name}, {start}, {order} {seed} left out: {error}", flush=True)
                            continue
                        print(same | row, flush=True)
                        common.merge("withheld", [same | row], KEY)


if __name__ == "__main__":
    main()
