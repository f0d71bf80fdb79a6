"""Page: what the passes over WebAssembly and each primitive of a schedule bring, and LLVM beside.

Input: the records of wasm.passes and wasm.chained, and the laboratory's findings on primitives.
Output: the page, SVG bars.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import geometric_mean

from benchmarks.records import Record, Records, Stored, by, rows, values
from benchmarks.report.charts import grouped
from benchmarks.report.page import Answer, Page, Section, over
from benchmarks.report.tables import DASH, Columns, listed, mean, paragraphs, table
from lab.primitives import findings
from lab.primitives.table import FINDINGS, MEASURED, NAMED

#: The kernel of the paper's table.
ABLATED = "K0"
#: Sets of passes that are compared for every kernel; and LLVM's.
COMPARED = ("naive", "three passes", "ours")


# ---- passes --------------------------------------------------------------------------------------


def sets(record: Record, **where: str) -> dict[str, dict[str, list[Stored]]]:
    """Set of passes → engine → rows; LLVM's sets come last."""
    found = sorted(rows(record, **where), key=lambda r: (r["kernel"], r["set"].startswith("LLVM")))
    return {
        name: {host: own for (host,), own in by(of_set, "host").items()}
        for (name,), of_set in by(found, "set").items()
    }


def hosts(record: Record) -> list[str]:
    return sorted({r["host"] for r in record["rows"]})


def passes(record: Record) -> str:
    """K0: a line per set; compile times and sizes are the same on all engines, but for noise.
    Then all kernels: the time of each set over ours."""
    named = hosts(record)
    head = ["K0 with", "compile ms", "code bytes", *(f"{h}: fastest ms (speed-up)" for h in named)]
    lines = []
    for name, found in sets(record, kernel=ABLATED).items():
        own = {host: each[0] for host, each in found.items()}
        best = min(r["compile_ms"] for r in own.values())
        size = next(iter(own.values()))["code_bytes"]
        times = (
            f"{r['kernel_ms']:.2f} ({r['speedup']:.2f}×)" if (r := own.get(h)) else DASH
            for h in named
        )
        lines.append([name.replace("_", " "), f"{best:.1f}", f"{size:,}", *times])
    means = [
        [name, *(mean(found.get(h, ()), ".2f") for h in named)]
        for name, found in over_ours(record).items()
    ]
    compilers = sorted({r["compiler"] for r in record["rows"] if "compiler" in r})
    said = f"Compiler: {', '.join(compilers)}." if compilers else "clang was not installed."
    engines = ", ".join(sorted({r["engine"] for r in record["rows"]}))
    kernels = ", ".join(dict.fromkeys(r["kernel"] for r in record["rows"]))
    return paragraphs(
        table(head, lines),
        f"Geometric means over {kernels}:",
        table(["set: time over ours (kernels)", *named], means),
        f"{said} Engines: {engines}.",
    )


def over_ours(record: Record) -> dict[str, dict[str, list[float]]]:
    """Set → engine → its time over ours, per kernel."""
    ours = {(r["kernel"], r["host"]): r["kernel_ms"] for r in rows(record, set="ours")}
    return {
        name: {h: [r["kernel_ms"] / ours[r["kernel"], h] for r in own] for h, own in found.items()}
        for name, found in sets(record).items()
        if name in COMPARED or name.startswith("LLVM")
    }


def charts(record: Record) -> Iterator[tuple[str, str]]:
    named = hosts(record)
    lines = [
        (name.replace("_", " "), [found[h][0]["gflops"] if h in found else None for h in named])
        for name, found in sets(record, kernel=ABLATED).items()
    ]
    yield "wasm.passes.svg", grouped("K0 by what code is made with, GFLOP/s", named, lines)


# ---- code for wasmtime ---------------------------------------------------------------------------

CHAINED: Columns = {"kernel": "kernel", "speed over the browsers' code": "gain:.2f×",
           "the same, least of all turns": "least:.2f×", "time, ms": "ms:.3g",
           "turns": "n"}  # fmt: skip


def chained(record: Record) -> str:
    total = geometric_mean(values(record, "gain"))
    return listed(record["rows"], CHAINED, ["geometric mean", f"{total:.3f}", "", "", ""])


# ---- primitives ----------------------------------------------------------------------------------


def primitives(_: Record) -> str:
    """The findings that are shipped: ratio and interval per device, and the decision."""
    document = findings.read(FINDINGS)
    decided = findings.decisions(document.devices)
    head = ["primitive", "untuned", "tuned", *(d.host for d in document.devices), "decision"]
    rows = []
    for p in (p for p in MEASURED if p.name in decided):
        found = [d.findings.get(p.name) for d in document.devices]
        cells = [f"{f.ratio:.2f} [{f.low:.2f}, {f.high:.2f}]" if f else DASH for f in found]
        tuned = decided[p.name].tuned
        chosen = "" if tuned is None else f": {p.tuned.label if tuned else p.untuned.label}"
        name = p.name.replace("_", " ")
        rows.append(
            [name, p.untuned.label, p.tuned.label, *cells, decided[p.name].verdict + chosen]
        )
    devices = "; ".join(f"{d.engine} on {d.cpu}, {d.date}" for d in document.devices)
    shape = "×".join(map(str, document.matmul))
    return paragraphs(
        f"Matmul {shape}. Measured in {devices}.",
        table(head, rows),
        f"`bind` is not measured: {NAMED['bind'].says}.",
    )


def primitive_chart(_: Record) -> Iterator[tuple[str, str]]:
    document = findings.read(FINDINGS)
    lines = []
    for p in MEASURED:
        found = [d.findings.get(p.name) for d in document.devices]
        label = f"{p.name.replace('_', ' ')}: {p.tuned.label}"
        lines.append((label, [f.ratio if f else None for f in found]))
    title = "Untuned over tuned: above 1, the tuned setting is faster"
    yield "lab.primitives.svg", grouped(title, [d.host for d in document.devices], lines)


# ---- the page ------------------------------------------------------------------------------------


def _browsers(found: Mapping[str, list[float]]) -> list[float]:
    return [ratio for host in ("chromium", "firefox") for ratio in found[host]]


def verdict(records: Records) -> str:
    found = over_ours(records["wasm.passes"])
    naive, llvm = (geometric_mean(_browsers(found[name])) for name in ("naive", "LLVM"))
    took = values(records["wasm.passes"], "compile_ms", set="ours")
    return (
        f"In browsers, code without the passes takes {naive:.2f} times as long as ours and code "
        f"from LLVM {llvm:.2f} times; ours is compiled in {min(took):.0f} to {max(took):.0f} ms a "
        "kernel."
    )


def answers(records: Records) -> list[Answer]:
    record, chained = records["wasm.passes"], records["wasm.chained"]
    found = over_ours(record)
    return [
        over("browsers: time without passes over ours", _browsers(found["naive"]), record),
        over("browsers: LLVM's time over ours", _browsers(found["LLVM"]), record),
        over("Node 20: LLVM's time over ours", found["LLVM"]["node"], record),
        over("wasmtime: code for its compiler over the browsers' code", values(chained, "gain"),
             chained),
    ]  # fmt: skip


PAGE = Page("code", "Generated WebAssembly code", verdict, answers, (
    Section("wasm.passes", "WebAssembly passes, and LLVM",
            "One schedule throughout. Naive code computes every address and constant at each use; "
            "then come the passes of the paper's table 5, `placement` of values outside loops, and "
            "LLVM on C of the same loops. Sets of a kernel are timed by turns on one thread, "
            "outputs checked. Compile time is from the schedule to a module, for LLVM from C, "
            "start included.", passes, charts),
    Section("wasm.chained", "Code for wasmtime's compiler",
            "Kernels on wasmtime with the variant for its compiler, and with that for browsers, by "
            "turns on one thread.", chained),
    Section("", "Primitives",
            "Time at the untuned setting of a schedule primitive over time at the tuned one, on "
            "one thread, with its interval.", primitives, primitive_chart),
))  # fmt: skip
