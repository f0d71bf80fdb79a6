"""What each feature of a GPU is worth, from the record of results/gpu_ablation.json.

Input: the record.  Output: Markdown for results/README.md, SVG bars.  Values are the time without a
feature over the time with it: 2.0 means that without it the best kernel takes twice as long.  Where
another feature needs it, both times are without that one, too, and the value has a star.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from charts import grouped, table

Record = dict[str, Any]

FEATURES = ("f16", "packed dot", "subgroups", "subgroup matrices", "swizzle")

#: How rows name features that a number is without on both sides.
STAR = "\\*"
BANDS = (
    "What walks in bands (swizzle) is timed beside a twin that differs in nothing else. Whole "
    "models keep their bands."
)
STARRED = (
    f"{STAR} Other features need this one; they are withheld from both sides, so that the number "
    "is of this one alone."
)


def ablation(record: Record) -> str:
    """One line per kernel; empty: no kernel of the case needs the feature, or it cannot be
    withheld alone (`details`)."""
    head = ["kernel", "candidates", "best, µs", "TFLOP/s", "over the default", "best uses"]
    rows = [
        [
            r["case"],
            str(r["candidates"]),
            f"{r['ms'] * 1e3:,.1f}",
            f"{r['tflops']:.2f}" if "tflops" in r else "–",
            f"{r['default_ms'] / r['ms']:.2f}×",
            ", ".join(r["uses"]) or "–",
            *(cell(r, f) for f in FEATURES),
        ]
        for r in rows_of(record)
    ]
    return table([*head, *(f"without {f}" for f in FEATURES)], rows)


def rows_of(record: Record) -> list[dict[str, Any]]:
    """Those of the card that was measured last."""
    gpu = record["machine"].get("gpu")
    return [row for row in record["rows"] if row["gpu"] == gpu]


def cell(row: dict[str, Any], feature: str) -> str:
    value = without(row, feature)
    star = STAR if feature in row.get("along", ()) else ""
    return f"{value:.2f}×{star}" if value else "–"


def without(row: dict[str, Any], feature: str) -> float | None:
    """The time without it over the best with it; None if it has none of its own."""
    ms: float | None = row["without"].get(feature)
    return ms / row.get("base", {}).get(feature, row["ms"]) if ms else None


def details(record: Record) -> str:
    """What the columns do not say."""
    rows = rows_of(record)
    told = [BANDS, STARRED] if any(row.get("along") for row in rows) else [BANDS]
    found = [why for row in rows if (why := inseparable(row))]
    if found:
        told.append(f"Not to be withheld alone, and so without a number: {'; '.join(found)}.")
    return "\n\n".join(told)


def inseparable(row: dict[str, Any]) -> str:
    """The features of a row that no time is of, with what goes with them."""
    reasons = (
        f"{feature} (without it there are no tiles, but a plain loop)"
        if others == ["tiles"]
        else f"{feature} (only kernels by {' or '.join(others)} use it)"
        for feature, others in row.get("inseparable", {}).items()
    )
    told = ", ".join(reasons)
    return f"{row['case']}: {told}" if told else ""


def charts(record: Record) -> Iterator[tuple[str, str]]:
    rows = [(r["case"], [without(r, f) for f in FEATURES]) for r in rows_of(record) if r["without"]]
    if rows:
        title = "Time without a feature over the time with it (1: no loss)"
        yield "gpu_ablation.svg", grouped(title, FEATURES, rows)


TABLES: dict[str, Callable[[Record], str]] = {"gpu_ablation": ablation}
ABOUT = {
    "gpu_ablation": (
        "Features of a GPU, each withheld",
        "All candidates of a kernel that the device runs, by turns, by the GPU's clock; without a "
        "feature the best is that of the candidates that do not need it. Whole models are loaded "
        "without it.",
    ),
}
