"""Sessions of a page's own tuner, driven from here, and the bundles that they start from.

Input: a browser, a kernel or a model, poor or good defaults.  Output: the tuner's events, and the
tuned model; and what rows say of trials.  The benchmarks beside this file evaluate them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from benchmarks.records import Row
from lab.primitives.table import untuned
from lab.subjects import alone
from lab.timing import BATCH_MS, WARM_MS, by_turns, runs_in, timer_of, warm_up
from tilewright.base.quantiles import quantile
from tilewright.bundle import write
from tilewright.cli.compile_workers import makers
from tilewright.compiler import Options, compile_model
from tilewright.fusion.kernel_steps import KernelStep
from tilewright.hosts.browser import BrowserHost, BrowserModel
from tilewright.hosts.browser_connection import Json
from tilewright.kernel.spec import Kernel
from tilewright.server import Tuning
from tilewright.server.session_resources import Makers
from tilewright.targets.device_classes import DeviceClass, find
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import Machine, by_machine
from tilewright.targets.simd.strategies import default_schedule
from tilewright.tuning.candidates import Space

STARTS: Mapping[str, Callable[[Kernel, Machine], Schedule]] = {
    "poor": untuned,
    "good": default_schedule,
}
#: What rows say of the time that trials took.
EVALUATION = (
    "evaluation_ms", "evaluation_p95_ms", "evaluation_most_ms", "evaluation_stages",
    "longest_stages",
)  # fmt: skip
#: Of an event of a trial, what is kept.
TOLD = ("spec", "candidate", "verdict", "milliseconds", "stages", "ratio", "low", "high")
#: Stands for the bundle's own kernel among candidates.
BUILT = -1


@dataclass(frozen=True)
class Trial:
    """A trial of a candidate as the tuner told it (docs/tuning-loop.md).

    ratio, low, high: its speed over that of the kernel in use then, where it was measured
    stages:           milliseconds of each;  at: seconds since the session began
    """

    spec: int
    candidate: int
    verdict: str
    milliseconds: float
    stages: Mapping[str, float]
    at: float = 0.0
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Use:
    """A candidate that came into use: after how many trials, and in which second."""

    trials: int
    candidate: int
    at: float = 0.0


@dataclass
class Session:
    """The tuner's events: trials and uses in order, and the candidate of each kernel that is in use
    instead of the bundle's own.  spent: seconds of the whole session"""

    device: str = ""
    trials: list[Trial] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    current: dict[int, int] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    spent: float = 0.0

    @property
    def last_swap(self) -> float:
        """The second in which the last candidate came into use; 0 without any."""
        return max((use.at for use in self.uses if use.candidate != BUILT), default=0.0)

    def take(self, event: Json) -> None:
        kind, now = event["type"], time.monotonic() - self.started
        if kind == "start":
            self.device = event["class"]
        elif kind == "trial":
            self.trials.append(
                Trial(at=now, **{name: event[name] for name in TOLD if name in event})
            )
        elif kind == "swap":
            self.current[event["spec"]] = event["candidate"]
            self.uses.append(Use(len(self.trials), event["candidate"], now))
        elif kind == "rollback" and self.current.get(event["spec"]) == event["candidate"]:
            # of one that was in use; others were undone before they counted
            del self.current[event["spec"]]
            self.uses.append(Use(len(self.trials), BUILT, now))


@dataclass(frozen=True)
class Gain:
    """How many times as fast the session says that the model became, by how many pairs of runs."""

    verdict: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int | None = None

    def row(self) -> Row:
        row: Row = {"told": self.verdict, "told_n": self.pairs}
        for key, value in (("ratio", self.ratio), ("low", self.low), ("high", self.high)):
            row[f"told_{key}"] = None if value is None else round(value, 3)
        return row


@dataclass(frozen=True)
class TunedKernel:
    """A kernel at the end of a session, with the candidate in use."""

    kind: str
    shape: str
    candidate: int


@dataclass(frozen=True)
class Summary:
    """What a session answers at its end.  device: the page's class"""

    device: str
    kernels: Sequence[TunedKernel]
    gain: Gain


def summary_of(told: Json) -> Summary:
    kernels = [
        TunedKernel(k["kind"], k["shape"], k["current"]["candidate"]) for k in told["kernels"]
    ]
    gain = told["gain"]
    measured = {key: gain[key] for key in ("ratio", "low", "high", "pairs") if key in gain}
    return Summary(told["class"], kernels, Gain(gain["verdict"], **measured))


def page(host: str, space: Callable[..., Space] | None = None) -> BrowserHost:
    """A browser whose server makes candidates; nothing is reported or remembered.

    space: what the server takes for a kernel's space, instead of the compiler's
    """
    made = running(makers(1))
    return BrowserHost(host, tuning=Tuning(replace(made, space=space) if space else made))


def running(made: Makers) -> Makers:
    """With a worker that has started, as a server has that did not start just now."""
    ready = [made.pool()]
    ready[0].submit(int).result()
    return replace(made, pool=lambda: ready.pop() if ready else made.pool())


def kernel_bundle(step: KernelStep, start: str, path: Path) -> Path:
    """A bundle of that one kernel, with poor or with good defaults."""
    write(alone(step, Options(schedule=by_machine(STARTS[start]))).contents, path)
    return path


def model_bundle(
    source: Path, shapes: Mapping[str, Sequence[int | str]], path: Path, start: str = "good"
) -> Path:
    write(
        compile_model(source, Options(shapes=shapes, schedule=by_machine(STARTS[start]))).contents,
        path,
    )
    return path


def tuned(
    host: BrowserHost, path: Path, seconds: float, budget: float = 1
) -> tuple[BrowserModel, Session, Summary]:
    """budget: the share of the time that tuning takes"""
    model = host.load(path, threads=1)
    model.time(3)
    return model, *tune(model, seconds, budget)


def tune(model: BrowserModel, seconds: float, budget: float = 1) -> tuple[Session, Summary]:
    session = Session()
    told = model.tune({"seconds": seconds, "budget": budget}, session.take)
    session.spent = time.monotonic() - session.started
    return session, summary_of(told)


def visit(host: str, path: Path, seconds: float) -> tuple[Session, DeviceClass]:
    """A new browser, from its start to the end of one session."""
    with page(host) as browser:
        _, session, summary = tuned(browser, path, seconds)
    return session, find(summary.device)


def speed_ratios(model: BrowserModel, plain: BrowserModel, rounds: int = 20) -> list[float]:
    """The plain model's time over the other one's in each round, in which they take turns."""
    timers = {}
    for name, each in (("plain", plain), ("tuned", model)):
        warm_up(timer_of(each), WARM_MS)
        usual = statistics.mean(each.time(20, 1).milliseconds)
        timers[name] = partial(fastest, each, runs_in(BATCH_MS, usual))
    found = by_turns(timers, rounds)
    return [plain / tuned for plain, tuned in zip(found["plain"], found["tuned"], strict=True)]


def fastest(model: BrowserModel, runs: int, batches: int = 5) -> list[float]:
    """Milliseconds of a run in the fastest batch: a browser's clock may not tell a single run."""
    times = model.time(runs * batches, 1).milliseconds
    return [min(statistics.mean(times[i * runs : (i + 1) * runs]) for i in range(batches))]


def named(devices: Sequence[str]) -> str:
    """The sessions' classes: more than one if the cache probe was unstable."""
    return ", ".join(sorted(set(filter(None, devices))))


def evaluation_of(trials: Sequence[Trial]) -> Row:
    """Milliseconds of the trials of one session: median, 95th percentile by rank, and most.

    stages: of the mean trial, and of the longest one (docs/tuner-api.md)
    """
    if not trials:
        return dict.fromkeys(EVALUATION)
    found = sorted(trials, key=lambda trial: trial.milliseconds)
    spent = [trial.milliseconds for trial in found]
    names = sorted({name for trial in found for name in trial.stages})
    means = {n: statistics.mean(trial.stages.get(n, 0.0) for trial in found) for n in names}
    values = (statistics.median(spent), quantile(spent, 0.95), spent[-1])
    stages = [{n: round(ms, 1) for n, ms in of.items()} for of in (means, found[-1].stages)]
    return dict(zip(EVALUATION, [*(round(v, 1) for v in values), *stages], strict=True))
