"""Tables of what the passes of the WebAssembly target bring.

Input: the records of results/passes.json and ablation.json.  Output: Markdown for
results/README.md.
"""

from __future__ import annotations

from typing import Any

from charts import table

Record = dict[str, Any]


def passes(record: Record) -> str:
    head = ["passes in use", "compile ms", "fastest ms", "speed-up", "median ms", "first call ms"]
    head += ["code bytes"]
    rows = [
        [
            r["passes"].replace("_", " "),
            f"{r['compile_ms']:.1f}",
            f"{r['kernel_ms']:.1f}",
            f"{r['speedup']:.2f}×",
            f"{r['median_ms']:.1f}",
            f"{r['first_ms']:.0f}",
            f"{r['code_bytes']:,}",
        ]
        for r in record["rows"]
    ]
    return table(head, rows)


def ablation(record: Record) -> str:
    """One line per host and set of passes."""
    head = ["host", "passes in use", "compile ms", "code stage ms", "code bytes", "fastest ms"]
    head += ["median ms", "GFLOP/s", "speed-up", "n"]
    rows = [
        [
            r["host"],
            r["set"].replace("_", " "),
            f"{r['compile_ms']:.1f}",
            f"{r['code_stage_ms']:.1f}",
            f"{r['code_bytes']:,}",
            f"{r['kernel_ms']:.2f}",
            f"{r['median_ms']:.2f}",
            f"{r['gflops']:.1f}",
            f"{r['speedup']:.2f}×",
            str(r["n"]),
        ]
        for r in record["rows"]
    ]
    return table(head, rows)
