"""What must be reached, beside what was measured: one line per figure, browsers and threads across.

Input: the records of kernels, threads and peers.  Output: a table.  All are ratios of medians, but
for the steps of a plan, whose fastest run counts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from charts import table
from report_peers import OURS, REFERENCE, Table

Record = dict[str, Any]
Row = dict[str, Any]
Figure = float | None


@dataclass(frozen=True)
class Place:
    """A browser and a number of threads, with what was measured there."""

    kernels: Sequence[Row]
    threads: Sequence[Row]
    peers: Table

    def share(self, *names: str) -> Figure:
        """The least share of the multiply-add peak; these are measured on one thread."""
        found = [r["share_of_peak_median"] for r in self.kernels if r["kernel"] in names]
        return _least(found if self.peers.threads == 1 else [])

    def thread(self, subject: str, key: str) -> Figure:
        found = (r[key] for r in self.threads if r["subject"] == subject)
        return next(found, None)

    def speedup(self, *subjects: str) -> Figure:
        more = self.peers.threads > 1
        return _least([self.thread(s, "speedup_median") for s in subjects] if more else [])

    def over(self, group: str, engine: str) -> list[Figure]:
        return [self.peers.ratio(case, engine) for case in self.peers.groups[group]]

    def over_best(self, group: str) -> list[Figure]:
        return [self.peers.best(case) for case in self.peers.groups[group]]

    def beside(self, size: Callable[[Row], Figure]) -> list[Figure]:
        """Ours over onnxruntime-web's, per model."""
        rows = [
            [self.peers.row(c, e) for e in (OURS, REFERENCE)] for c in self.peers.groups["model"]
        ]
        return [_over(*map(size, pair)) for pair in rows if all(r["status"] == "ok" for r in pair)]

    def bound(self, case: str) -> Figure:
        """Share of the multiply-add peak of the same rounds; the driver's time alone."""
        row = self.peers.row(case, OURS)
        if not row.get("peak_gflops_median") or not row.get("inside_median_ms"):
            return None
        return float(row["flops"] / row["inside_median_ms"] / 1e6 / row["peak_gflops_median"])

    def int8(self, other: str, engine: str) -> Figure:
        """How much faster our 8-bit MobileNetV2 is than another case or engine."""
        return _over(self.peers.time(other, engine), self.peers.time("mobilenet_v2_int8", OURS))


@dataclass(frozen=True)
class Target:
    """At least `limit`, or at most where `below` says so."""

    what: str
    limit: float
    found: Callable[[Place], Figure]
    below: bool = False

    def cell(self, place: Place) -> str:
        value = self.found(place)
        if value is None:
            return "–"
        met = value <= self.limit if self.below else value >= self.limit
        return f"{value:.2f}" if met else f"**{value:.2f}**"


def memory(row: Row) -> Figure:
    """Wasm memories and JavaScript heaps; the latter are not to be had in Firefox."""
    wasm = row.get("wasm_bytes")
    return None if wasm is None else float(wasm + (row.get("js_bytes") or 0))


def _over(one: Figure, other: Figure) -> Figure:
    return None if one is None or not other else one / other


def _known(values: Iterable[Figure]) -> list[float]:
    return [v for v in values if v is not None]


def _least(values: Iterable[Figure]) -> Figure:
    return min(_known(values), default=None)


def _most(values: Iterable[Figure]) -> Figure:
    return max(_known(values), default=None)


def _mean(values: Iterable[Figure]) -> Figure:
    found = _known(values)
    return math.exp(statistics.fmean(map(math.log, found))) if found else None


CHAIN, EMPTY = "matmul 48x64x64", "empty steps, shared"
TARGETS = (
    Target("K0, K1: share of the peak, the lesser", 0.92, lambda p: p.share("K0", "K1")),
    Target("K2, K3: share of the peak, the lesser", 0.80, lambda p: p.share("K2", "K3")),
    Target("K0 to K3 over LiteRT.js, the least", 1.4, lambda p: _least(p.over("kernel", "litert"))),
    Target("K0 to K3 over onnxruntime-web, the least", 2.0,
           lambda p: _least(p.over("kernel", REFERENCE))),
    Target("matmuls over the best peer, mean", 1.5, lambda p: _mean(p.over_best("gemm"))),
    Target("matmuls over the best peer, the least", 0.95, lambda p: _least(p.over_best("gemm"))),
    Target("K0, K1: threads over one", 1.9, lambda p: p.speedup("K0", "K1")),
    Target("RoBERTa-base: threads over one", 1.85, lambda p: p.speedup("roberta-base")),
    Target("MobileNetV2: threads over one", 1.6, lambda p: p.speedup("mobilenet_v2")),
    Target("models over onnxruntime-web, mean", 2.2, lambda p: _mean(p.over("model", REFERENCE))),
    Target("models over onnxruntime-web, the least", 1.5,
           lambda p: _least(p.over("model", REFERENCE))),
    Target("models over the best peer, mean", 1.3, lambda p: _mean(p.over_best("model"))),
    Target("RoBERTa-base 384: share of the peak", 0.80, lambda p: p.bound("roberta_base")),
    Target("int8 MobileNetV2 over our f32", 1.8, lambda p: p.int8("mobilenet_v2", OURS)),
    Target("int8 MobileNetV2 over onnxruntime-web's", 1.5,
           lambda p: p.int8("mobilenet_v2_int8", REFERENCE)),
    Target("memory beside onnxruntime-web, mean", 0.5, lambda p: _mean(p.beside(memory)), True),
    Target("memory beside onnxruntime-web, the most", 0.5, lambda p: _most(p.beside(memory)), True),
    Target("warm load beside onnxruntime-web, mean", 0.33,
           lambda p: _mean(p.beside(lambda r: r.get("load_warm_ms"))), True),
    Target("warm load beside onnxruntime-web, the most", 0.33,
           lambda p: _most(p.beside(lambda r: r.get("load_warm_ms"))), True),
    Target("an empty step, µs", 0.6, lambda p: p.thread(EMPTY, "step_us"), True),
    Target("100 products of 48x64x64, GFLOP/s, one thread", 40.0,
           lambda p: p.thread(CHAIN, "gflops") if p.peers.threads == 1 else None),
    Target("100 products of 48x64x64, GFLOP/s, two threads", 65.0,
           lambda p: p.thread(CHAIN, "gflops") if p.peers.threads == 2 else None),
)  # fmt: skip


def targets(records: dict[str, Record]) -> str:
    """Every target; what falls short is bold, what was not measured is a dash."""
    rows = {name: records.get(name, {}).get("rows", []) for name in ("kernels", "threads", "peers")}
    found = {(r["browser"], r["threads"]) for r in rows["peers"] if r["threads"]}
    found |= {(r["host"], r["threads"]) for r in rows["threads"]}
    places = [
        Place(
            [r for r in rows["kernels"] if r["host"] == browser],
            [r for r in rows["threads"] if (r["host"], r["threads"]) == (browser, threads)],
            Table(rows["peers"], browser, threads),
        )
        for browser, threads in sorted(found)
    ]
    head = ["what", "must be", *(f"{p.peers.browser}, {p.peers.threads}" for p in places)]
    lines = [
        [t.what, f"{'≤' if t.below else '≥'} {t.limit:g}", *(t.cell(p) for p in places)]
        for t in TARGETS
    ]
    return table(head, lines)
