"""Page: CUDA kernels and models, and kernels in elastic form.

Input: the records of the benchmarks in cuda/, of foreign the summary.  Output: the page, SVG bars.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import geometric_mean

from benchmarks.records import Record, Records, rows, values
from benchmarks.report.charts import bars
from benchmarks.report.page import Answer, Page, Section, over
from benchmarks.report.tables import Columns, listed, mean, paragraphs, told

NVIDIA: Columns = {
    "kernel": "case", "Tilewright, ms": "ms:.4g", "TFLOP/s": "tflops:.1f",
    "cuBLAS, ms": "cublas_ms:.4g", "speed over cuBLAS": "share_of_cublas:.3f",
    "spread": "spread:.1%", "runs": "n",
}  # fmt: skip
MODELS: Columns = {
    "model": "model", "kernels": "kernels", "Tilewright, ms": "ours_ms:.3g",
    "PyTorch eager, ms": "eager_ms:.3g", "as a CUDA graph, ms": "graph_ms:.3g",
    "speed over eager": "over_eager:.2f×",
    "speed over the graph": "over_graph:.2f×", "spread of ours": "ours_spread:.1%", "runs": "n",
}  # fmt: skip
ALONE: Columns = {"kernel": "case", "time over plain": "ratio:.3f",
         "spread": "spread:.1%", "runs": "n"}  # fmt: skip
ROOM: Columns = {
    "kernel that makes room": "case", "blocks that need it": "blocks",
    "idle: p50, µs": "idle_us.p50", "idle: p99, µs": "idle_us.p99",
    "busy: p50, µs": "busy_us.p50", "busy: p99, µs": "busy_us.p99",
    "difference: p50, µs": "more_us.p50", "difference: p99, µs": "more_us.p99",
    "requests": "n",
}  # fmt: skip
FOREIGN: Columns = {
    "kernel": "kernel", "same bits": lambda r: "yes" if r["equal"] else "no",
    "evictions": "evictions", "tiles of a task": "each", "a task, µs": "task_us",
    "plain, ms": "plain_ms", "elastic, ms": "elastic_ms", "time over plain": "ratio",
}  # fmt: skip
PADDED: Columns = {"kernel": "kernel", "as it is, ms": "elastic_ms", "padded, ms": "padded_ms",
          "time padded over as it is": "ratio"}  # fmt: skip


def models(record: Record) -> str:
    means = (mean(values(record, key)) for key in ("over_eager", "over_graph"))
    return listed(record["rows"], MODELS, ["geometric mean", *4 * [""], *means, "", ""])


def elastic(record: Record) -> str:
    """The second form alone, then how soon it makes room: the preemption latency."""
    said = (
        "Microseconds from the write of the budget to the end of a probe that needs room, on an "
        "idle GPU, beside a kernel that fills it, and what that is more:"
    )
    alone = listed(rows(record, what="alone"), ALONE)
    return paragraphs(alone, said, listed(rows(record, what="room"), ROOM))


def latencies(record: Record) -> Iterator[tuple[str, str]]:
    """How much longer a probe takes where a kernel must make room: p99, in microseconds."""
    bar = [
        (f"{r['case']}, {r['blocks']} blocks", r["more_us"]["p99"], 0.0)
        for r in rows(record, what="room")
    ]
    yield "cuda.elastic.room.svg", bars("Microseconds until there is room, p99", bar, "")


def foreign(record: Record) -> str:
    middle = geometric_mean(values(record, "ratio", what="forms"))
    last = ["geometric mean", *6 * [""], f"{middle:.3g}"]
    return paragraphs(
        listed(rows(record, what="forms"), FOREIGN, last),
        "Kernels whose shared arrays `--pad-shared` makes longer, both in elastic form:",
        listed(rows(record, what="padding"), PADDED),
    )


def sources(record: Record) -> str:
    found = record["summary"]
    return (
        f"Of {found['kernels']} kernels, {found['elastic']} take the elastic form and "
        f"{found['refused']} are refused with the reason. NVIDIA's compiler takes "
        f"{found['compile_before']} as they are and {found['compile_after']} in elastic form. "
        f"{found['run']} ran on the CPU in both forms, {found['equal']} of them with equal bits."
    )


def verdict(records: Records) -> str:
    record = records["cuda.pytorch"]
    eager, graph = (geometric_mean(values(record, k)) for k in ("over_eager", "over_graph"))
    products = records["cuda.kernels"]["rows"]
    shares = {r["case"]: told(r["share_of_cublas"], ".0%") for r in products}
    return (
        f"At batch 1 in f32, models run {eager:.2f} times as fast as in eager PyTorch and "
        f"{graph:.2f} times as fast as in PyTorch as a CUDA graph (mean of {len(record['rows'])} "
        f"models). A product of 4096³ reaches {shares['GEMM 4096']} of cuBLAS's speed in f32 and "
        f"{shares['GEMM 4096, TF32']} in TF32."
    )


def answers(records: Records) -> list[Answer]:
    networks, products, ours, theirs = (
        records[f"cuda.{name}"] for name in ("pytorch", "kernels", "elastic", "foreign_gpu")
    )
    floats = [r["share_of_cublas"] for r in products["rows"] if "," not in r["case"]]
    form = "in elastic form: time over plain"
    return [
        over("models over eager PyTorch", values(networks, "over_eager"), networks),
        over("models over PyTorch as a CUDA graph", values(networks, "over_graph"), networks),
        over("f32 products: speed over cuBLAS", floats, products, ".2f"),
        over(f"our kernels {form}", values(ours, "ratio", what="alone"), ours),
        over(f"other people's kernels {form}", values(theirs, "ratio", what="forms"), theirs),
    ]


PAGE = Page("cuda", "CUDA on a real GPU", verdict, answers, (
    Section("cuda.pytorch", "Models beside PyTorch",
            "Batch 1, f32 without TF32, random weights, outputs compared. From submission to the "
            "answer's end; inputs and outputs are on the GPU. Ours is one CUDA graph.", models),
    Section("cuda.kernels", "CUDA kernels",
            "One kernel repeated in a CUDA graph, cuBLAS's by turns with it, by the GPU's own "
            "clock. For bytes cuBLAS gets the layout in which it is fastest.", NVIDIA),
    Section("cuda.elastic", "Elastic kernels",
            "The elastic form's time over the plain form's where nobody asks for room (1: no cost) "
            "and how soon there is room.",
            elastic, latencies),
    Section("cuda.foreign_gpu", "Foreign CUDA kernels in elastic form",
            "Kernels of the usual kinds, sizes that fill the GPU. Evictions: how often a launch "
            "had to be repeated since workers had been sent away. A worker leaves between tasks. "
            "Below 1 the elastic form is faster: there a worker computes neighbouring blocks in a "
            "row; what that saves was not examined.",
            foreign),
    Section("cuda.foreign", "Which foreign kernels take elastic form",
            "PolyBench-ACC, Rodinia and a part of NVIDIA's CUDA samples; no GPU, nothing timed.",
            sources),
))  # fmt: skip
