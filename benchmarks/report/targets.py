"""Targets and measured figures: a row per figure, a column per browser and number of threads.

Input: the records of kernels, threads, peers, tuning, crowd, sockets, front, gemm.  Output: lines;
gpu_targets.py makes the page.  What runs in no browser has a column of its own.  What is judged are
ratios of medians of one run, and medians of steps.  A figure hides nothing: see `_beside` and
`Target.cell`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from benchmarks.records import Record, Records, Stored, rows
from benchmarks.report.engines import OURS, PEERS, REFERENCE, Table
from benchmarks.report.tables import DASH

Figure = float | None
Size = Callable[[Stored], Figure]
#: Where figures come from: a browser with its measurements, or all records.
Source = TypeVar("Source")

LEGEND = (
    "A figure is of one thread of a browser unless it names more, or of the server; what is not "
    "named was not measured, or not all of it in one run. Bold: misses the target. In brackets: "
    "the number of cases. 0 or inf: Tilewright failed where the other engine ran."
)
#: What stands for a record that is not there.
NOTHING: Record = {"rows": []}
#: Records with a column per browser, and those of the server.
OF_BROWSERS = (
    "wasm.kernels", "wasm.threads", "peers.browsers", "wasm.gemm", "tuning.rounds",
    "tuning.next_device", "tuning.whole_model", "tuning.good_defaults", "tuning.latency",
)  # fmt: skip
OF_SERVERS = ("tuning.server_part", "serving.crowd", "serving.sockets", "serving.front")
#: Entries of a row whose engine failed.
NO_ANSWER = ("failed", "skipped")


class Place:
    """A browser and a number of threads with their measurements; without a browser, the server.

    Its methods give a figure per case, or None if it is unknown.
    """

    def __init__(self, records: Records, browser: str = "", threads: int = 0) -> None:
        self.records, self.browser, self.threads = records, browser, threads
        self.name = (browser or "server") + (f", {threads} threads" if threads > 1 else "")
        self.peers = Table(records.get("peers.browsers", NOTHING)["rows"], browser, threads)

    def rows(self, name: str, **where: Any) -> list[Stored]:
        """Of a record; all but those of threads.py are of one thread."""
        if name == "wasm.threads":
            where["threads"] = self.threads
        elif self.threads > 1:
            return []
        hosts = (self.browser,) if self.browser else ("", None)
        return rows(self.records.get(name, NOTHING), host=hosts, **where)

    def each(
        self, name: str, key: str, subjects: Sequence[str], size: Size, only: int = 0, **where: Any
    ) -> list[Figure]:
        """The figure of each subject; only: the number of threads, if given."""
        wanted = only in (0, self.threads)
        own = self.rows(name, **where, **{key: tuple(subjects)}) if wanted else []
        found = {r[key]: size(r) for r in own}
        return [found.get(subject) for subject in subjects]

    def share(self, *names: str) -> list[Figure]:
        """Shares of the multiply-add peak: medians of undisturbed rounds."""
        return self.each("wasm.kernels", "kernel", names, _told("share_of_peak_quiet"))

    def thread(self, subject: str, size: Size, only: int = 0) -> list[Figure]:
        return self.each("wasm.threads", "subject", [subject], size, only)

    def speedup(self, *subjects: str) -> list[Figure]:
        return self.each("wasm.threads", "subject", subjects, _told("speedup_median"), only=2)

    def bits(self, count: int) -> list[Figure]:
        """Speed of a product with 4-bit weights over that with f32 weights, in one run."""
        case = f"mk,kn->mn {count}x4096 4096x4096"
        cases = (f"{case} 4 bits", case)
        ours, theirs = self.each("wasm.gemm", "case", cases, _told("gflops_median"))
        return [ours / theirs if ours and theirs else None]

    def group(self, name: str) -> Sequence[str]:
        return self.peers.groups[name]

    def over(self, cases: Sequence[str], engine: str) -> list[Figure]:
        """Their median over ours, per case."""
        return [_inverse(f) for c in cases for f in self._times(c, engine)]

    def over_best(self, cases: Sequence[str]) -> list[Figure]:
        """The fastest peer's median over ours, per case that any peer ran.

        Peers of another run do not count where some ran in the run of ours.
        """
        found = ([f for e in PEERS for f in self._asked(case, e)] for case in cases)
        return [_inverse(max(_known(f), default=None)) for f in found if f]

    def _asked(self, case: str, engine: str) -> list[Figure]:
        asked = self.peers.row(case, engine)["status"] != "not run"
        return self._times(case, engine) if asked else []

    def beside(self, size: Size) -> list[Figure]:
        """Ours over onnxruntime-web's, per model that has this figure of both."""
        pairs = [[self.peers.row(c, e) for e in (OURS, REFERENCE)] for c in self.group("model")]
        return [
            f
            for ours, theirs in pairs
            if "failed" in (ours["status"], theirs["status"])
            or None not in (size(ours), size(theirs))
            for f in _beside(ours, theirs, size)
        ]

    def bound(self, case: str) -> list[Figure]:
        """Share of the multiply-add peak of the same rounds; the driver's time alone."""
        row = self.peers.row(case, OURS)
        if row["status"] in NO_ANSWER:
            return [0.0]
        if not row.get("peak_gflops_median") or not row.get("inside_median_ms"):
            return [None]
        return [row["flops"] / row["inside_median_ms"] / 1e6 / row["peak_gflops_median"]]

    def int8(self, other: str, engine: str) -> list[Figure]:
        """How much faster our 8-bit MobileNetV2 is than another case or engine."""
        ours, theirs = self.peers.row("mobilenet_v2_int8", OURS), self.peers.row(other, engine)
        return [_inverse(f) for f in _beside(ours, theirs, _median)]

    def tuned(self, name: str, size: Size, start: str, *subjects: str) -> list[Figure]:
        """Of the tuner's sessions: K0 to K3 where no other subjects are named."""
        subjects = subjects or TUNED
        return self.each(f"tuning.{name}", "subject", subjects, size, start=start)

    def sessions(self, name: str, size: Size) -> list[Figure]:
        """Of all subjects that have this figure."""
        found = (size(r) for r in self.rows(f"tuning.{name}"))
        return [f for f in found if f is not None]

    def right(self, *scenarios: str) -> list[Figure]:
        """Of the crowd, per scenario: the share of keys whose default is right or nearly so."""
        found = (self.rows("serving.crowd", scenario=name) for name in scenarios)
        sums = ([sum(r[key] for r in own) for key in ("within", "keys")] for own in found)
        return [within / keys if keys else None for within, keys in sums]

    def _times(self, case: str, engine: str) -> list[Figure]:
        return _beside(self.peers.row(case, OURS), self.peers.row(case, engine), _median)


@dataclass(frozen=True)
class Target(Generic[Source]):
    """At least `limit`, or at most if `below`; without a limit it is only shown.

    judged: combines the cases' figures into one
    """

    what: str
    limit: float | None
    found: Callable[[Source], Sequence[Figure]]
    judged: Callable[[Sequence[float]], float] = min
    below: bool = False
    digits: int = 2

    @property
    def must_be(self) -> str:
        return "" if self.limit is None else f"{'≤' if self.below else '≥'} {self.limit:g}"

    def cell(self, source: Source) -> str:
        """Bold if it misses the limit; a dash unless every case is known; how many cases, if more
        than one."""
        figures = self.found(source)
        if not figures or None in figures:
            return DASH
        value = self.judged(_known(figures))
        number = f" ({len(figures)})" if len(figures) > 1 else ""
        shown = str(value) if isinstance(value, int) else f"{value:.{self.digits}f}"
        limit = value if self.limit is None else self.limit
        if value <= limit if self.below else value >= limit:
            return shown + number
        if float(shown) == limit:
            shown = f"{value:.4f}"  # a value that only rounds to the limit must not look equal
        return f"**{shown}**{number}"


def _beside(ours: Stored, theirs: Stored, size: Size) -> list[Figure]:
    """Ours over theirs: `[]` if theirs gave no answer, infinite if only ours gave none.

    `[None]` if either was not measured, or in another run.
    """
    if theirs["status"] in NO_ANSWER:
        return []
    if "not run" in (ours["status"], theirs["status"]) or ours["run"] != theirs["run"]:
        return [None]
    if ours["status"] in NO_ANSWER:
        return [math.inf]
    mine, other = size(ours), size(theirs)
    return [mine / other if mine is not None and other else None]


def _inverse(figure: Figure) -> Figure:
    return None if figure is None else 1 / figure


def _known(figures: Sequence[Figure]) -> list[float]:
    return [f for f in figures if f is not None]


def _mean(figures: Sequence[float]) -> float:
    """The geometric mean."""
    return statistics.geometric_mean(figures) if 0 not in figures else 0.0


# ---- figures of a row ----------------------------------------------------------------------------


def _median(row: Stored) -> Figure:
    return float(row["median_ms"])


def _memory(row: Stored) -> Figure:
    """Wasm memories and JavaScript heaps; Firefox does not report the latter."""
    wasm = row.get("wasm_bytes")
    return None if wasm is None else float(wasm + (row.get("js_bytes") or 0))


def _step_us(row: Stored) -> Figure:
    return float(row["median_ms"] / row["steps"] * 1e3)


def _gflops(row: Stored) -> Figure:
    """The record's own figure is that of the fastest run."""
    return float(row["gflops"] * row["fastest_ms"] / row["median_ms"])


def _rounds(row: Stored) -> Figure:
    """Infinite if the optimum was not reached."""
    return math.inf if row["rounds"] is None else int(row["rounds"])


def _last_swap(row: Stored) -> Figure:
    """None for a session without swaps."""
    return float(row["last_swap_s"]) if row["swaps"] else math.inf


def _p95_ratio(row: Stored) -> Figure:
    """None for a session without trials: nothing ran beside the inferences."""
    return float(row["ratio"]) if row["trials"] else None


def _number(*keys: str) -> Size:
    return lambda row: sum(int(row[k]) for k in keys)


def _told(key: str) -> Size:
    return lambda row: row.get(key)


# ---- the table -----------------------------------------------------------------------------------

CHAIN, EMPTY = "matmul 48x64x64", "empty steps, shared"
KERNELS = ("k0", "k1", "k2", "k3")
TUNED = tuple(k.upper() for k in KERNELS)
#: Scenarios of the crowd in which a fifth of all voices lie, and one in which a third do.
LIARS, MORE_LIARS = ("same", "swap", "gold", "early", "late"), "spread"
TARGETS: tuple[Target[Place], ...] = (
    Target("K0, K1: share of the peak, the lower one", 0.92, lambda p: p.share("K0", "K1")),
    Target("K2, K3: share of the peak, the lower one", 0.80, lambda p: p.share("K2", "K3")),
    Target("K0 to K3: speed-up over LiteRT.js, smallest", 1.4, lambda p: p.over(KERNELS, "litert")),
    Target("K0 to K3: speed-up over onnxruntime-web, smallest", 2.0,
           lambda p: p.over(KERNELS, REFERENCE)),
    Target("matmuls: speed-up over the fastest other engine, mean", 1.5,
           lambda p: p.over_best(p.group("gemm")), _mean),
    Target("matmuls: speed-up over the fastest other engine, smallest", 0.95,
           lambda p: p.over_best(p.group("gemm"))),
    Target("1x4096x4096: speed with 4-bit weights over f32", 1.0, lambda p: p.bits(1)),
    Target("128x4096x4096: speed with 4-bit weights over f32", 0.7, lambda p: p.bits(128)),
    Target("K0, K1: speed-up by threads, the lower one", 1.9, lambda p: p.speedup("K0", "K1")),
    Target("RoBERTa-base: speed-up by threads", 1.85, lambda p: p.speedup("roberta-base")),
    Target("MobileNetV2: speed-up by threads", 1.6, lambda p: p.speedup("mobilenet_v2")),
    Target("models: speed-up over onnxruntime-web, mean", 2.2,
           lambda p: p.over(p.group("model"), REFERENCE), _mean),
    Target("models: speed-up over onnxruntime-web, smallest", 1.5,
           lambda p: p.over(p.group("model"), REFERENCE)),
    Target("models: speed-up over the fastest other engine, mean", 1.3,
           lambda p: p.over_best(p.group("model")), _mean),
    Target("RoBERTa-base 384: share of the peak", 0.80, lambda p: p.bound("roberta_base")),
    Target("int8 MobileNetV2: speed-up over our f32", 1.8, lambda p: p.int8("mobilenet_v2", OURS)),
    Target("int8 MobileNetV2: speed-up over onnxruntime-web", 1.5,
           lambda p: p.int8("mobilenet_v2_int8", REFERENCE)),
    Target("models: memory over onnxruntime-web's, mean", 0.5,
           lambda p: p.beside(_memory), _mean, True),
    Target("models: memory over onnxruntime-web's, largest", 0.5,
           lambda p: p.beside(_memory), max, True),
    Target("models: warm load over onnxruntime-web's, mean", 0.33,
           lambda p: p.beside(_told("load_warm_ms")), _mean, True),
    Target("models: warm load over onnxruntime-web's, largest", 0.33,
           lambda p: p.beside(_told("load_warm_ms")), max, True),
    Target("an empty step, µs", 0.6, lambda p: p.thread(EMPTY, _step_us), below=True),
    Target("an empty step, µs, fastest run", None, lambda p: p.thread(EMPTY, _told("step_us"))),
    Target("100 products of 48x64x64, GFLOP/s, one thread", 40.0,
           lambda p: p.thread(CHAIN, _gflops, only=1)),
    Target("100 products of 48x64x64, GFLOP/s, two threads", 65.0,
           lambda p: p.thread(CHAIN, _gflops, only=2)),
    Target("100 products of 48x64x64, GFLOP/s, fastest run", None,
           lambda p: p.thread(CHAIN, _told("gflops"))),
    Target("K0 to K3 from poor defaults: share of the optimum after 32 trials, lowest", 0.97,
           lambda p: p.tuned("rounds", _told("share"), "poor")),
    Target("K0 to K3 from poor defaults: trials to 97 % of the optimum, most", 32,
           lambda p: p.tuned("rounds", _rounds, "poor"), max, True),
    Target("evaluating a candidate, ms: median per kernel, largest", 700,
           lambda p: [f for s in ("poor", "good")
                      for f in p.tuned("rounds", _told("evaluation_ms"), s)], max, True),
    Target("server's part of a round, ms: median per kernel, largest", 20,
           lambda p: p.tuned("server_part", _told("median_ms"), ""), max, True),
    Target("MiniLM from poor defaults: last swap at, s", 5,
           lambda p: p.tuned("whole_model", _last_swap, "poor", "minilm"), below=True),
    Target("p95 with a tuner over p95 without, largest", 1.1,
           lambda p: p.sessions("latency", _p95_ratio), max, True),
    Target("sessions with good defaults", 100,
           lambda p: p.sessions("good_defaults", _number("runs")), sum),
    Target("of these, slower by 2 % or more", 0,
           lambda p: p.sessions("good_defaults", _number("slower")), sum, True),
    Target("winners linked: first inference, share of the optimum's speed, lowest", 0.97,
           lambda p: p.tuned("next_device", _told("first_share"), "poor")),
    Target("crowd, a fifth of voices lies: share of keys with the right default, lowest", 0.99,
           lambda p: p.right(*LIARS)),
    Target("the same, a third of voices lies", None, lambda p: p.right(MORE_LIARS)),
    Target("crowd: slower or wrong kernels that honest clients adopted", 0,
           lambda p: [_number("adopted_slower", "adopted_wrong")(r)
                      for r in p.rows("serving.crowd")], sum, True),
    Target("sockets: reports lost or counted twice", 0,
           lambda p: [_number("lost", "twice")(r) for r in p.rows("serving.sockets")],
           sum, True),
    Target("1,000 silent, trickling or half-open connections: p95 of /healthz, ms, largest", 50,
           lambda p: [_told("health_p95_ms")(r)
                      for r in p.rows("serving.front") if r["held"] >= 1000], max, True),
)  # fmt: skip


def lines(records: Records) -> tuple[list[str], list[list[str]]]:
    """Head and rows: every target, in every place where anything was measured; see LEGEND."""
    found = {
        (r.get("host", r.get("browser")), r.get("threads", 1))
        for name in OF_BROWSERS
        for r in records.get(name, NOTHING)["rows"]
    }
    places = [Place(records, *place) for place in sorted(found) if all(place)]
    server = Place(records)
    if any(server.rows(name) for name in OF_SERVERS):
        places.append(server)
    lines = [[t.what, t.must_be, *(t.cell(p) for p in places)] for t in TARGETS]
    return ["what", "must be", *(p.name for p in places)], lines
