"""Tables and charts from benchmarks/results/*.json; README and docs quote only these.

Input: the JSON that the benchmarks wrote.  Output: results/README.md, results/*.svg, and the parts
of README.md between `<!-- results:NAME -->` and `<!-- end -->`.  It measures nothing.

    uv run python benchmarks/report.py          writes
    uv run python benchmarks/report.py --check  fails if something is out of date
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import report_corun
import report_crowd
import report_cuda
import report_families
import report_gpu
import report_gpu_ablation
import report_gpu_peers
import report_gpu_targets
import report_headroom
import report_passes
import report_peers
import report_server
import report_space
import report_targets
import report_tuning
import report_versions
from charts import bars, cell, curve, figure, table

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parents[1] / "README.md"

Record = dict[str, Any]


def kernels(record: Record) -> str:
    head = ["kernel (M×K×N)", "browser", "fastest: GFLOP/s", "peak: GFLOP/s", "share of peak"]
    head += ["undisturbed rounds, median: GFLOP/s", "share of peak", "rounds"]
    head += ["all rounds, median: share of peak", "rounds", "first call ms"]
    rows = [
        [
            f"{r['kernel']} {r['shape'].replace('x', '×')}",
            r["host"],
            f"{r['gflops']:.1f}",
            f"{r['peak_gflops']:.1f}",
            f"{r['share_of_peak'] * 100:.0f} %",
            f"{r['gflops_quiet']:.1f}" if r["n_quiet"] else "–",
            f"{r['share_of_peak_quiet'] * 100:.0f} %" if r["n_quiet"] else "–",
            str(r["n_quiet"]),
            f"{r['share_of_peak_median'] * 100:.0f} %",
            str(r["n"]),
            f"{r['first_ms']:.0f}",
        ]
        for r in record["rows"]
    ]
    return table(head, rows)


def conv(record: Record) -> str:
    """One line per layer, the browsers beside each other."""
    hosts = list(dict.fromkeys(r["host"] for r in record["rows"]))
    layers: dict[tuple[str, str], dict[str, Record]] = {}
    for r in record["rows"]:
        layers.setdefault((r["model"], r["layer"]), {})[r["host"]] = r
    head = [
        "layer",
        "MFLOP",
        *(f"{h} {what}" for h in hosts for what in ("GFLOP/s", "share of peak")),
    ]
    rows = []
    for (model, layer), found in layers.items():
        row = [f"{model} {layer}".replace(">", "→"), f"{found[hosts[0]]['mflop']:.1f}"]
        for host in hosts:
            r = found[host]
            row += [f"{r['gflops']:.1f}", f"{r['share_of_peak'] * 100:.0f} %"]
        rows.append(row)
    return table(head, rows)


def compile_curve(record: Record) -> str:
    """Seconds per model, milliseconds per kernel, and the processor time in them."""
    head = ["what", "nodes", "kernels", "steps", "time", "processor time", "limit"]
    rows = []
    for r in record["rows"]:
        unit = "ms" if r["kind"] == "kernel" else "s"
        took, own = (
            (r["median_ms"], r["processor_ms"])
            if unit == "ms"
            else (r["seconds"], r["processor_s"])
        )
        sizes = [cell(r.get(name)) for name in ("nodes", "kernels", "steps")]
        limit = "–" if r["limit"] is None else f"≤ {r['limit']:g} {unit}"
        rows.append([r["what"], *sizes, f"{took:.3g} {unit}", f"{own:.3g} {unit}", limit])
    return table(head, rows)


def agreement(record: Record) -> str:
    """The worst output of each model per host."""
    hosts = list(dict.fromkeys(r["host"] for r in record["rows"]))
    worst: dict[str, dict[str, float]] = {}
    for r in record["rows"]:
        seen = worst.setdefault(r["model"], {})
        seen[r["host"]] = max(seen.get(r["host"], 0.0), r["relative_error"])
    rows = [[m, *(f"{v[h]:.1e}" if h in v else "–" for h in hosts)] for m, v in worst.items()]
    return table(["model", *hosts], rows)


def threads(record: Record) -> str:
    head = ["subject", "browser", "threads", "median ms", "fastest ms", "fastest: µs per step"]
    head += ["fastest: GFLOP/s", "speed-up over one thread: median", "fastest"]
    rows = [
        [
            r["subject"],
            r["host"],
            str(r["threads"]),
            *(f"{r[key]:.3g}" for key in ("median_ms", "fastest_ms", "step_us")),
            figure(r["gflops"]),
            *(f"{r[key]:.2f}×" for key in ("speedup_median", "speedup")),
        ]
        for r in record["rows"]
    ]
    return table(head, rows)


def sizes(record: Record) -> str:
    rows = [[r["what"], f"{r['bytes']:,}", f"{r['limit']:,}"] for r in record["rows"]]
    return table(["what", "bytes", "limit"], rows)


def second_visit(record: Record) -> str:
    """One line per module and habit, the visits beside each other."""
    head = ["bundle", "module bytes", "V8 caches code", "load ms: visit 1, 2, 3"]
    head += ["first inference ms: visit 1, 2, 3", "cached code found: visit 1, 2, 3", "its bytes"]
    visits: dict[tuple[str, str], list[Record]] = {}
    for r in record["rows"]:
        visits.setdefault((r["subject"], r["habit"]), []).append(r)
    rows = []
    for (subject, habit), found in visits.items():
        found.sort(key=lambda r: int(r["visit"]))
        rows.append(
            [
                subject,
                f"{found[0]['module_bytes']:,}",
                {"usual": "after 2 s", "eager": "at once (flag)"}[habit],
                *(", ".join(f"{r[key]:.1f}" for r in found) for key in ("load_ms", "first_ms")),
                ", ".join(f"{r['code_found']} of {r['n']}" for r in found),
                f"{found[-1]['code_bytes']:,.0f}",
            ]
        )
    return table(head, rows)


TABLES: dict[str, Callable[[Record], str]] = {
    "kernels": kernels,
    "gpu": report_gpu.gpu,
    "llama": report_gpu.llama,
    **report_corun.TABLES,
    **report_cuda.TABLES,
    **report_gpu_ablation.TABLES,
    **report_gpu_peers.TABLES,
    "threads": threads,
    "conv": conv,
    "passes": report_passes.passes,
    "compile_curve": compile_curve,
    "agreement": agreement,
    "sizes": sizes,
    "crowd": report_crowd.crowd,
    "crowd_shares": report_crowd.shares,
    "liars": report_crowd.liars,
    "recovery": report_crowd.recovery,
    "sockets": report_server.sockets,
    "front": report_server.front,
    "peers": report_peers.summary,
    "space": report_space.space,
    "shapes": report_space.shapes,
    "tuning": report_tuning.tuning,
    **report_headroom.TABLES,
    **report_families.TABLES,
    "second_visit": second_visit,
    "earlier": report_versions.earlier,
    "earlier_gpu": report_versions.earlier,
    "versions": report_versions.versions,
}

#: What the first page of the repository has instead of the whole table.
BRIEF: dict[str, Callable[[Record], str]] = {
    "peers": lambda record: f"{report_peers.brief(record)}\n\n{facts(record)}",
}

#: Headings of results/README.md, and a sentence about what was measured.
ABOUT: dict[str, tuple[str, str]] = {
    "kernels": (
        "Kernels of nnJIT",
        "Products on one thread. The peak is that of a kernel that only multiplies and adds in "
        "registers, measured in the same round.",
    ),
    "gpu": (
        "WebGPU kernels on a real GPU",
        "Dawn in Node runs plans that repeat one kernel; cuBLAS by turns with it: in f32 without "
        "TF32, in f16 where ours multiplies halves.",
    ),
    "llama": (
        "A language model on a real GPU",
        "Llama 2 7B's architecture with random weights, through Dawn in Node by the engine's own "
        "loop; each token is chosen on the GPU, and the next step takes it from there before it "
        "comes back.",
    ),
    **report_corun.ABOUT,
    **report_cuda.ABOUT,
    **report_gpu_ablation.ABOUT,
    **report_gpu_peers.ABOUT,
    "threads": ("Threads", "The same work with one thread and with more."),
    "conv": ("Convolutions", "Layers of models on one thread."),
    "passes": (
        "WebAssembly passes, and LLVM",
        "One schedule throughout. Naive code computes every address and constant at each use; then "
        "come the passes of the paper's table 5, `placement` of values outside loops, and LLVM on "
        "C of the same loops. Sets of a kernel are timed by turns on one thread, outputs checked. "
        "Compile time is from the schedule to a module, for LLVM from C, start included.",
    ),
    "compile_curve": (
        "Time to compile",
        "Generated models of growing size, a real one, and a single kernel.",
    ),
    "agreement": (
        "Agreement with onnxruntime",
        "The largest relative error of a model's outputs on each host.",
    ),
    "sizes": ("Download sizes", "What a page loads before weights."),
    "crowd": (
        "Simulated crowd",
        "Clients that report to the kernel database; in all scenarios but the first a part of "
        "them lies. A default is bad if it is the one that the liars wanted.",
    ),
    "crowd_shares": (
        "Simulated crowd by share of liars",
        "All liars name one bad kernel, answer every question for it and against any other, and "
        "answer gold questions right; `early`: they come before the first honest client.",
    ),
    "liars": (
        "Liars against a real server",
        "One WebSocket per voice. A default is bad if it is slower than the bundle's own kernel.",
    ),
    "recovery": (
        "Recovery from bad defaults",
        "Pages that do not tune, given a bundle with the slowest candidates: milliseconds from "
        "their first run until own kernels are back.",
    ),
    "sockets": (
        "Tuning sockets under load",
        "Many clients at once; of two processes each is killed again and again.",
    ),
    "front": (
        "A server under silent connections",
        "Attackers hold as many connections as they can and connect again when the server ends "
        "them, from one network or each from its own; meanwhile another client asks /healthz.",
    ),
    "peers": (
        "Other engines",
        "Speed-up of Tilewright over other engines in the same run: geometric mean over the cases "
        "of a group, and in brackets their number.",
    ),
    "space": (
        "Sweeps of whole spaces",
        "Every candidate of a kernel was timed. A share is a candidate's speed over that of the "
        "fastest one, the optimum.",
    ),
    "shapes": (
        "Winners on other shapes",
        "Each line: a shape with the winner of every other shape, as a share of the speed with "
        "its own winner.",
    ),
    "tuning": ("Tuning in the page", "Sessions of the page's own tuner."),
    **report_headroom.ABOUT,
    **report_families.ABOUT,
    "second_visit": (
        "The second visit",
        "Whether Chromium finds optimised code of the first visit, and what that saves.",
    ),
    "earlier": (
        "An earlier version",
        "WebAssembly on one thread, each version with its own compiler and engine, by turns in "
        "one run.",
    ),
    "earlier_gpu": (
        "An earlier version, on a GPU",
        "WGSL in a Node with Dawn, from the call to the outputs in JavaScript; CUDA by the "
        "device's clock; each version with its own compiler and engine, by turns in one run.",
    ),
    "versions": (
        "What the engine and the tuner cost more than earlier",
        "The minified files of both versions, visits by turns; `more` is the median of the "
        "differences.",
    ),
}

#: What results/README.md says beyond the table.
DETAILS: dict[str, Callable[[Record], str]] = {
    "crowd": lambda _: report_crowd.ASSUMED,
    "gpu": report_gpu.where,
    "gpu_ablation": report_gpu_ablation.details,
    "passes": report_passes.llvm,
    "peers": report_peers.details,
    "space": report_space.details,
}


# ---- charts --------------------------------------------------------------------------------------

PICTURES: dict[str, Callable[[Record], Iterable[tuple[str, str]]]] = {
    "passes": report_passes.charts,
    "corun": report_corun.charts,
    "headroom": report_headroom.charts,
    "elastic": report_corun.latencies,
    "peers": report_peers.charts,
    "gpu_peers": report_gpu_peers.charts,
    "gpu_ablation": report_gpu_ablation.charts,
    "space": report_space.charts,
}


def charts(records: dict[str, Record]) -> Iterator[tuple[str, str]]:
    if "compile_curve" in records:
        rows = records["compile_curve"]["rows"]
        points = [(r["nodes"], r["seconds"]) for r in rows if r["kind"] == "nodes"]
        yield "compile_curve.svg", curve("Compiling: seconds over nodes", points, ("nodes", "s"))
    if "kernels" in records:
        rows = records["kernels"]["rows"]
        rows = [(f"{r['kernel']} {r['host']}", r["gflops"], r["peak_gflops"]) for r in rows]
        yield "kernels.svg", bars("GFLOP/s on one thread; light: multiply-add peak", rows, "")
    for name, made in PICTURES.items():
        if name in records:
            yield from made(records[name])
    yield from report_space.pictures()


# ---- files ---------------------------------------------------------------------------------------


def facts(record: Record) -> str:
    machine = record["machine"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}"
    if "gpu" in machine:
        where += f", {machine['gpu']}"
    return f"{record['date']}, commit {record['commit']}, {where}."


def files() -> Iterator[tuple[Path, str]]:
    """Every file that this report makes, with its text."""
    found = {p.stem: json.loads(p.read_text()) for p in sorted(RESULTS.glob("*.json"))}
    records = {name: found[name] for name in TABLES if name in found}
    lines = ["# Results", "", "Made by `benchmarks/report.py` from the JSON files beside it.", ""]
    lines += ["## Targets", "", report_targets.LEGEND, "", report_targets.targets(found), ""]
    lines += [report_gpu_targets.LEGEND, "", report_gpu_targets.gpu_targets(found), ""]
    pictures = dict(charts(records))
    for name, record in records.items():
        title, about = ABOUT[name]
        lines += [f"## {title}", "", about, "", facts(record), "", TABLES[name](record), ""]
        for picture in pictures:
            if picture.startswith(name):
                lines += [f"![{picture.removesuffix('.svg').replace('-', ' ')}]({picture})", ""]
        if name in DETAILS and (said := DETAILS[name](record)):
            lines += [said, ""]
    lines += report_space.sections()
    yield RESULTS / "README.md", "\n".join(lines)
    for name, text in pictures.items():
        yield RESULTS / name, text
    yield README, _filled(README.read_text(), records)


def _filled(text: str, records: dict[str, Record]) -> str:
    def fill(match: re.Match[str]) -> str:
        name = match[1]
        body = {**TABLES, **BRIEF}[name](records[name]) if name in records else ""
        return f"<!-- results:{name} -->\n{body}\n<!-- end -->"

    return re.sub(r"<!-- results:(\w+) -->.*?<!-- end -->", fill, text, flags=re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    stale = [path for path, text in files() if not path.exists() or path.read_text() != text]
    if args.check:
        for path in stale:
            print(f"{path.name} is out of date: run benchmarks/report.py", file=sys.stderr)
        return 1 if stale else 0
    for path, text in files():
        path.write_text(text)
    print(f"{len(stale)} files written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
