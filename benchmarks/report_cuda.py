"""Tables of CUDA on a real GPU: kernels beside cuBLAS, models beside PyTorch, foreign kernels.

Input: records of results/nvidia.json, nvidia_models.json, foreign_gpu.json.  Output: Markdown.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import geometric_mean
from typing import Any

from charts import cell, table

Record = dict[str, Any]


def nvidia(record: Record) -> str:
    head = ["kernel", "ms", "TFLOP/s", "cuBLAS, ms", "share of cuBLAS's speed", "spread", "n"]
    rows = [
        [
            r["case"], f"{r['ms']:.4g}", f"{r['tflops']:.1f}", cell(r.get("cublas_ms")),
            cell(r.get("share_of_cublas")), f"{100 * r['spread']:.1f} %", str(r["n"]),
        ]
        for r in record["rows"]
    ]  # fmt: skip
    return table(head, rows)


def models(record: Record) -> str:
    head = ["model", "kernels", "Tilewright, ms", "PyTorch eager, ms", "as a CUDA graph, ms"]
    head += ["over eager", "over the graph", "n"]
    rows = [
        [
            r["model"], str(r["kernels"]),
            *(f"{r[key]:.3g}" for key in ("ours_ms", "eager_ms", "graph_ms")),
            *(f"{r[key]:.2f}×" for key in ("over_eager", "over_graph")), str(r["n"]),
        ]
        for r in record["rows"]
    ]  # fmt: skip
    middle = [
        geometric_mean([r[key] for r in record["rows"]]) for key in ("over_eager", "over_graph")
    ]
    rows.append(["geometric mean", *4 * [""], *(f"{m:.2f}×" for m in middle), ""])
    return table(head, rows)


def foreign(record: Record) -> str:
    forms = [r for r in record["rows"] if r["what"] == "forms"]
    padding = [r for r in record["rows"] if r["what"] == "padding"]
    head = ["kernel", "same bits", "runs", "evictions", "tiles of a task", "a task, µs"]
    head += ["plain, ms", "elastic, ms", "elastic over plain"]
    made = [
        [
            r["kernel"], "yes" if r["equal"] else "no", str(r["runs"]), str(r["evictions"]),
            str(r["each"]), *(cell(r.get(k)) for k in ("task_us", "plain_ms", "elastic_ms")),
            cell(r.get("ratio")),
        ]
        for r in forms
    ]  # fmt: skip
    middle = geometric_mean([r["ratio"] for r in forms if "ratio" in r])
    made.append(["geometric mean", *7 * [""], f"{middle:.3g}"])
    padded = [
        [r["kernel"], cell(r["elastic_ms"]), cell(r["padded_ms"]), cell(r["ratio"])]
        for r in padding
    ]
    return "\n\n".join(
        [
            table(head, made),
            "Kernels whose shared arrays `--pad-shared` makes longer, both in elastic form:",
            table(["kernel", "as it is, ms", "padded, ms", "padded over as it is"], padded),
        ]
    )


TABLES: dict[str, Callable[[Record], str]] = {
    "nvidia": nvidia, "nvidia_models": models, "foreign_gpu": foreign
}  # fmt: skip
#: Headings, and a sentence about what was measured.
ABOUT: dict[str, tuple[str, str]] = {
    "nvidia": (
        "CUDA kernels on a real GPU",
        "One kernel repeated in a CUDA graph, cuBLAS's by turns with it, by the GPU's own clock.",
    ),
    "nvidia_models": (
        "Models on a real GPU by CUDA",
        "Batch 1, f32 without TF32, random weights, outputs compared. From submission to the "
        "answer's end; inputs and outputs are on the GPU. Ours is one CUDA graph.",
    ),
    "foreign_gpu": (
        "Foreign CUDA kernels in elastic form",
        "Kernels of the usual kinds, sizes that fill the GPU. Evictions: how often a launch had to "
        "be repeated since workers had been sent away. A worker leaves between tasks.",
    ),
}
