"""Page: Tilewright beside other engines in a browser.

Input: the record of peers.browsers.  Output: the page, SVG bars and a roofline.
Ratios above 1 mean that Tilewright is faster.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence

from benchmarks.records import Record, Records, Stored
from benchmarks.report.charts import Point, grouped, roofline
from benchmarks.report.page import Answer, Page, Section, over
from benchmarks.report.tables import DASH, figure, mean, paragraphs, table, told

OURS, REFERENCE = "tilewright", "ort"
TITLES = {
    OURS: "Tilewright",
    REFERENCE: "onnxruntime-web",
    "litert": "LiteRT.js",
    "tfjs": "TF.js wasm",
    "jax": "jax-js",
}
PEERS = [engine for engine in TITLES if engine != OURS]
GROUPS = {
    "kernel": "kernels of nnJIT",
    "gemm": "matmul sweep",
    "conv": "convolution sweep",
    "model": "models",
}
#: Sweeps have too many cases for a page: only those in which another engine is faster are shown.
SWEEPS = ("gemm", "conv")


class Table:
    """The rows of one browser and thread count, by case and engine."""

    def __init__(self, rows: Iterable[Stored], browser: str, threads: int) -> None:
        self.browser, self.threads = browser, threads
        own = [r for r in rows if (r["browser"], r["threads"]) == (browser, threads)]
        self._found = {(r["case"], r["engine"]): r for r in own}
        self.groups = {
            group: list(dict.fromkeys(r["case"] for r in own if r["group"] == group))
            for group in GROUPS
        }

    @property
    def name(self) -> str:
        return f"{self.browser}, {self.threads} thread" + "s" * (self.threads > 1)

    def row(self, case: str, engine: str) -> Stored:
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

    def ratios(self, group: str, engine: str) -> list[float | None]:
        return [self.ratio(case, engine) for case in self.groups[group]]

    def quartiles(self, case: str, engine: str) -> str:
        """Of the ratios round by round."""
        pairs = zip(self.row(case, engine)["rounds"], self.row(case, OURS)["rounds"], strict=False)
        found = [theirs / ours for theirs, ours in pairs]
        if len(found) < 2:
            return ""
        low, _, high = statistics.quantiles(found, n=4)
        return f" ({low:.2f}–{high:.2f})"

    def best(self, case: str) -> float | None:
        """The ratio over the fastest peer."""
        found = [r for engine in PEERS if (r := self.ratio(case, engine)) is not None]
        return min(found, default=None)

    def bests(self, group: str) -> list[float]:
        return [r for case in self.groups[group] if (r := self.best(case)) is not None]


def tables(record: Record) -> Iterator[Table]:
    """Per browser and thread count, in a steady order."""
    keys = {(r["browser"], r["threads"]) for r in record["rows"] if r["threads"]}
    for browser, threads in sorted(keys):
        yield Table(record["rows"], browser, threads)


# ---- tables --------------------------------------------------------------------------------------


def summary(record: Record) -> str:
    """Geometric means of the ratios, per group."""
    head = ["speed-up over (cases)", "browser", "threads", *(TITLES[e] for e in PEERS)]
    rows = [
        [
            title, t.browser, str(t.threads), *(mean(t.ratios(group, e)) for e in PEERS),
            mean(found), f"{min(found):.2f}×",
        ]
        for t in tables(record)
        for group, title in GROUPS.items()
        if (found := t.bests(group))
    ]  # fmt: skip
    return table([*head, "the fastest of them", "smallest"], rows)


def details(record: Record) -> str:
    """Models and kernels, then what of the sweeps another engine does faster, then what failed."""
    found = list(tables(record))
    parts = [summary(record)]
    for t in found:
        if t.groups["model"]:
            models = [(case, t) for case in t.groups["model"]]
            parts += [f"Models, {t.name}, milliseconds of a run:", _times(models, True)]
    kernels = [(case, t) for t in found for case in t.groups["kernel"]]
    parts += ["Kernels of nnJIT, milliseconds of a run:", _times(kernels)]
    swept = [(case, t) for t in found for group in SWEEPS for case in t.groups[group]]
    if slower := [(case, t) for case, t in swept if (t.best(case) or 1) < 1]:
        said = "Products and convolutions of the sweeps that another engine computes faster:"
        parts += [said, _times(slower)]
    return paragraphs(*parts, "What did not run:", missing(record, TITLES))


def _times(cases: Sequence[tuple[str, Table]], models: bool = False) -> str:
    """Share of the peak: our driver's alone, in the fastest run of the same rounds."""
    other = TITLES[REFERENCE]
    head = ["case", "browser", "threads", *TITLES.values(), f"over {other} (quartiles)"]
    head += ["over the fastest", "share of the peak", "MB", f"MB of {other}", "load, ms"]
    head += [f"load of {other}, ms"]
    rows = []
    for case, t in cases:
        ours, theirs = t.row(case, OURS), t.row(case, REFERENCE)
        ratio = t.ratio(case, REFERENCE)
        apart = "" if ratio is None else t.quartiles(case, REFERENCE)
        sizes = [f(r) for f in (_megabytes, _load) for r in (ours, theirs)]
        rows.append([
            case, *(["", ""] if models else [t.browser, str(t.threads)]),
            *(DASH if (ms := t.time(case, e)) is None else figure(ms) for e in TITLES),
            told(ratio, ".2f×") + apart, told(t.best(case), ".2f×"), _share(ours),
            *(sizes if models else [""] * len(sizes)),
        ])  # fmt: skip
    return table(head, rows)


def _share(row: Stored) -> str:
    inside, peak = row.get("inside_ms"), row.get("peak_gflops")
    if row["status"] != "ok" or not inside or not peak:
        return DASH
    return told(row["flops"] / inside / 1e6 / peak, ".0%")


def _megabytes(row: Stored) -> str:
    """Of Wasm memories and JavaScript heaps; Firefox does not report the latter."""
    size = row.get("wasm_bytes")
    return DASH if size is None else figure((size + (row.get("js_bytes") or 0)) / 1e6)


def _load(row: Stored) -> str:
    """The first one, with an empty cache."""
    return DASH if row.get("load_cold_ms") is None else figure(row["load_cold_ms"])


def missing(record: Record, titles: dict[str, str]) -> str:
    """Reasons, with the cases that they hold for."""
    reasons: dict[tuple[str, str, str], dict[str, None]] = {}
    for row in record["rows"]:
        if row["status"] != "ok":
            why = row["why"].replace(row["case"], "…").replace("|", "\\|")
            engine = titles.get(row["engine"], "all engines")
            reasons.setdefault((engine, row["status"], why), {})[row["case"]] = None
    if not reasons:
        return "Everything ran."
    rows = [[*key, ", ".join(cases)] for key, cases in reasons.items()]
    return table(["engine", "status", "reason", "cases"], rows)


# ---- charts --------------------------------------------------------------------------------------


def charts(record: Record) -> Iterator[tuple[str, str]]:
    """Bars of kernels and models per thread count, and a roofline, for Chromium."""
    for t in tables(record):
        if t.browser != "chromium":
            continue
        threads = t.name.partition(", ")[2]
        for group, title in (("kernel", "Kernels"), ("model", "Models")):
            rows = [(c, [_speed(t.row(c, e)) for e in TITLES]) for c in t.groups[group]]
            rows = [row for row in rows if any(v is not None for v in row[1])]
            if rows:
                heading = f"{title}, GFLOP/s, median, {threads} (longer is faster)"
                picture = grouped(heading, list(TITLES.values()), rows)
                yield f"peers.browsers.{group}-{t.threads}.svg", picture
        if picture := _roofline(t, threads):
            yield f"peers.browsers.roofline-{t.threads}.svg", picture


def _speed(row: Stored) -> float | None:
    return float(row["gflops"]) if row["status"] == "ok" and row.get("gflops") else None


def _roofline(t: Table, threads: str) -> str:
    """Every kernel of Tilewright and the fastest peer, under the highest measured limits."""
    best: dict[tuple[str, int], Point] = {}
    peaks, streams = [], []
    cases = ((g, case) for g in ("kernel", *SWEEPS) for case in t.groups[g])
    for group, case, engine in ((g, c, e) for g, c in cases for e in TITLES):
        row = t.row(case, engine)
        if row["status"] != "ok" or not row["bytes"]:
            continue
        ours = engine == OURS
        intensity, speed = row["flops"] / row["bytes"], row["gflops_fastest"]
        point = Point(case, intensity, speed, 0 if ours else 1, ours and group == "kernel")
        known = best.setdefault((case, point.series), point)
        if point.gflops > known.gflops:
            best[case, point.series] = point
        if row.get("peak_gflops"):
            peaks.append(row["peak_gflops"])
            streams.append(row["stream_gbps"])
    if not peaks:
        return ""
    title = f"Kernels under the machine's limits, {threads}"
    series = ("Tilewright", "the best other engine")
    return roofline(title, max(peaks), max(streams), series, list(best.values()))


# ---- the page ------------------------------------------------------------------------------------


def verdict(records: Records) -> str:
    t = Table(records["peers.browsers"]["rows"], "chromium", 1)
    ort = statistics.geometric_mean(r for r in t.ratios("model", REFERENCE) if r)
    best, swept = t.bests("model"), [r for group in SWEEPS for r in t.bests(group)]
    return (
        f"On one thread of Chromium, models run {ort:.2f} times as fast as in onnxruntime-web and "
        f"{statistics.geometric_mean(best):.2f} times as fast as in the fastest other engine, at "
        f"least {min(best):.2f} times (mean of {len(best)} models); of {len(swept)} products and "
        f"convolutions, {sum(ratio < 1 for ratio in swept)} are slower than elsewhere."
    )


def answers(records: Records) -> list[Answer]:
    record = records["peers.browsers"]
    alone, two = (Table(record["rows"], "chromium", threads) for threads in (1, 2))
    ort, fastest = f"over {TITLES[REFERENCE]}", "over the fastest other engine"
    return [
        over(f"models, 1 thread, {ort}", alone.ratios("model", REFERENCE), record),
        over(f"models, 2 threads, {ort}", two.ratios("model", REFERENCE), record),
        over(f"models, 1 thread, {fastest}", alone.bests("model"), record),
        over(f"matrix products, 1 thread, {fastest}", alone.bests("gemm"), record),
        over(f"convolutions, 1 thread, {fastest}", alone.bests("conv"), record),
    ]


PAGE = Page("engines", "Other engines in a browser", verdict, answers, (
    Section("peers.browsers", "Speed-up over other engines",
            "Engines run by turns in one browser; outputs are compared. A speed-up is the other "
            "engine's median time over ours in the same run. Means are geometric, with the number "
            "of cases in brackets. The mean over jax-js is of two image models, which take it "
            "seconds. The peak is of multiply-adds in f32, so a model in 8 bits may pass it.",
            details, charts),
))  # fmt: skip
