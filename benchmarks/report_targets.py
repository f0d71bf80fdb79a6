"""What must be reached, beside what was measured: one line per figure, browsers and threads across.

Input: the records of kernels, threads and peers.  Output: a table.  What is judged are ratios of
medians of one run, and medians of steps.  A figure hides nothing: see `_beside` and `Target.cell`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from charts import table
from report_peers import OURS, REFERENCE, TITLES, Table

Record = dict[str, Any]
Row = dict[str, Any]
Figure = float | None
Size = Callable[[Row], Figure]

LEGEND = (
    "Bold: falls short. In brackets: of how many cases; 0 or inf: ours failed where theirs ran. "
    "–: not measured, or not all of it in one run."
)
#: What a row says when its engine was asked and gave no answer.
NO_ANSWER = ("failed", "skipped")


@dataclass(frozen=True)
class Place:
    """A browser and a number of threads, with what was measured there.

    Each method gives a figure per case, and None for one that is not known.
    """

    kernels: Sequence[Row]
    threads: Sequence[Row]
    peers: Table

    def share(self, *names: str) -> list[Figure]:
        """Shares of the multiply-add peak: medians of undisturbed rounds, on one thread."""
        found = {r["kernel"]: r.get("share_of_peak_quiet") for r in self.kernels}
        return [found.get(n) if self.peers.threads == 1 else None for n in names]

    def thread(self, subject: str, figure: Size, only: int = 0) -> list[Figure]:
        """Of a plan of steps; on `only` that many threads, if given."""
        found = (figure(r) for r in self.threads if r["subject"] == subject)
        return [next(found, None) if only in (0, self.peers.threads) else None]

    def speedup(self, *subjects: str) -> list[Figure]:
        found = {r["subject"]: r["speedup_median"] for r in self.threads}
        return [found.get(s) if self.peers.threads > 1 else None for s in subjects]

    def group(self, name: str) -> Sequence[str]:
        return self.peers.groups[name]

    def over(self, cases: Sequence[str], engine: str) -> list[Figure]:
        """Their median over ours, per case."""
        return [_inverse(f) for c in cases for f in self._times(c, engine)]

    def over_best(self, cases: Sequence[str]) -> list[Figure]:
        """The fastest peer's median over ours, per case that any peer ran."""
        peers = [engine for engine in TITLES if engine != OURS]
        found = [
            [f for e in peers if self._asked(case, e) for f in self._times(case, e)]
            for case in cases
        ]
        return [_inverse(None if None in f else max(_known(f))) for f in found if f]

    def beside(self, size: Size) -> list[Figure]:
        """Ours over onnxruntime-web's, per model."""
        pairs = [[self.peers.row(c, e) for e in (OURS, REFERENCE)] for c in self.group("model")]
        return [f for ours, theirs in pairs for f in _beside(ours, theirs, size)]

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

    def _asked(self, case: str, engine: str) -> bool:
        return bool(self.peers.row(case, engine)["status"] != "not run")

    def _times(self, case: str, engine: str) -> list[Figure]:
        return _beside(self.peers.row(case, OURS), self.peers.row(case, engine), _median)


@dataclass(frozen=True)
class Target:
    """At least `limit`, or at most where `below` says so; without one it is only shown.

    judged: makes one figure of those of the cases
    """

    what: str
    limit: float | None
    found: Callable[[Place], Sequence[Figure]]
    judged: Callable[[Sequence[float]], float] = min
    below: bool = False

    @property
    def must_be(self) -> str:
        return "" if self.limit is None else f"{'≤' if self.below else '≥'} {self.limit:g}"

    def cell(self, place: Place) -> str:
        """A dash unless every case is known; how many cases, if more than one."""
        figures = self.found(place)
        if not figures or None in figures:
            return "–"
        value = self.judged(_known(figures))
        number = f" ({len(figures)})" if len(figures) > 1 else ""
        if self.limit is None or (value <= self.limit if self.below else value >= self.limit):
            return f"{value:.2f}{number}"
        return f"**{value:.2f}**{number}"


def _beside(ours: Row, theirs: Row, size: Size) -> list[Figure]:
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


def _median(row: Row) -> Figure:
    return float(row["median_ms"])


def _memory(row: Row) -> Figure:
    """Wasm memories and JavaScript heaps; the latter are not to be had in Firefox."""
    wasm = row.get("wasm_bytes")
    return None if wasm is None else float(wasm + (row.get("js_bytes") or 0))


def _warm_load(row: Row) -> Figure:
    return row.get("load_warm_ms")


def _step_us(row: Row) -> Figure:
    return float(row["median_ms"] / row["steps"] * 1e3)


def _gflops(row: Row) -> Figure:
    """The record's own figure is that of the fastest run."""
    return float(row["gflops"] * row["fastest_ms"] / row["median_ms"])


def _fastest(key: str) -> Size:
    return lambda row: float(row[key])


# ---- the table -----------------------------------------------------------------------------------

CHAIN, EMPTY = "matmul 48x64x64", "empty steps, shared"
KERNELS = ("k0", "k1", "k2", "k3")
TARGETS = (
    Target("K0, K1: share of the peak, the lesser", 0.92, lambda p: p.share("K0", "K1")),
    Target("K2, K3: share of the peak, the lesser", 0.80, lambda p: p.share("K2", "K3")),
    Target("K0 to K3 over LiteRT.js, the least", 1.4, lambda p: p.over(KERNELS, "litert")),
    Target("K0 to K3 over onnxruntime-web, the least", 2.0, lambda p: p.over(KERNELS, REFERENCE)),
    Target("matmuls over the best peer, mean", 1.5, lambda p: p.over_best(p.group("gemm")), _mean),
    Target("matmuls over the best peer, the least", 0.95, lambda p: p.over_best(p.group("gemm"))),
    Target("K0, K1: threads over one", 1.9, lambda p: p.speedup("K0", "K1")),
    Target("RoBERTa-base: threads over one", 1.85, lambda p: p.speedup("roberta-base")),
    Target("MobileNetV2: threads over one", 1.6, lambda p: p.speedup("mobilenet_v2")),
    Target("models over onnxruntime-web, mean", 2.2,
           lambda p: p.over(p.group("model"), REFERENCE), _mean),
    Target("models over onnxruntime-web, the least", 1.5,
           lambda p: p.over(p.group("model"), REFERENCE)),
    Target("models over the best peer, mean", 1.3, lambda p: p.over_best(p.group("model")), _mean),
    Target("RoBERTa-base 384: share of the peak", 0.80, lambda p: p.bound("roberta_base")),
    Target("int8 MobileNetV2 over our f32", 1.8, lambda p: p.int8("mobilenet_v2", OURS)),
    Target("int8 MobileNetV2 over onnxruntime-web's", 1.5,
           lambda p: p.int8("mobilenet_v2_int8", REFERENCE)),
    Target("memory beside onnxruntime-web, mean", 0.5, lambda p: p.beside(_memory), _mean, True),
    Target("memory beside onnxruntime-web, the most", 0.5, lambda p: p.beside(_memory), max, True),
    Target("warm load beside onnxruntime-web, mean", 0.33,
           lambda p: p.beside(_warm_load), _mean, True),
    Target("warm load beside onnxruntime-web, the most", 0.33,
           lambda p: p.beside(_warm_load), max, True),
    Target("an empty step, µs", 0.6, lambda p: p.thread(EMPTY, _step_us), below=True),
    Target("an empty step, µs, fastest run", None, lambda p: p.thread(EMPTY, _fastest("step_us"))),
    Target("100 products of 48x64x64, GFLOP/s, one thread", 40.0,
           lambda p: p.thread(CHAIN, _gflops, only=1)),
    Target("100 products of 48x64x64, GFLOP/s, two threads", 65.0,
           lambda p: p.thread(CHAIN, _gflops, only=2)),
    Target("100 products of 48x64x64, GFLOP/s, fastest run", None,
           lambda p: p.thread(CHAIN, _fastest("gflops"))),
)  # fmt: skip


def targets(records: dict[str, Record]) -> str:
    """Every target, in every place where anything was measured; see LEGEND."""
    rows = {name: records.get(name, {}).get("rows", []) for name in ("kernels", "threads", "peers")}
    found = {(r["browser"], r["threads"]) for r in rows["peers"] if r["threads"]}
    found |= {(r["host"], r["threads"]) for r in rows["threads"]}
    found |= {(r["host"], 1) for r in rows["kernels"]}
    places = [
        Place(
            [r for r in rows["kernels"] if r["host"] == browser],
            [r for r in rows["threads"] if (r["host"], r["threads"]) == (browser, threads)],
            Table(rows["peers"], browser, threads),
        )
        for browser, threads in sorted(found)
    ]
    head = ["what", "must be", *(f"{p.peers.browser}, {p.peers.threads}" for p in places)]
    lines = [[t.what, t.must_be, *(t.cell(p) for p in places)] for t in TARGETS]
    return table(head, lines)
