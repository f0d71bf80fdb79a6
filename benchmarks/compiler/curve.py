"""How fast the compiler is: seconds over the number of nodes, milliseconds per kernel, MiniLM.

Input: the MiniLM model that scripts/demo writes.  Output: results/compiler.curve.json.  Everything
but reading the file and writing weights, all builds; per kernel from schedule to checked bytes,
each build for itself.  Seconds of the clock, and of the processor, which a shared machine changes
less.

    python -m benchmarks compiler.curve --model .demo/minilm.onnx
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import onnx
import typer

from benchmarks.common import Run
from benchmarks.models.long_models import mixed
from benchmarks.records import Row
from tilewright.compiler import Compiled, Options, compile_model, paused
from tilewright.frontend import load
from tilewright.targets import DEFAULT, target

T = TypeVar("T")

BUCKETS = {"n": (16, 32, 64, 128)}
NODES = (500, 1000, 2000, 5000, 10000, 20000)

#: What must hold: seconds of the largest model and of MiniLM, milliseconds per kernel.
LIMITS = {"nodes": 60.0, "model": 1.5, "kernel": 4.0}


def timed(work: Callable[[], T]) -> tuple[T, float, float]:
    """(result, seconds of the clock, seconds of the processor)"""
    clock, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - clock, time.process_time() - processor


def model_row(
    kind: str, what: str, source: Path | onnx.ModelProto, options: Options, repeats: int
) -> tuple[Row, Compiled]:
    """The fastest of several compilations: others only add what the machine did besides."""
    times = []
    for _ in range(repeats):
        model = load(source)  # anew: it keeps what was found out about its weights
        compiled, seconds, processor = timed(partial(compile_model, model, options))
        times.append((seconds, processor, compiled.seconds))
    seconds, processor, stages = min(times, key=lambda t: t[0])
    row = {
        "kind": kind,
        "what": what,
        "nodes": len(model.nodes),
        "kernels": len(compiled.program.kernels),
        "steps": sum(len(plan.steps) for plan in compiled.program.plans),
        "seconds": round(seconds, 3),
        "processor_s": round(min(t[1] for t in times), 3),
        "limit": LIMITS[kind] if kind == "model" or len(model.nodes) >= max(NODES) else None,
        "stages": {name: round(value, 3) for name, value in stages.items()},
        "n": repeats,
    }
    return row, compiled


@paused()
def kernel_row(compiled: Compiled, repeats: int) -> Row:
    """Milliseconds from a schedule to checked bytes, for each kernel and build on its own."""
    chosen, found = target(DEFAULT[0]), []
    for kernel in compiled.program.kernels:
        for variant in (name for name, known in chosen.variants.items() if known.is_default):
            schedule = {variant: chosen.default(kernel, variant)}
            tries = [timed(partial(chosen.codes, kernel, schedule)) for _ in range(repeats)]
            found.append((min(t[1] for t in tries), min(t[2] for t in tries)))
    clock, processor = ([1e3 * t[i] for t in found] for i in (0, 1))
    return {
        "kind": "kernel",
        "what": "one kernel, one build",
        "median_ms": round(statistics.median(clock), 2),
        "mean_ms": round(statistics.mean(clock), 2),
        "max_ms": round(max(clock), 2),
        "processor_ms": round(statistics.median(processor), 2),
        "limit": LIMITS["kernel"],
        "n": len(found),
    }


def main(
    run: Run,
    model: Annotated[Path, typer.Option(help="MiniLM, as scripts/demo writes it.")],
    repeats: Annotated[int, typer.Option(min=1, help="Compilations; the fastest counts.")] = 3,
) -> None:
    rows = []
    for nodes in NODES:
        times = repeats if nodes < max(NODES) else 1
        row, _ = model_row("nodes", f"{nodes:,} nodes", mixed(nodes), Options(), times)
        rows.append(row)
        run.show(row)
    what = f"{model.stem}, {len(BUCKETS['n'])} buckets"
    row, compiled = model_row("model", what, model, Options(buckets=BUCKETS), repeats)
    for found in (row, kernel_row(compiled, repeats)):
        rows.append(found)
        run.show(found)
    run.save(rows, facts={"load_average": [round(x, 1) for x in os.getloadavg()]})
