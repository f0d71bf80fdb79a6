"""Targets of WebGPU and measured figures: a row per figure, with its card.

Input: the records of gpu, gpu_peers, gpu_js_time, gpu_tuning, llama.  Output: a table.  Ratios are
those of one run.  CUDA's own figures are in the sections of nvidia, elastic and corun.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from charts import table
from report_gpu_peers import Cases
from report_targets import Figure, bound, marked

Records = Mapping[str, dict[str, Any]]

LEGEND = (
    "WebGPU by Dawn in Node, on the card that is named. Bold: misses the target. "
    "–: not measured, or not in one run."
)
SQUARE = "GEMM 4096"
HALVES = f"{SQUARE}, 16 bits, halves by"
ENCODER = "a 12-layer encoder"


@dataclass(frozen=True)
class GpuTarget:
    """At least `limit`, or at most if `below`.  source: the record whose card is named"""

    what: str
    limit: float
    source: str
    found: Callable[[Records], Figure]
    below: bool = False
    digits: int = 2

    def row(self, records: Records) -> list[str]:
        value = self.found(records) if self.source in records else None
        must_be = bound(self.limit, self.below)
        if value is None:
            return [self.what, must_be, "–", ""]
        told = marked(value, f"{value:.{self.digits}f}", self.limit, self.below)
        return [self.what, must_be, told, str(records[self.source]["machine"].get("gpu", ""))]


def gpu_targets(records: Records) -> str:
    rows = [target.row(records) for target in TARGETS]
    return table(["what", "must be", "is", "card"], rows)


def _product(case: str, key: str = "tflops") -> Callable[[Records], Figure]:
    def found(records: Records) -> Figure:
        return next((float(r[key]) for r in records["gpu"]["rows"] if r["case"] == case), None)

    return found


def _ratio(ours: Callable[[Records], Figure], theirs: Callable[[Records], Figure],
           records: Records) -> Figure:  # fmt: skip
    mine, other = ours(records), theirs(records)
    return mine / other if mine is not None and other else None


def _bytes(records: Records) -> Figure:
    return _ratio(_product(f"{SQUARE}, bytes"), _product(f"{HALVES} tiles"), records)


def _smallest_share(records: Records) -> Figure:
    shares = [_product(f"K{n}", "share_of_cublas")(records) for n in range(4)]
    return None if None in shares else min(share for share in shares if share is not None)


def _copied(records: Records) -> Figure:
    return float(records["gpu"]["memory"]["copy"]["gb_per_s"])


def _bits(shape: str) -> Callable[[Records], Figure]:
    weights = _product(f"GEMV {shape}, 4 bits, rows in bytes", "gb_per_s")
    return partial(_ratio, weights, _copied)


def _prompt(clock: str) -> Callable[[Records], Figure]:
    """By one clock; the GEMM's is the GPU's, of the same card."""

    def found(records: Records) -> Figure:
        if "gpu" not in records or records["gpu"]["machine"] != records["llama"]["machine"]:
            return None
        row = _llama(records)
        tflops = row["prompt_tflops"] * row["prompt_ms"] / row[clock]
        return _ratio(lambda r: tflops, _product(f"{HALVES} matrices"), records)

    return found


def _over(engine: str, case: str) -> Callable[[Records], Figure]:
    return lambda records: Cases(records["gpu_peers"], ("gemm",), "median_ms").ratio(case, engine)


def _models(judged: Callable[[Sequence[float]], float]) -> Callable[[Records], Figure]:
    def found(records: Records) -> Figure:
        models = Cases(records["gpu_peers"], ("model",), "median_ms")
        ratios = [models.ratio(name, "ort") for name in models.names]
        known = [ratio for ratio in ratios if ratio is not None]
        return judged(known) if known and len(known) == len(ratios) else None

    return found


def _javascript(host: str) -> Callable[[Records], Figure]:
    """On a real GPU; what Dawn's own calls and an empty submission take is not ours."""

    def found(records: Records) -> Figure:
        rows = (r for r in records["gpu_js_time"]["rows"] if r["host"] == host)
        return next((float(r["own_ms"]) for r in rows if "own_ms" in r), None)

    return found


def _llama(records: Records) -> dict[str, Any]:
    """The row with weights of 4 bits whose rows are rounded to bytes."""
    rows = records["llama"]["rows"]
    return next(r for r in rows if r["bits"] == 4 and r["bytes"])


def _first(source: str, key: str) -> Callable[[Records], Figure]:
    """Of the model that a record is of."""
    return lambda records: float(records[source]["rows"][0][key])


TARGETS = (
    GpuTarget(f"f32 {SQUARE}³, TFLOP/s", 42, "gpu", _product(SQUARE), digits=1),
    GpuTarget(f"f32 {SQUARE}³ over jax-js", 1.25, "gpu_peers", _over("jax", "gemm_4096")),
    GpuTarget(f"f32 {SQUARE}³ over onnxruntime-web", 1.7, "gpu_peers", _over("ort", "gemm_4096")),
    GpuTarget(f"{HALVES} matrices, TFLOP/s", 350, "gpu", _product(f"{HALVES} matrices"), digits=1),
    GpuTarget(f"{HALVES} tiles, TFLOP/s", 55, "gpu", _product(f"{HALVES} tiles"), digits=1),
    GpuTarget(f"int8 {SQUARE}³ over f16 by tiles", 1.5, "gpu", _bytes),
    GpuTarget("K0 to K3: share of cuBLAS's speed, smallest", 0.7, "gpu", _smallest_share),
    *(
        GpuTarget(
            f"4-bit GEMV {shape}, rows in bytes: share of a copy's bandwidth", 0.85, "gpu",
            _bits(shape),
        )
        for shape in ("11008x4096", "4096x11008")
    ),
    GpuTarget(
        "Llama 2 7B in 4 bits: tokens a second", 400, "llama",
        lambda records: float(_llama(records)["tokens_per_s"]),
        digits=0,
    ),
    *(
        GpuTarget(
            f"its prompt of 512, by {said}: share of our f16 GEMM's speed", 0.6, "llama",
            _prompt(clock),
        )
        for said, clock in (("the wall", "prompt_ms"), ("the GPU's clock", "prompt_clock_ms"))
    ),
    GpuTarget(
        "models over onnxruntime-web, mean", 3.0, "gpu_peers", _models(statistics.geometric_mean)
    ),
    GpuTarget("models over onnxruntime-web, smallest", 1.5, "gpu_peers", _models(min)),
    *(
        GpuTarget(
            f"{ENCODER}: ms of our JavaScript{said}", 0.3, "gpu_js_time", _javascript(host),
            below=True,
        )
        for said, host in (
            ("", "node"), (", outputs into arrays that the caller gives", "node, given arrays"),
        )
    ),
    GpuTarget(
        f"{ENCODER}: s of tuning to the last kernel that was swapped (0: none was)", 6,
        "gpu_tuning", _first("gpu_tuning", "last_swap_s"), below=True,
    ),
    GpuTarget(
        f"{ENCODER}: candidates of a kernel, most", 45, "gpu_tuning",
        _first("gpu_tuning", "most_of_a_kernel"), below=True, digits=0,
    ),
)  # fmt: skip
