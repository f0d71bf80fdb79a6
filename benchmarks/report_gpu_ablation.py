"""What each feature of a GPU is worth, from the record of results/gpu_ablation.json.

Input: the record.  Output: Markdown for results/README.md, SVG bars.  Values are the time without a
feature over the time with all: 2.0 means that without it the best kernel takes twice as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from charts import grouped, table

Record = dict[str, Any]

FEATURES = ("f16", "packed dot", "subgroups", "subgroup matrices", "swizzle")

BANDS = (
    "All candidates by subgroup matrices walk in bands, so without swizzle their products lose the "
    "matrices, too. RoBERTa-base is compiled in f32, whose defaults need no feature."
)


def ablation(record: Record) -> str:
    """One line per kernel; an empty column: no kernel of the case needs the feature."""
    head = ["kernel", "candidates", "best, µs", "TFLOP/s", "over the default", "best uses"]
    rows = [
        [
            r["case"],
            str(r["candidates"]),
            f"{r['ms'] * 1e3:,.1f}",
            f"{r['tflops']:.2f}" if "tflops" in r else "–",
            f"{r['default_ms'] / r['ms']:.2f}×",
            ", ".join(r["uses"]) or "–",
            *(f"{w:.2f}×" if (w := without(r, f)) else "–" for f in FEATURES),
        ]
        for r in rows_of(record)
    ]
    return table([*head, *(f"without {f}" for f in FEATURES)], rows)


def rows_of(record: Record) -> list[dict[str, Any]]:
    """Those of the card that was measured last."""
    gpu = record["machine"].get("gpu")
    return [row for row in record["rows"] if row["gpu"] == gpu]


def without(row: dict[str, Any], feature: str) -> float | None:
    """The time without it over the best; None if no kernel of the case needs it."""
    ms: float | None = row["without"].get(feature)
    return ms / row["ms"] if ms else None


def details(record: Record) -> str:
    """What the columns do not say."""
    return BANDS


def charts(record: Record) -> Iterator[tuple[str, str]]:
    rows = [(r["case"], [without(r, f) for f in FEATURES]) for r in rows_of(record) if r["without"]]
    if rows:
        title = "Time without a feature over the time with all (1: no loss)"
        yield "gpu_ablation.svg", grouped(title, FEATURES, rows)


TABLES: dict[str, Callable[[Record], str]] = {"gpu_ablation": ablation}
ABOUT = {
    "gpu_ablation": (
        "Features of a GPU, each withheld",
        "All candidates of a kernel that the device runs, by turns, by the GPU's clock; without a "
        "feature the best is that of the candidates that do not need it.",
    ),
}
