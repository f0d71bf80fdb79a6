"""Measures one case: every engine and thread count, alternating in rounds.

Input: the files of a case, sessions.  Output: one row per engine and thread count.  An engine that
fails or hangs gets a row that says why, and the others go on.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypedDict

from benchmarks.accuracy import relative_error
from benchmarks.peers.files import Files
from benchmarks.peers.operands import Arrays
from benchmarks.peers.session import Session
from lab.timing import spread
from tilewright.base.errors import TilewrightError
from tilewright.hosts.browser_connection import Json

Say = Callable[[str], None]

#: A sample lasts at least this long, so that the clock's steps do not matter.
SAMPLE_MS = 1.0
#: Every engine gets that many, however slow it is.
LEAST_ROUNDS = 3
#: Above this share of a core, an idle engine disturbs the one that is measured.
IDLE_LIMIT = 0.05
IDLE_SECONDS, SETTLE = 0.4, 8
WARM_RUNS = 20_000


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    seconds:  what an engine gets for a case: half of it to get warm in, half for its rounds
    rounds:   turns per engine, at most; a slow engine gets LEAST_ROUNDS, however long they take
    patience: an engine whose first run takes that many seconds runs once more, and that is all
    visits:   models are loaded a second time in the same browser
    settle:   milliseconds of runs before each turn, in which a GPU gets back to its clock
    """

    seconds: float = 4.0
    rounds: int = 12
    patience: float = 8.0
    visits: bool = True
    settle: float = 0.0

    @property
    def warm_ms(self) -> float:
        return 500.0 * self.seconds

    @property
    def turn_ms(self) -> float:
        return 500.0 * self.seconds / self.rounds


QUICK = Plan(seconds=1.2, rounds=5, visits=False)


class EngineRow(TypedDict, total=False):
    """What is known of an engine on a case.  Fields come as they are measured: of a failure there
    are `status` and `why` alone, models have load times, visits and memory."""

    engine: str
    version: str
    threads: int
    status: Literal["ok", "failed", "skipped", "absent"]
    why: str
    load_cold_ms: float
    load_warm_ms: float
    first_ms: float
    first_warm_ms: float
    about: Json
    code_bytes: int
    code_gzip_bytes: int
    error: float | None
    tolerance: float
    idle_cores: float | None
    wasm_bytes: int
    js_bytes: int
    resident_peak_bytes: int
    median_ms: float
    p95_ms: float
    fastest_ms: float
    spread: float
    n: int
    batch: int
    rounds: Sequence[float]
    inside_ms: float
    inside_median_ms: float
    flops: int
    bytes: int
    gflops: float
    gflops_fastest: float
    stream_why: str
    stream_median_ms: float
    stream_spread: float
    stream_batch: int
    stream_n: int
    peak_gflops: float
    peak_gflops_median: float
    stream_gbps: float


#: What a page answers of its memory, and the row keeps the most of.
MEMORY: tuple[Literal["wasm_bytes", "js_bytes", "resident_peak_bytes"], ...] = (
    "wasm_bytes", "js_bytes", "resident_peak_bytes",
)  # fmt: skip


@dataclass
class Lane:
    """One engine with one number of threads on a case, and what is known of it so far.

    driver: the engine's own time counts instead of the page's
    stream: many runs are timed together; their outputs stay on the device
    """

    session: Session
    files: Files
    row: EngineRow
    driver: bool = False
    stream: bool = False
    samples: int = 1
    batch: int = 1
    rounds: list[list[float]] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.row["status"] == "ok"

    def slow(self, plan: Plan) -> bool:
        return self.row.get("first_ms", 0.0) > plan.patience * 1000

    def fail(self, why: object) -> None:
        self.row |= {"status": "failed", "why": _short(why)}


def attempt(lane: Lane, step: Callable[[], None], say: Say) -> None:
    """Runs a step of a lane; what goes wrong ends that lane only."""
    if not lane.alive:
        return
    try:
        step()
    except (TilewrightError, AssertionError) as error:
        lane.fail(error)
        say(f"  {label(lane)}: {lane.row['why']}")


def label(lane: Lane) -> str:
    return f"{lane.session.engine} ×{lane.session.threads}"


def opened(lane: Lane, visit: Literal["cold", "warm", "again"]) -> None:
    """Load and first run, with the answer checked.  again: in a page that has run other cases."""
    files = lane.files
    found = lane.session.open(files)
    used = found["about"].get("threads", lane.session.threads)
    if used != lane.session.threads:
        lane.row |= {"status": "skipped", "why": f"it runs on {used} thread(s) here"}
        return
    first, outputs, _ = lane.session.first()
    load_ms = _ms(found["milliseconds"])
    if visit == "warm":
        lane.row |= {"load_warm_ms": load_ms, "first_warm_ms": _ms(first)}
    else:
        lane.row |= {"first_ms": _ms(first), "about": found["about"]}
        lane.row["code_bytes"], lane.row["code_gzip_bytes"] = lane.session.site.code_bytes()
    if visit == "cold":
        lane.row["load_cold_ms"] = load_ms
    error, why = compared(outputs, files.expected)
    lane.row["error"] = error if math.isfinite(error) else None
    allowed = files.tolerance(lane.session.engine)
    lane.row["tolerance"] = allowed
    if why or not error <= allowed:
        lane.fail(why or f"wrong: relative error {error:.1e}, allowed {allowed:.0e}")


def warmed(lane: Lane, plan: Plan) -> None:
    """Warm, and how many runs make a turn."""
    if lane.slow(plan):
        return
    if lane.stream:
        fastest, lane.batch = lane.session.warm_stream(plan.warm_ms)
    else:
        fastest = max(lane.session.warm(plan.warm_ms, WARM_RUNS), 1e-4)
        lane.batch = 1 if lane.driver else max(1, math.ceil(SAMPLE_MS / fastest))
    lane.samples = max(1, round(plan.turn_ms / (fastest * lane.batch)))


def rounds(lanes: Sequence[Lane], plan: Plan, clock: Callable[[], float], say: Say) -> None:
    """A turn of each lane, again and again; the order turns round every time."""
    spent = [0.0] * len(lanes)
    for number in range(plan.rounds):
        order = range(len(lanes)) if number % 2 == 0 else reversed(range(len(lanes)))
        for at in order:
            lane = lanes[at]
            if number >= (1 if lane.slow(plan) else LEAST_ROUNDS) and spent[at] > plan.seconds / 2:
                continue
            start = clock()
            attempt(lane, partial(_turn, lane, plan.settle), say)
            spent[at] += clock() - start


def _turn(lane: Lane, settle: float) -> None:
    found = lane.session.round(lane.samples, lane.batch, lane.stream, settle)
    lane.rounds.append(found["inside" if lane.driver else "times"])
    lane.inside += found["inside"]


def idle(lanes: Sequence[Lane], say: Say) -> None:
    """Checks that idle engines use no core: a spinning thread pool would slow the others."""
    alive = [lane for lane in lanes if lane.alive]
    for _ in range(SETTLE):  # browsers still compile in the background after a warm-up
        before, start = [lane.session.cpu_seconds() for lane in alive], time.monotonic()
        time.sleep(IDLE_SECONDS)
        for lane, then in zip(alive, before, strict=True):
            now, past = lane.session.cpu_seconds(), time.monotonic() - start
            busy_for = None if now is None or then is None else now - then
            lane.row["idle_cores"] = None if busy_for is None else round(busy_for / past, 3)
        busy = [lane for lane in alive if (lane.row["idle_cores"] or 0) > IDLE_LIMIT]
        if not busy:
            return
    for lane in busy:
        say(f"  {label(lane)} takes {lane.row['idle_cores']:.2f} cores while it is idle")


def remembered(lane: Lane) -> None:
    """The most memory seen so far."""
    found = lane.session.memory()
    for key in MEMORY:
        if found[key] is not None:
            lane.row[key] = max(found[key], lane.row.get(key) or 0)


def finished(lane: Lane) -> None:
    """The statistics of the rounds, into the row."""
    flops = lane.files.flops
    if not lane.rounds:
        return
    times = sorted(t for turn in lane.rounds for t in turn)
    lane.row |= {
        "median_ms": _ms(statistics.median(times)),
        "p95_ms": _ms(times[min(len(times) - 1, math.ceil(0.95 * len(times)) - 1)]),
        "fastest_ms": _ms(times[0]),
        "spread": round(spread(times), 3) if len(times) > 1 else 0.0,
        "n": len(times),
        "batch": lane.batch,
        "rounds": [_ms(statistics.median(turn)) for turn in lane.rounds],
    }
    if lane.inside:
        lane.row["inside_ms"] = _ms(min(lane.inside))
        lane.row["inside_median_ms"] = _ms(statistics.median(lane.inside))
    if flops:
        lane.row["gflops"] = round(flops / lane.row["median_ms"] / 1e6, 3)
        lane.row["gflops_fastest"] = round(flops / times[0] / 1e6, 3)


def compared(got: Arrays, expected: Arrays) -> tuple[float, str]:
    """The worst relative error of an output's norm; why the outputs cannot be compared, if so."""
    worst = 0.0
    if len(got) != len(expected):
        return math.inf, f"{len(got)} outputs instead of {len(expected)}"
    by_name = set(got) == set(expected)
    for (name, want), (_, in_order) in zip(expected.items(), got.items(), strict=True):
        found = got[name] if by_name else in_order
        if found.shape != want.shape and found.ndim == 4:
            found = found.transpose(0, 3, 1, 2)  # channels-last engines
        if found.shape != want.shape:
            return math.inf, f"output {name} has shape {found.shape} instead of {want.shape}"
        error = relative_error(found, want)
        if not math.isfinite(error):
            return math.inf, f"output {name} is not finite"
        worst = max(worst, error)
    return worst, ""


def _ms(value: float) -> float:
    return float(f"{value:.4g}")


def _short(why: object) -> str:
    text = " ".join(str(why).partition(" [stack=")[0].split())
    return text if len(text) <= 300 else text[:297] + "…"


def about(found: EngineRow) -> str:
    """One line for the terminal."""
    if found["status"] != "ok":
        return f"{found['status']}: {found['why']}"
    speed = f", {found['gflops']:.1f} GFLOP/s" if "gflops" in found else ""
    return f"{found['median_ms']:.4g} ms (fastest {found['fastest_ms']:.4g}{speed}, n {found['n']})"
