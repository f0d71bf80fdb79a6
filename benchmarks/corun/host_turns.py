"""What threads of normal models do to a critical request on the host, with a clock for a GPU.

The coordinator, the agents of normal models and their turns are real, kernels are times.

Input: none.  Output: results/corun.host_turns.json; a row is a number of normal models, and of
those that run at once.  Nobody may stay beside a request:

* p50, p90, p99: microseconds from a request's begin to when its thread has seen the end;
* in_vain: runs of normal kernels that were started while a request ran, for each request;
* runs: of normal kernels, for each request;
* decision_us: processor time of a decision, of all events alike.

    python -m benchmarks corun.host_turns [--seconds 5]
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, cast

import typer

from benchmarks.common import Run
from benchmarks.records import Row
from tilewright.base.quantiles import quantile
from tilewright.elastic.background import Background, NormalWork
from tilewright.elastic.plans import RUN_US, PlacedPlan
from tilewright.elastic.policy import Gpu, Scheduler, policy_named
from tilewright.elastic.policy.budgets import gaps

#: Normal models, and how many run at once (0: all).
CASES = ((1, 0), (2, 0), (5, 0), (5, 2))
#: Microseconds of a request, of a call of the driver (at least: a sleep may take 70), and of a run
#: whose workers must leave.
REQUEST_US, CALL_US, VAIN_US = 1600.0, 15.0, 100.0
#: Seconds between two requests on average; runs of an inference.
GAP_S, RUNS = 3e-4, 6
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass
class Clock:
    """Whether a request runs, and what was started beside it."""

    busy: bool = False
    runs: int = 0
    in_vain: int = 0


@dataclass
class At:
    """A mark that is passed at a time."""

    seconds: float

    def passed(self) -> bool:
        return time.perf_counter() >= self.seconds

    def wait(self) -> None:
        while (left := self.seconds - time.perf_counter()) > 0:
            time.sleep(left)


@dataclass
class Stream:
    """A normal model's plan and its device: runs one after the other."""

    clock: Clock
    ends: Sequence[int] = tuple(range(1, RUNS + 1))
    done: int = 0
    free: float = field(default_factory=time.perf_counter)

    def begin(self) -> None:
        self.done = 0

    def start(self, number: int, workers: int, plain: bool = False) -> None:
        beside = self.clock.busy
        time.sleep(1e-6 * CALL_US)
        self.clock.runs += 1
        self.clock.in_vain += beside
        if not beside:
            self.done = max(self.done, number + 1)
        took = VAIN_US if beside else RUN_US
        self.free = max(self.free, time.perf_counter()) + 1e-6 * took

    def complete_after(self, number: int) -> int:
        return self.done

    def use(self) -> None:
        """Does nothing: any thread may use it."""

    def ensure_current(self) -> None:
        """Does nothing: any thread may use it."""

    def mark(self) -> At:
        return At(self.free)


def row(models: int, together: int, seconds: float) -> Row:
    clock, took = Clock(), list[float]()
    streams = [Stream(clock) for _ in range(models)]
    running = cast("list[PlacedPlan]", [(stream, stream) for stream in streams])
    scheduler = Scheduler(policy_named("tilewright"), Gpu(132), max_concurrent=together)

    def begin() -> At:
        clock.busy = True
        return At(time.perf_counter() + 1e-6 * REQUEST_US)

    def once() -> float:
        begun = time.perf_counter()
        busy.coordinator.interpreter.run(begin, REQUEST_US)
        clock.busy = False
        return 1e6 * (time.perf_counter() - begun)

    pauses, stop = gaps(GAP_S), time.monotonic() + seconds
    work = NormalWork(running, lambda _: None, scheduler, workers=1)
    with Background(work, 0) as busy:
        busy.warmed()
        clock.runs = clock.in_vain = 0
        while time.monotonic() < stop:
            time.sleep(next(pauses))
            took.append(busy.around(once))
        decisions = busy.coordinator
    shares = {name: round(quantile(took, at), 1) for name, at in SHARES.items()}
    return {
        "models": models,
        "together": together,
        "n": len(took),
        **shares,
        "in_vain": round(clock.in_vain / len(took), 4),
        "runs": round(clock.runs / len(took), 2),
        "decision_us": round(1e6 * decisions.spent / decisions.events, 1),
    }


def main(run: Run, seconds: Annotated[float, typer.Option(help="Of each row.")] = 5.0) -> None:
    for models, together in CASES:
        run.keep(row(models, together, seconds))
