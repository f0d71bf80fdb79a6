"""Targets of WebGPU, and the page of all targets.

Input: the records of gpu, gpu_peers, gpu_js_time, gpu_tuning and llama, and what targets.py has.
Output: the page.  Ratios are those of one run.  CUDA's own figures are on its page.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from benchmarks.records import Record, Records, Stored
from benchmarks.report import targets
from benchmarks.report.gpu_engines import MODELS, Cases
from benchmarks.report.page import Page, Section
from benchmarks.report.tables import DASH, paragraphs, table
from benchmarks.report.targets import Figure, Target

Found = Callable[[Records], Sequence[Figure]]

SQUARE = "GEMM 4096"
HALVES = f"{SQUARE}, 16 bits, halves by"
ENCODER = "a 12-layer encoder"
#: Where the figures come from.
SOURCES = ("gpu.kernels", "peers.webgpu", "gpu.js_time", "gpu.encoder_tuning", "gpu.llama")


def _product(case: str, key: str = "tflops") -> Found:
    return lambda records: [r[key] for r in records["gpu.kernels"]["rows"] if r["case"] == case]


def _shares(records: Records) -> Sequence[Figure]:
    return [f for n in range(4) for f in _product(f"K{n}", "share_of_cublas")(records)]


def _ratio(ours: Found, theirs: Found) -> Found:
    def found(records: Records) -> Sequence[Figure]:
        pairs = zip(ours(records), theirs(records), strict=False)
        return [mine / other if mine and other else None for mine, other in pairs]

    return found


def _copied(records: Records) -> Sequence[Figure]:
    return [records["gpu.kernels"]["memory"]["copy"]["gb_per_s"]]


def _bits(shape: str) -> Found:
    return _ratio(_product(f"GEMV {shape}, 4 bits, rows in bytes", "gb_per_s"), _copied)


def _prompt(clock: str) -> Found:
    """By one clock; the GEMM's is the GPU's, of the same card."""

    def tflops(records: Records) -> Sequence[Figure]:
        if records["gpu.kernels"]["machine"] != records["gpu.llama"]["machine"]:
            return []
        row = _llama(records)
        return [row["prompt_tflops"] * row["prompt_ms"] / row[clock]]

    return _ratio(tflops, _product(f"{HALVES} matrices"))


def _over(engine: str, case: str) -> Found:
    return lambda records: [Cases(records["peers.webgpu"], ("gemm",)).ratio(case, engine)]


def _models(records: Records) -> Sequence[Figure]:
    return Cases(records["peers.webgpu"], MODELS).ratios("ort")


def _javascript(host: str) -> Found:
    """On a real GPU; what Dawn's own calls and an empty submission take is not ours."""
    return lambda records: [
        r["own_ms"] for r in records["gpu.js_time"]["rows"] if r["host"] == host and "own_ms" in r
    ]


def _llama(records: Records) -> Stored:
    """The row with weights of 4 bits whose rows are rounded to bytes."""
    rows: list[Stored] = records["gpu.llama"]["rows"]
    return next(r for r in rows if r["bits"] == 4 and r["bytes"])


def _tuned(key: str) -> Found:
    return lambda records: [records["gpu.encoder_tuning"]["rows"][0][key]]


TARGETS = (
    Target(f"f32 {SQUARE}³, TFLOP/s", 42, _product(SQUARE), digits=1),
    Target(f"f32 {SQUARE}³ over jax-js", 1.25, _over("jax", "gemm_4096")),
    Target(f"f32 {SQUARE}³ over onnxruntime-web", 1.7, _over("ort", "gemm_4096")),
    Target(f"{HALVES} matrices, TFLOP/s", 350, _product(f"{HALVES} matrices"), digits=1),
    Target(f"{HALVES} tiles, TFLOP/s", 55, _product(f"{HALVES} tiles"), digits=1),
    Target(f"int8 {SQUARE}³ over f16 by tiles", 1.5,
           _ratio(_product(f"{SQUARE}, bytes"), _product(f"{HALVES} tiles"))),
    Target("K0 to K3: share of cuBLAS's speed, smallest", 0.7, _shares),
    *(
        Target(f"4-bit GEMV {shape}, rows in bytes: share of a copy's bandwidth", 0.85,
               _bits(shape))
        for shape in ("11008x4096", "4096x11008")
    ),
    Target("Llama 2 7B in 4 bits: tokens a second", 400, lambda r: [_llama(r)["tokens_per_s"]],
           digits=0),
    *(
        Target(f"its prompt of 512, by {said}: share of our f16 GEMM's speed", 0.6, _prompt(clock))
        for said, clock in (("the wall", "prompt_ms"), ("the GPU's clock", "prompt_clock_ms"))
    ),
    Target("models over onnxruntime-web, mean", 3.0, _models, statistics.geometric_mean),
    Target("models over onnxruntime-web, smallest", 1.5, _models),
    *(
        Target(f"{ENCODER}: ms of our JavaScript{said}", 0.3, _javascript(host), below=True)
        for said, host in (
            ("", "node"), (", outputs into arrays that the caller gives", "node, given arrays"),
        )
    ),
    Target(f"{ENCODER}: s of tuning to the last kernel that was swapped (0: none was)", 6,
           _tuned("last_swap_s"), below=True),
    Target(f"{ENCODER}: candidates of a kernel, most", 45, _tuned("most_of_a_kernel"), below=True),
)  # fmt: skip


def lines(records: Records) -> list[list[str]]:
    return [[target.what, target.must_be, target.cell(records)] for target in TARGETS]


# ---- the page ------------------------------------------------------------------------------------


def _measured(head: Sequence[str], found: Sequence[list[str]]) -> str:
    """The places where a target was measured, with its figure there; of targets that were measured
    nowhere the names."""
    what, must_be, *places = head
    names = [f"{place}: " for place in places] if len(places) > 1 else [""]
    lines, empty = [], []
    for target, limit, *cells in found:
        known = [name + cell for name, cell in zip(names, cells, strict=True) if cell != DASH]
        if known:
            lines.append([target, limit, "; ".join(known)])
        else:
            empty.append(target)
    said = f"Not measured, or not in one run: {'; '.join(empty)}." if empty else ""
    last = "measured" if len(places) > 1 else places[0]
    return paragraphs(table([what, must_be, last], lines), said)


def browsers(records: Record) -> str:
    return _measured(*targets.lines(records))


def webgpu(records: Record) -> str:
    cards = dict.fromkeys(str(records[name]["machine"].get("gpu", "")) for name in SOURCES)
    return _measured(["what", "must be", ", ".join(cards)], lines(records))


def verdict(records: Records) -> str:
    judged = [line for line in (*targets.lines(records)[1], *lines(records)) if line[1]]
    known = [line for line in judged if not set(line[2:]) <= {DASH}]
    missed = [line for line in known if any("**" in cell for cell in line[2:])]
    open_ = len(judged) - len(known)
    return (
        f"{len(known) - len(missed)} of {len(known)} measured targets are met everywhere they were "
        f"measured; {len(missed)} are missed somewhere."
        + (f" {open_} more were not measured." if open_ else "")
    )


PAGE = Page("targets", "Targets", verdict, lambda records: [], (
    Section("", "Browsers, processor and server", targets.LEGEND, browsers),
    Section("", "WebGPU", "By Dawn in Node. Bold: misses the target. In brackets: the number of "
            "cases.", webgpu),
))  # fmt: skip
