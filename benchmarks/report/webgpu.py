"""Page: WebGPU kernels, a language model, and what each feature of a GPU is worth.

Input: the records of the benchmarks in gpu/.  Output:
the page, SVG bars.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.records import Record, Records, Stored, rows, values
from benchmarks.report.charts import grouped
from benchmarks.report.page import Answer, Page, Section, one, over
from benchmarks.report.tables import DASH, Columns, listed, paragraphs, shown, told

# ---- kernels -------------------------------------------------------------------------------------

KERNELS: Columns = {
    "kernel": "case", "shapes of the operands": lambda r: operands(r["shape"]),
    "time, µs": "ms*1000:,.1f", "TFLOP/s": "tflops:.2f",
    "weights read, GB/s": "gb_per_s:,.0f", "cuBLAS, TFLOP/s": "cublas_tflops:.2f",
    "speed over cuBLAS": "share_of_cublas:.3f", "runs": "n", "spread": "spread:.1%",
}  # fmt: skip
LLAMA: Columns = {
    "bits of a weight": "bits", "layers": "layers", "width": "width",
    "weights, GB": "weights_bytes*1e-9:.2f", "tokens of the prompt": "prompt",
    "time of the prompt, ms": "prompt_ms:.1f", "its TFLOP/s": "prompt_tflops:.1f",
    "tokens a second": "tokens_per_s:.0f", "a token, ms": "token_ms:.2f",
    "a token by the GPU's clock, ms": "token_clock_ms:.2f", "tokens": "n",
    "spread": "spread:.1%",
}  # fmt: skip
JS_TIME = {
    "width of layers": "width", "where it runs": "host", "processor": "cpu", "GPU": "adapter",
    "dispatches": "dispatches", "in all, ms": "whole_ms:.3f",
    "in all, lowest tenth, ms": "quiet_ms:.3f", "until the last submission, ms": "before_ms:.3f",
    "after the GPU's answer, ms": "after_ms:.3f", "in the page's thread, ms": "page_ms:.3f",
    "Dawn's finish and submit, ms": "dawn_ms:.3f",
    "in all without these, ms": "without_dawn_ms:.3f", "runs": "n", "spread": "spread:.1%",
}  # fmt: skip
TUNING: Columns = {
    "model": "model", "kernels": "kernels", "candidates": "candidates",
    "most candidates of a kernel": "most_of_a_kernel", "kernels replaced": "swaps",
    "last replaced after, s": "last_swap_s:.1f", "session, s": "seconds:.1f",
    "as built, ms": "built_ms:.3f", "tuned, ms": "tuned_ms:.3f",
    "times as fast by the GPU's clock": "gain:.3f×",
}  # fmt: skip


def operands(shape: Sequence[int]) -> str:
    """Rows have the sizes of both operands, one after the other."""
    half = len(shape) // 2
    return " by ".join("×".join(map(str, sizes)) for sizes in (shape[:half], shape[half:]))


def gpu(record: Record) -> str:
    """One line per product; then the adapter, and what its memory does for a WGSL kernel."""
    memory, versions = record["memory"], record["versions"]
    known = [record["machine"][key] for key in ("gpu", "driver") if key in record["machine"]]
    name = ", driver ".join(known) or record["adapter"]["description"]
    options = " ".join(record["options"]) or "none: as in a stock page"
    where = (
        f"{name}, webgpu {versions['webgpu']}, options of Dawn: {options}. A WGSL "
        f"kernel that copies {memory['bytes'] / 2**20:,.0f} MiB moves "
        f"{memory['copy']['gb_per_s']:,.0f} GB/s (read and written), one that only reads "
        f"{memory['read']['gb_per_s']:,.0f}."
    )
    return paragraphs(listed(record["rows"], KERNELS), where)


# ---- features, each withheld ---------------------------------------------------------------------

FEATURES = ("f16", "packed dot", "subgroups", "subgroup matrices", "swizzle")
#: How rows name features that a number is without on both sides.
STAR = "\\*"
REPEATED = (
    "Every run of a kernel reads the same operands, so that weights which fit into the GPU's L2 "
    "cache may stay in it. In the first table the GEMVs read other weights in each run. So a GEMV "
    "takes longer there: compare times within a table."
)
BANDS = (
    "What walks in bands (swizzle) is timed beside a twin that differs in nothing else. Whole "
    "models keep their bands."
)
STARRED = (
    f"{STAR} Other features need this one; they are withheld from both sides, so that the number "
    "is of this one alone."
)


def without(row: Stored, feature: str) -> float | None:
    """The time without it over the best with it; None if it has none of its own.  Where another
    feature needs it, both times are without that one, too."""
    ms: float | None = row["without"].get(feature)
    return ms / row.get("base", {}).get(feature, row["ms"]) if ms else None


def withheld(row: Stored) -> str:
    """Each feature that has a time without it, and that time."""
    known = [(feature, without(row, feature)) for feature in FEATURES]
    stars = row.get("along", ())
    return ", ".join(
        f"{feature} {told(ratio, '.2f×')}{STAR if feature in stars else ''}"
        for feature, ratio in known if ratio is not None
    ) or DASH  # fmt: skip


ABLATION: Columns = {
    "kernel": "case", "best, µs": "ms*1000:,.1f", "TFLOP/s": "tflops:.2f",
    "speed over the default": lambda r: told(r["default_ms"] / r["ms"], ".2f×"),
    "best uses": lambda r: ", ".join(r["uses"]) or DASH,
    "time without": withheld,
}  # fmt: skip


def ablation(record: Record) -> str:
    """A value is the time without a feature over the time with it: 2.0 means that without it the
    best kernel takes twice as long.  A dash: nothing needs it, or it cannot be withheld alone."""
    found = measured(record)
    notes = [REPEATED, BANDS]
    if any(row.get("along") for row in found):
        notes.append(STARRED)
    if whys := [why for row in found if (why := inseparable(row))]:
        notes.append(f"Not to be withheld alone, and so without a number: {'; '.join(whys)}.")
    return paragraphs(listed(found, ABLATION), *notes)


def measured(record: Record) -> list[Stored]:
    """The rows of the card that was measured last."""
    return rows(record, gpu=record["machine"].get("gpu"))


def inseparable(row: Stored) -> str:
    """The features of a row that no time is of, with what goes with them."""
    told_ = ", ".join(
        f"{feature} (without it there are no tiles, but a plain loop)"
        if others == ["tiles"]
        else f"{feature} (only kernels by {' or '.join(others)} use it)"
        for feature, others in row.get("inseparable", {}).items()
    )
    return f"{row['case']}: {told_}" if told_ else ""


def charts(record: Record) -> Iterator[tuple[str, str]]:
    found = [r for r in measured(record) if r["without"]]
    if found:
        title = "Time without a feature over the time with it (1: no loss)"
        lines = [(r["case"], [without(r, f) for f in FEATURES]) for r in found]
        yield "gpu.ablation.svg", grouped(title, FEATURES, lines)


# ---- the page ------------------------------------------------------------------------------------


SQUARE, HALVES = "GEMM 4096", "GEMM 4096, 16 bits, halves by matrices"
BITS = "GEMV 11008x4096, 4 bits, rows in bytes"


def verdict(records: Records) -> str:
    square, halves = (
        values(records["gpu.kernels"], "share_of_cublas", case=n)[0] for n in (SQUARE, HALVES)
    )
    model = records["gpu.llama"]["rows"][0]
    return (
        f"From WebGPU, a product of 4096³ reaches {told(square, '.0%')} of cuBLAS's speed in f32 "
        f"and {told(halves, '.0%')} in 16 bits; the architecture of Llama 2 7B gives "
        f"{model['tokens_per_s']:.0f} tokens a second with {model['bits']}-bit weights."
    )


def answers(records: Records) -> list[Answer]:
    record, model = records["gpu.kernels"], records["gpu.llama"]["rows"][0]
    floats = [
        r["share_of_cublas"]
        for r in record["rows"]
        if "share_of_cublas" in r and "bit" not in r["case"] and "bytes" not in r["case"]
    ]
    (halves,), (bits,) = (rows(record, case=name) for name in (HALVES, BITS))
    return [
        over("f32 products: speed over cuBLAS", floats, record, ".2f"),
        one("4096³ in 16 bits: speed over cuBLAS", shown(halves, "share_of_cublas:.2f"),
            halves["n"], halves["spread"], record),
        one("one row, 4-bit weights: GB/s of weights", shown(bits, "gb_per_s:,.0f"), bits["n"],
            bits["spread"], record),
        one(f"Llama 2 7B, {model['bits']} bits: tokens a second", shown(model, "tokens_per_s:.0f"),
            model["n"], model["spread"], records["gpu.llama"]),
    ]  # fmt: skip


PAGE = Page("webgpu", "WebGPU on a real GPU", verdict, answers, (
    Section("gpu.kernels", "WebGPU kernels",
            "A speed over cuBLAS above 1 means that ours is faster. Dawn in Node runs plans that "
            "repeat one kernel, GEMVs with 3 to 8 weights by turns; cuBLAS runs in between, in f32 "
            "without TF32, in f16 where ours multiplies halves.", gpu),
    Section("gpu.llama", "A language model",
            "Llama 2 7B's architecture with random weights, through Dawn in Node by the engine's "
            "own loop; each token is chosen on the GPU, and the next step takes it from there "
            "before it comes back.", LLAMA),
    Section("gpu.ablation", "Features of a GPU, each withheld",
            "A time of 2.00× without a feature means that the best candidate without it takes "
            "twice as long as the best with it; a dash, that nothing uses it. All candidates of a "
            "kernel that the device runs are timed by turns, by the GPU's clock. Whole models are "
            "loaded without the feature.", ablation, charts),
    Section("gpu.js_time", "JavaScript in a run",
            "For one inference of RoBERTa-base (12 layers), the GPU's time aside: in Chromium in "
            "the page's and the worker's thread with their messages, in Node the engine's code in "
            "one thread. With narrow layers the output is that of the whole model, 384×768 f32.",
            JS_TIME),
    Section("gpu.encoder_tuning", "Tuning a whole encoder",
            "The page's tuner, from the compiler's defaults, through Dawn in Node.", TUNING),
))  # fmt: skip
