"""The comparison with other engines, as tables and charts.

Input: results/peers.json.  Output: a summary for README.md, a table per group for
results/README.md, SVG bars and a roofline.  Ratios above 1 mean that Tilewright is faster.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from charts import Point, figure, grouped, roofline, table

Record = dict[str, Any]
Row = dict[str, Any]

OURS, REFERENCE = "tilewright", "ort"
TITLES = {
    OURS: "Tilewright",
    REFERENCE: "onnxruntime-web",
    "litert": "LiteRT.js",
    "tfjs": "TF.js wasm",
    "jax": "jax-js",
}
GROUPS = {
    "kernel": "kernels of nnJIT",
    "gemm": "matmul sweep",
    "conv": "convolution sweep",
    "model": "models",
}


#: Shorter calls are a few steps of a browser's clock.
CLOCK_MS = 0.05


class Table:
    """The rows of one browser and thread count, by case and engine."""

    def __init__(self, rows: Sequence[Row], browser: str, threads: int) -> None:
        self.browser, self.threads = browser, threads
        self._found: dict[tuple[str, str], Row] = {}
        self.groups: dict[str, list[str]] = {group: [] for group in GROUPS}
        for row in rows:
            if (row["browser"], row["threads"]) != (browser, threads):
                continue
            self._found[row["case"], row["engine"]] = row
            names = self.groups[row["group"]]
            if row["case"] not in names:
                names.append(row["case"])

    def row(self, case: str, engine: str) -> Row:
        return self._found.get((case, engine), {"status": "not run", "why": ""})

    def time(self, case: str, engine: str) -> float | None:
        row = self.row(case, engine)
        return float(row["median_ms"]) if row["status"] == "ok" else None

    def ratio(self, case: str, engine: str) -> float | None:
        """Their median over ours, if both ran in the same run."""
        ours, theirs = self.row(case, OURS), self.row(case, engine)
        if ours["status"] != "ok" or theirs["status"] != "ok" or ours["run"] != theirs["run"]:
            return None
        return float(theirs["median_ms"]) / float(ours["median_ms"])

    def spread(self, case: str, engine: str) -> str:
        """The quartiles of the ratios round by round."""
        pairs = zip(self.row(case, engine)["rounds"], self.row(case, OURS)["rounds"], strict=False)
        found = [theirs / ours for theirs, ours in pairs]
        if len(found) < 2:
            return ""
        low, _, high = statistics.quantiles(found, n=4)
        return f" ({low:.2f}–{high:.2f})"

    def driver(self, case: str) -> float | None:
        """The fastest peer's median over our driver's alone, without messages and copies."""
        ours = self.row(case, OURS).get("inside_median_ms") or 0.0
        best, time = self.best(case), self.time(case, OURS)
        if best is None or time is None or ours < CLOCK_MS:
            return None
        return best * time / float(ours)

    def best(self, case: str) -> float | None:
        """The ratio over the fastest peer."""
        found = [r for e in TITLES if e != OURS and (r := self.ratio(case, e)) is not None]
        return min(found) if found else None


def tables(record: Record) -> Iterator[Table]:
    """Per browser and thread count, in a steady order."""
    keys = {(r["browser"], r["threads"]) for r in record["rows"] if r["threads"]}
    for browser, threads in sorted(keys):
        yield Table(record["rows"], browser, threads)


def mean(ratios: Sequence[float | None]) -> str:
    """The geometric mean and of how many."""
    found = [r for r in ratios if r is not None]
    if not found:
        return "–"
    return f"{math.exp(statistics.fmean(map(math.log, found))):.2f}× ({len(found)})"


# ---- tables --------------------------------------------------------------------------------------


def summary(record: Record) -> str:
    """Geometric means of the ratios, per group."""
    peers = [e for e in TITLES if e != OURS]
    head = ["speed-up over (cases)", "browser", "threads", *(TITLES[e] for e in peers)]
    head += ["the fastest of them", "smallest"]
    rows = []
    for t in tables(record):
        for group, cases in t.groups.items():
            best = [t.best(c) for c in cases]
            known = [b for b in best if b is not None]
            if not known:
                continue
            means = [mean([t.ratio(c, e) for c in cases]) for e in peers]
            row = [GROUPS[group], t.browser, str(t.threads), *means]
            rows.append([*row, mean(best), f"{min(known):.2f}×"])
    return table(head, rows)


def brief(record: Record) -> str:
    """Whole models only, beside the peers that run at least four of them."""
    peers = [e for e in TITLES if e not in (OURS, "jax")]
    head = ["browser", "threads", *(TITLES[e] for e in peers), "the fastest of them"]
    rows = []
    for t in tables(record):
        best = [r for case in t.groups["model"] if (r := t.best(case)) is not None]
        if not best:
            continue
        means = [mean([t.ratio(case, e) for case in t.groups["model"]]) for e in peers]
        fastest = f"{mean(best)}, at least {min(best):.2f}×"
        rows.append([t.browser.capitalize(), str(t.threads), *means, fastest])
    return table(head, rows)


def details(record: Record) -> str:
    """Every case, per browser, thread count and group; then why engines are missing."""
    lines: list[str] = []
    for t in tables(record):
        for group, cases in t.groups.items():
            if not cases:
                continue
            threads = f"{t.threads} thread" + ("s" if t.threads > 1 else "")
            lines += [f"### {GROUPS[group]}, {t.browser}, {threads}", "", _times(t, cases), ""]
            lines += [_shares(t, cases), ""]
            if group == "model":
                lines += [_footprint(t, cases), ""]
    return "\n".join([*lines, "### What did not run", "", _missing(record)])


def _times(t: Table, cases: Sequence[str]) -> str:
    head = ["median ms", *TITLES.values(), f"speed-up over {TITLES[REFERENCE]} (quartiles)"]
    head += ["over the fastest", "over the fastest, driver alone"]
    rows = []
    for case in cases:
        times = [t.time(case, e) for e in TITLES]
        over, best = t.ratio(case, REFERENCE), t.best(case)
        spread = "" if over is None else t.spread(case, REFERENCE)
        row = [case, *("–" if v is None else figure(v) for v in times)]
        row += [_times_or_dash(over) + spread, _times_or_dash(best)]
        rows.append([*row, _times_or_dash(t.driver(case))])
    return table(head, rows)


def _times_or_dash(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}×"


def _shares(t: Table, cases: Sequence[str]) -> str:
    """GFLOP/s of the fastest run, beside the peak of the same rounds."""
    head = [
        "fastest: GFLOP/s",
        *TITLES.values(),
        "driver alone",
        "peak",
        "share of peak",
        "memory GB/s",
    ]
    rows = []
    for case in cases:
        found = [t.row(case, e) for e in TITLES]
        speeds = [_number(r, "gflops_fastest") if r["status"] == "ok" else "–" for r in found]
        ours = found[0]
        alone = peak = share = "–"
        if ours["status"] == "ok" and ours.get("inside_ms"):
            inside = ours["flops"] / ours["inside_ms"] / 1e6
            alone = figure(inside)
            if ours.get("peak_gflops"):
                share = f"{inside / ours['peak_gflops'] * 100:.0f} %"
        measured = next((r for r in found if r.get("peak_gflops")), None)
        if measured:
            peak = f"{measured['peak_gflops']:.1f}"
        stream = f"{measured['stream_gbps']:.1f}" if measured else "–"
        rows.append([case, *speeds, alone, peak, share, stream])
    return table(head, rows)


def _footprint(t: Table, cases: Sequence[str]) -> str:
    """Loading, first runs, memory and code of the engines that ran a model."""
    head = ["model", "engine", "load ms: cold", "warm", "first run ms: cold", "warm", "fastest ms"]
    head += ["p95 ms", "Wasm MB", "JavaScript MB", "peak MB of the page", "code kB", "gzipped kB"]
    rows = []
    for case in cases:
        for engine, title in TITLES.items():
            r = t.row(case, engine)
            if r["status"] != "ok":
                continue
            keys = ("load_cold_ms", "load_warm_ms", "first_ms", "first_warm_ms", "fastest_ms")
            row = [case, title, *(_number(r, k) for k in (*keys, "p95_ms"))]
            sizes = ("wasm_bytes", "js_bytes", "resident_peak_bytes")
            row += [_number(r, k, 1e6) for k in sizes]
            rows.append([*row, *(_number(r, k, 1e3) for k in ("code_bytes", "code_gzip_bytes"))])
    return table(head, rows)


def _number(row: Row, key: str, unit: float = 1.0) -> str:
    value = row.get(key)
    return "–" if value is None else figure(value / unit)


def _missing(record: Record) -> str:
    """Reasons, with the cases that they hold for."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for row in record["rows"]:
        if row["status"] != "ok":
            why = row["why"].replace(row["case"], "…").replace("|", "\\|")
            engine = TITLES.get(row["engine"], "all engines")
            if row["threads"] > 1:
                engine += f", {row['threads']} threads"
            named = reasons.setdefault((engine, row["status"], why), [])
            if row["case"] not in named:
                named.append(row["case"])
    if not reasons:
        return "Everything ran."
    rows = [[e, status, why, ", ".join(cases)] for (e, status, why), cases in reasons.items()]
    return table(["engine", "status", "reason", "cases"], rows)


# ---- charts --------------------------------------------------------------------------------------


def charts(record: Record) -> Iterator[tuple[str, str]]:
    """Bars of kernels and models per thread count, and a roofline, for Chromium."""
    for t in tables(record):
        if t.browser != "chromium":
            continue
        threads = f"{t.threads} thread" + ("s" if t.threads > 1 else "")
        names = list(TITLES.values())
        for group, title in (("kernel", "Kernels"), ("model", "Models")):
            rows = [(c, [_speed(t.row(c, e)) for e in TITLES]) for c in t.groups[group]]
            rows = [row for row in rows if any(v is not None for v in row[1])]
            if rows:
                heading = f"{title}, GFLOP/s, median, {threads} (longer is faster)"
                yield f"peers-{group}-{t.threads}.svg", grouped(heading, names, rows)
        picture = _roofline(t, threads)
        if picture:
            yield f"peers-roofline-{t.threads}.svg", picture


def _speed(row: Row) -> float | None:
    return float(row["gflops"]) if row["status"] == "ok" and row.get("gflops") else None


def _roofline(t: Table, threads: str) -> str | None:
    """Every kernel of Tilewright and the fastest peer, under the highest measured limits."""
    points, peaks, streams = [], [], []
    for group in ("kernel", "gemm", "conv"):
        for case in t.groups[group]:
            for engine in TITLES:
                r = t.row(case, engine)
                if r["status"] != "ok" or not r["bytes"]:
                    continue
                point = (r["flops"] / r["bytes"], r["gflops_fastest"])
                ours = engine == OURS
                points.append(Point(case, *point, 0 if ours else 1, ours and group == "kernel"))
                if r.get("peak_gflops"):
                    peaks.append(r["peak_gflops"])
                    streams.append(r["stream_gbps"])
    if not points or not peaks:
        return None
    best: dict[tuple[str, int], Point] = {}
    for p in points:
        if (p.label, p.series) not in best or p.gflops > best[p.label, p.series].gflops:
            best[p.label, p.series] = p
    title = f"Kernels under the machine's limits, {threads}"
    series = ("Tilewright", "the best other engine")
    return roofline(title, max(peaks), max(streams), series, list(best.values()))
