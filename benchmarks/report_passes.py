"""Tables of what the passes of the WebAssembly target bring, and of LLVM on the same loops.

Input: the record of results/passes.json.  Output: Markdown for README.md and results/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import geometric_mean
from typing import Any

from charts import grouped, table

Record = dict[str, Any]
Row = Mapping[str, Any]

#: The kernel of the paper's table.
ABLATED = "K0"


def by_kernel(record: Record) -> dict[str, dict[str, dict[str, Row]]]:
    """Kernel → set → engine → row."""
    found: dict[str, dict[str, dict[str, Row]]] = {}
    for r in sorted(record["rows"], key=lambda r: (r["kernel"], r["set"].startswith("LLVM"))):
        found.setdefault(r["kernel"], {}).setdefault(r["set"], {})[r["host"]] = r
    return found


def hosts(record: Record) -> list[str]:
    return sorted({r["host"] for r in record["rows"]})


def passes(record: Record) -> str:
    """K0: a line per set; compile times and sizes are the same on all engines, but for noise."""
    named = hosts(record)
    head = ["K0 with", "compile ms", "code bytes", *(f"{h}: fastest ms (speed-up)" for h in named)]
    rows = []
    for name, found in by_kernel(record)[ABLATED].items():
        best = min(r["compile_ms"] for r in found.values())
        first = next(iter(found.values()))
        times = (
            f"{r['kernel_ms']:.2f} ({r['speedup']:.2f}×)" if (r := found.get(h)) else "–"
            for h in named
        )
        rows.append([name.replace("_", " "), f"{best:.1f}", f"{first['code_bytes']:,}", *times])
    return table(head, rows)


def llvm(record: Record) -> str:
    """Every kernel: what each set costs beside ours, and its time over ours."""
    named = hosts(record)
    head = ["kernel", "set", "compile ms", "code bytes", *(f"{h}: time over ours" for h in named)]
    rows, ratios = [], dict[str, dict[str, list[float]]]()
    for kernel, sets in by_kernel(record).items():
        ours = sets["ours"]
        for name, found in sets.items():
            if name not in ("naive", "three passes", "ours") and not name.startswith("LLVM"):
                continue
            over = {h: found[h]["kernel_ms"] / ours[h]["kernel_ms"] for h in named if h in found}
            for host, ratio in over.items():
                ratios.setdefault(name, {}).setdefault(host, []).append(ratio)
            best = min(r["compile_ms"] for r in found.values())
            size = next(iter(found.values()))["code_bytes"]
            rows.append([kernel, name, f"{best:.1f}", f"{size:,}", *_ratios(over, named)])
    for name, by_host in ratios.items():
        means = {h: geometric_mean(found) for h, found in by_host.items()}
        rows.append(["geometric mean", name, "", "", *_ratios(means, named)])
    compilers = sorted({r["compiler"] for r in record["rows"] if "compiler" in r})
    said = f"Compiler: {', '.join(compilers)}." if compilers else "clang was not installed."
    engines = ", ".join(sorted({r["engine"] for r in record["rows"]}))
    return f"{table(head, rows)}\n\n{said} Engines: {engines}."


def _ratios(found: Mapping[str, float], named: list[str]) -> list[str]:
    return [f"{found[h]:.2f}" if h in found else "–" for h in named]


def charts(record: Record) -> Iterator[tuple[str, str]]:
    named = hosts(record)
    rows = [
        (name.replace("_", " "), [found[h]["gflops"] if h in found else None for h in named])
        for name, found in by_kernel(record)[ABLATED].items()
    ]
    yield "passes.svg", grouped("K0 by what code is made with, GFLOP/s", named, rows)
