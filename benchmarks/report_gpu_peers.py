"""Tilewright beside other engines on a GPU, and what a run and a session cost there.

Input: the records of results/gpu_peers.json, gpu_js_time.json and gpu_tuning.json.  Output:
Markdown for results/README.md, SVG bars.  Ratios above 1 mean that Tilewright is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from charts import figure, grouped, table
from report_peers import mean

from benchmarks.peers.engines import CUBLAS, ON_GPU, ON_GPUS

Record = dict[str, Any]
Row = dict[str, Any]

OURS, CAPTURED = "tilewright", "ort-captured"
#: Engines as tables know them: onnxruntime-web is its faster form.
PEERS = {"ort": ("ort", CAPTURED), "jax": ("jax",), "tfjs": ("tfjs",)}
TITLES = {name: ON_GPU[name].title for name in (OURS, *PEERS)}
#: What is timed as many runs in a row alone.
PRODUCTS = ("kernel", "gemm", "bits4", "attention")


class Cases:
    """The rows by case and engine; `key`: which time counts."""

    def __init__(self, record: Record, groups: Sequence[str], key: str) -> None:
        self.key, self.record = key, record
        self.found = {(r["case"], r["engine"]): r for r in record["rows"]}
        self.names = list(dict.fromkeys(r["case"] for r in record["rows"] if r["group"] in groups))

    def row(self, case: str, engine: str) -> Row | None:
        """The faster form's; None if none ran."""
        rows = [self.found.get((case, form)) for form in PEERS.get(engine, (engine,))]
        ran = [r for r in rows if r and r["status"] == "ok" and self.key in r]
        return min(ran, key=lambda r: float(r[self.key])) if ran else None

    def ratio(self, case: str, engine: str) -> float | None:
        """Their time over ours, if both ran in the same run."""
        ours, theirs = self.row(case, OURS), self.row(case, engine)
        if ours is None or theirs is None or ours["run"] != theirs["run"]:
            return None
        return float(theirs[self.key]) / float(ours[self.key])

    def speed(self, case: str, engine: str) -> float | None:
        """TFLOP/s, from call to outputs."""
        row = self.row(case, engine)
        return row["gflops"] / 1e3 if row and "gflops" in row else None


def peers(record: Record) -> str:
    """Products and models; then why engines are missing."""
    parts = [_products(record)]
    for key, words in (("median_ms", "from call to outputs"), ("stream_median_ms", "in a row")):
        parts.append(_models(Cases(record, ("model",), key), words))
    return "\n\n".join([*parts, _missing(record)])


def _products(record: Record) -> str:
    cases = Cases(record, PRODUCTS, "median_ms")
    titles, peers = dict(TITLES), list(PEERS)
    if any(r["engine"] == CUBLAS.name for r in record["rows"]):
        titles[CUBLAS.name] = CUBLAS.title
        peers.append(CUBLAS.name)
    head = ["product: TFLOP/s", *titles.values(), "µs", *(f"over {titles[e]}" for e in peers)]
    rows = []
    for case in cases.names:
        ours = cases.row(case, OURS)
        speeds = [_or_dash(cases.speed(case, e), "") for e in titles]
        took = "–" if ours is None else f"{ours['median_ms'] * 1e3:,.1f}"
        rows.append([case, *speeds, took, *(_or_dash(cases.ratio(case, e), "×") for e in peers)])
    return table(head, rows)


def _models(cases: Cases, words: str) -> str:
    """A line per model, and the geometric means."""
    head = [f"model: ms {words}", *TITLES.values(), *(f"over {TITLES[e]}" for e in PEERS)]
    rows = []
    for case in cases.names:
        found = [cases.row(case, e) for e in TITLES]
        times = ["–" if r is None else figure(float(r[cases.key])) for r in found]
        rows.append([case, *times, *(_or_dash(cases.ratio(case, e), "×") for e in PEERS)])
    means = [mean([cases.ratio(c, e) for c in cases.names]) for e in PEERS]
    return table(head, [*rows, ["geometric mean (cases)", *[""] * len(TITLES), *means]])


def _or_dash(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{value:.2f}{unit}"


def _missing(record: Record) -> str:
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for r in record["rows"]:
        if r["status"] != "ok":
            why = r["why"].replace(r["case"], "…").replace("|", "\\|")
            title = ON_GPUS[r["engine"]].title
            reasons.setdefault((title, r["status"], why), []).append(r["case"])
    if not reasons:
        return "Everything ran."
    rows = [[*key, ", ".join(cases)] for key, cases in reasons.items()]
    return table(["engine", "status", "reason", "cases"], rows)


def js_time(record: Record) -> str:
    """Milliseconds of JavaScript in a run; a browser's calls go to another process."""
    head = ["model", "width of layers", "in", "processor", "adapter", "dispatches", "ms in all"]
    head += ["lowest decile", "to the last submission", "after the answer", "in the page's thread"]
    head += ["of it finish and submit", "without those", "n", "spread"]
    keys = ("whole_ms", "quiet_ms", "before_ms", "after_ms", "page_ms", "dawn_ms")
    rows = [
        [r["model"], str(r["width"]), r.get("host", "node"), r["cpu"],
         r.get("adapter", record["adapter"]["device"]), str(r["dispatches"]),
         *(f"{r[k]:.3f}" if k in r else "–" for k in (*keys, "without_dawn_ms")), str(r["n"]),
         f"{r['spread'] * 100:.1f} %"]
        for r in record["rows"]
    ]  # fmt: skip
    return table(head, rows)


def tuning(record: Record) -> str:
    """One session per line, from good defaults."""
    head = ["model", "class", "kernels", "candidates", "most of a kernel", "swaps"]
    head += ["last swap, s", "session, s", "ms as built", "ms tuned", "gain by the GPU's clock"]
    counts = ("kernels", "candidates", "most_of_a_kernel", "swaps")
    rows = [
        [r["model"], r["device"], *(str(r[k]) for k in counts), f"{r['last_swap_s']:.1f}",
         f"{r['seconds']:.1f}", f"{r['built_ms']:.3f}", f"{r['tuned_ms']:.3f}", f"{r['gain']:.3f}×"]
        for r in record["rows"]
    ]  # fmt: skip
    return table(head, rows)


def charts(record: Record) -> Iterator[tuple[str, str]]:
    """Bars of products and of models, TFLOP/s."""
    for name, groups, key in (
        ("kernel", PRODUCTS, "median_ms"),
        ("model", ("model",), "median_ms"),
    ):
        cases = Cases(record, groups, key)
        rows = [(case, [cases.speed(case, e) for e in TITLES]) for case in cases.names]
        if any(v is not None for _, values in rows for v in values):
            title = f"WebGPU, {name}s, TFLOP/s, median (longer is faster)"
            yield f"gpu-peers-{name}.svg", grouped(title, list(TITLES.values()), rows)


TABLES: dict[str, Callable[[Record], str]] = {
    "gpu_peers": peers,
    "gpu_js_time": js_time,
    "gpu_tuning": tuning,
}
ABOUT = {
    "gpu_peers": (
        "Other engines on a real GPU",
        "Each in a Node process with Dawn, by turns. Products are many runs in a row whose outputs "
        "stay on the GPU; onnxruntime-web is the faster of plain and captured. jax-js gave "
        "33 TFLOP/s at 4096³ in f32 in an earlier measurement; why it is slower here is not known.",
    ),
    "gpu_js_time": (
        "JavaScript in a run on WebGPU",
        "For one inference of a 12-layer encoder, the GPU's time aside: in Chromium in the page's "
        "and the worker's thread with their messages, in Node the engine's code in one thread. "
        "With narrow layers the output is that of the whole model, 384×768 f32.",
    ),
    "gpu_tuning": (
        "Tuning a whole encoder on a real GPU",
        "The page's tuner, from the compiler's defaults, through Dawn in Node.",
    ),
}
