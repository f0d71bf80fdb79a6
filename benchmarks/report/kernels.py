"""Page: kernels against the peak of the processor, and threads.

Input: the records of wasm/: kernels, gemm, near_peak and threads.  Output: the page, SVG bars.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import geometric_mean

from benchmarks.records import Record, Records, by, values
from benchmarks.report.charts import bars
from benchmarks.report.page import Answer, Page, Section, over
from benchmarks.report.tables import Columns, listed, table, told

LARGE, SMALL = ("K0", "K1"), ("K2", "K3")
MODELS = ("roberta-base", "mobilenet_v2")
KERNELS: Columns = {
    "kernel": "kernel", "sizes": lambda r: r["shape"].removeprefix("1x").replace("x", "×"),
    "browser": "host",
    "fastest run, GFLOP/s": "gflops:.1f", "peak, GFLOP/s": "peak_gflops:.1f",
    "share of the peak, fastest run": "share_of_peak:.0%",
    "share of the peak, median of undisturbed rounds": "share_of_peak_quiet:.0%",
    "undisturbed rounds": "n_quiet", "spread": "spread:.1%", "first call, ms": "first_ms:.0f",
}  # fmt: skip
NEAR: Columns = {"kernel": "kernel", "host": "host", "CPU": "cpu", "schedule": "label",
        "share of the peak, undisturbed rounds": "share:.1%", "spread": "spread:.1%",
        "rounds": "n", "share of the peak, fastest run": "share_fastest:.1%"}  # fmt: skip
THREADS: Columns = {
    "subject": "subject", "browser": "host", "one thread, ms": "alone:.3g",
    "two threads, ms": "median_ms:.3g", "speed-up": "speedup_median:.2f×",
    "speed-up, fastest runs": "speedup:.2f×", "spread": "spread:.1%",
    "a step, µs": "step_us:.3g", "runs": "n",
}  # fmt: skip


def charts(record: Record) -> Iterator[tuple[str, str]]:
    rows = [(f"{r['kernel']} {r['host']}", r["gflops"], r["peak_gflops"]) for r in record["rows"]]
    yield "wasm.kernels.svg", bars("GFLOP/s on one thread; light: multiply-add peak", rows, "")


#: Groups of products of wasm.gemm, as the page names them.
PRODUCTS = {
    "kernel": "K0 to K3", "square": "squares, 16 to 1024", "rows": "1 to 8 rows by 768×768",
    "gemv": "one row or column", "tall": "tall, wide or deep", "narrow": "1 to 10 columns",
    "odd": "sizes that are multiples of nothing", "shallow": "depth of 1 to 8",
    "bits": "4-bit weights 4096×4096, and f32", "transposed": "transposed operands",
    "chain": "100 small products in a row",
}  # fmt: skip


def products(record: Record) -> str:
    """A line per group: the mean and the least share of the peak in each browser."""
    hosts = sorted({r["host"] for r in record["rows"]})
    head = ["products", "cases", *(f"{h}: {what}" for h in hosts for what in ("mean", "least"))]
    lines = []
    for (group,), found in by(record["rows"], "group").items():
        shares = [values({"rows": found}, "share_of_peak", host=host) for host in hosts]
        cells = [told(f(of), ".0%") for of in shares for f in (geometric_mean, min)]
        lines.append([PRODUCTS[group], str(len(shares[0])), *cells])
    return table(head, lines)


def near_peak(record: Record) -> str:
    """Of each kernel and host the default, and the schedule that came nearest."""
    rows = []
    for found in by(record["rows"], "kernel", "host", "cpu").values():
        best = max(found, key=lambda r: float(r["share_fastest"]))
        rows += [r for r in found if r["label"] == "default" and r is not best]
        rows.append({**best, "label": f"{best['label']}: best of {len(found)}"})
    return listed(rows, NEAR)


def threads(record: Record) -> str:
    """A line per subject and browser: two threads, beside the time with one."""
    pairs = by(sorted(record["rows"], key=lambda r: int(r["threads"])), "subject", "host")
    rows = [{**more, "alone": alone["median_ms"]} for alone, more in pairs.values()]
    return listed(rows, THREADS)


def _second(records: Records, *names: str) -> list[float]:
    return values(records["wasm.threads"], "speedup_median", threads=2, subject=names)


def _quiet(records: Records, *names: str) -> list[float]:
    return values(records["wasm.kernels"], "share_of_peak_quiet", kernel=names)


def verdict(records: Records) -> str:
    large, small = (told(min(_quiet(records, *names)), ".0%") for names in (LARGE, SMALL))
    models = _second(records, *MODELS)
    return (
        f"On one thread, large products run at {large} or more of what the processor can multiply "
        f"and add, small batched ones at {small} or more; a second thread makes models "
        f"{min(models):.2f} to {max(models):.2f} times as fast."
    )


def answers(records: Records) -> list[Answer]:
    alone, two = records["wasm.kernels"], records["wasm.threads"]
    share, second = "share of the peak", "speed-up by a second thread"
    return [
        over(f"large products (K0, K1): {share}", _quiet(records, *LARGE), alone, ".2f"),
        over(f"batched products (K2, K3): {share}", _quiet(records, *SMALL), alone, ".2f"),
        over(f"large products: {second}", _second(records, *LARGE), two),
        over(f"RoBERTa-base, MobileNetV2: {second}", _second(records, *MODELS), two),
    ]


PAGE = Page("kernels", "Kernels and threads on the processor", verdict, answers, (
    Section("wasm.kernels", "Kernels of nnJIT",
            "Products on one thread. The peak is that of a kernel that only multiplies and adds in "
            "registers, measured in the same round.", KERNELS, charts),
    Section("wasm.gemm", "Products of every aspect ratio",
            "Shares of the peak of the same run, fastest runs on one thread; means are geometric. "
            "Products of one row or column, of few rows and of little depth are bound by memory.",
            products),
    Section("wasm.near_peak", "K0 and K1 against the peak",
            "Several schedules and the multiply-add peak by turns on one thread: medians of rounds "
            "in which the peak before and after was undisturbed, and the fastest runs of all.",
            near_peak),
    Section("wasm.threads", "Threads",
            "The same work with one thread and with two; a speed-up of 2 is the most. Empty steps "
            "have no work, so they show what a step of the plan costs.", threads),
))  # fmt: skip
