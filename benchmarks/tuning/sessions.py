"""Sessions of a page's own tuner, driven from here, and the bundles that they start from.

Input: a browser, a kernel or a model, poor or good defaults.  Output: the tuner's events, and the
tuned model; and what rows say of trials.  The benchmarks beside this file evaluate them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from benchmarks.records import Row
from lab.primitives.table import untuned
from lab.subjects import alone
from lab.timing import BATCH_MS, WARM_MS, by_turns, runs_in, timer_of, warm_up
from tilewright.bundle import write
from tilewright.cli.workers import makers
from tilewright.compiler import Options, compile_model
from tilewright.fusion.steps import KernelStep
from tilewright.hosts.browser import BrowserHost, BrowserModel
from tilewright.kernel.spec import Kernel
from tilewright.server import Tuning
from tilewright.server.session_resources import Makers
from tilewright.targets.classes import DeviceClass, find
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
#: The number in `Session.used` for the bundle's own kernel.
BUILT = -1


@dataclass
class Session:
    """The tuner's events: trials in order, with the second of each (`at`); the candidate in use
    after each and the second in which it came; and the last one of each kernel that changed."""

    device: str = ""
    trials: list[Row] = field(default_factory=list)
    used: list[tuple[int, int]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    current: dict[int, int] = field(default_factory=dict)
    last_swap: float = 0.0
    started: float = field(default_factory=time.monotonic)
    spent: float = 0.0

    def take(self, event: Row) -> None:
        kind = event["type"]
        if kind == "start":
            self.device = event["class"]
        elif kind == "trial":
            self.trials.append({**event, "at": time.monotonic() - self.started})
        elif kind == "swap":
            self.current[event["spec"]] = event["candidate"]
            self._use(event["candidate"])
            self.last_swap = self.seconds[-1]
        elif kind == "rollback" and self.current.get(event["spec"]) == event["candidate"]:
            # of one that was in use; others were undone before they counted
            del self.current[event["spec"]]
            self._use(BUILT)

    def _use(self, candidate: int) -> None:
        self.used.append((len(self.trials), candidate))
        self.seconds.append(time.monotonic() - self.started)


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
) -> tuple[BrowserModel, Session, Row]:
    """budget: the share of the time that tuning takes"""
    model = host.load(path, threads=1)
    model.time(3)
    return model, *tune(model, seconds, budget)


def tune(model: BrowserModel, seconds: float, budget: float = 1) -> tuple[Session, Row]:
    session = Session()
    summary = model.tune({"seconds": seconds, "budget": budget}, session.take)
    session.spent = time.monotonic() - session.started
    return session, summary


def visit(host: str, path: Path, seconds: float) -> tuple[Session, DeviceClass]:
    """A new browser, from its start to the end of one session."""
    with page(host) as browser:
        _, session, summary = tuned(browser, path, seconds)
    return session, find(summary["class"])


def told(summary: Row) -> Row:
    """The gain that the session itself reports: a verdict, and a ratio if it has one."""
    gain = summary["gain"]
    row = {"told": gain["verdict"], "told_n": gain.get("pairs")}
    for key in ("ratio", "low", "high"):
        row[f"told_{key}"] = round(gain[key], 3) if key in gain else None
    return row


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


def evaluation_of(trials: Sequence[Row]) -> Row:
    """Milliseconds of the trials of one session: median, 95th percentile by rank, and most.

    stages: of the mean trial, and of the longest one (docs/tuner-api.md)
    """
    if not trials:
        return dict.fromkeys(EVALUATION)
    found = sorted(trials, key=lambda t: float(t["milliseconds"]))
    spent = [t["milliseconds"] for t in found]
    last = -(-95 * len(found) // 100) - 1
    names = sorted({name for t in found for name in t["stages"]})
    means = {n: sum(t["stages"].get(n, 0.0) for t in found) / len(found) for n in names}
    values = (statistics.median(spent), spent[last], spent[-1])
    stages = [{n: round(ms, 1) for n, ms in told.items()} for told in (means, found[-1]["stages"])]
    return dict(zip(EVALUATION, [*(round(v, 1) for v in values), *stages], strict=True))


def counted(verdicts: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for verdict in verdicts:
        found[verdict] = found.get(verdict, 0) + 1
    return found
