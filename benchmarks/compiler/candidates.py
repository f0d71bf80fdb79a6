"""How many candidates the kernels of models have, how fast they are made, what scratch they need.

Input: ONNX models of full size; K0 to K3 always.  Output: results/compiler.candidates.json: per
model the sizes of spaces, milliseconds of one space and of one candidate (loops, code, module; the
fastest of some; median and worst over all kernels and a sample of their candidates), and the share
of them whose scratch memory fits into several sizes.

    python -m benchmarks compiler.candidates minilm.onnx mobilenet_v2.onnx [--sample 6]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from benchmarks.common import Run
from benchmarks.records import Row
from lab.paper_spaces import PAPER
from lab.subjects import paper_step
from tilewright.compiler import Options, compile_model
from tilewright.frontend import load
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.simd import strategies as simd
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.strategies import default_schedule, strategy_of
from tilewright.targets.strategy import Search
from tilewright.targets.wasm import VARIANTS
from tilewright.tuning.candidates import build, space_of

DEVICE = CLASSES["wasm-x86-relaxed-32k"]
TARGET = VARIANTS[DEVICE.variant]
#: KB of scratch memory, of which it is told how many candidates would do with them.
LIMITS = (32, 64, 128, 256, 512, 1024)
REPEATS = 3


def model_kernels(path: Path, length: int) -> list[Kernel]:
    buckets = dict.fromkeys(load(path).dim_names, (length,))
    compiled = compile_model(path, Options(buckets=buckets, variants=(TARGET.name,)))
    return list(compiled.program.kernels)


def milliseconds(work: Callable[[], object]) -> float:
    """Processor time, the fastest of some runs: one thread does all, and others may be at work."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times) * 1e3


def row(name: str, kernels: Sequence[Kernel], sample: int) -> Row:
    sizes, spaces, made, scratch, code = [], [], [], [], []
    for number, kernel in enumerate(kernels):
        space = space_of(kernel, DEVICE)
        sizes.append(len(space.schedules))
        spaces.append(milliseconds(partial(space_of, kernel, DEVICE)))
        picked = Random(number).sample(range(sizes[-1]), min(sample, sizes[-1]))
        for n in picked:
            s = space.schedules[n]
            make = partial(build, kernel, s, DEVICE.target, DEVICE.variant)
            code.append(len(make().module))
            made.append(milliseconds(make))
        scratch += _scratch(kernel)
    return {
        "name": name,
        "kernels": len(kernels),
        "candidates": sum(sizes),
        "space": _spread(sizes),
        "space_ms": _spread(spaces),
        "candidate_ms": _spread(made),
        "candidate_bytes": _spread(code),
        "scratch_fits": {
            f"{kb} KB": round(sum(s <= 1024 * kb for s in scratch) / len(scratch), 4)
            for kb in LIMITS
        },
    }


def _scratch(kernel: Kernel) -> list[int]:
    """Bytes that each candidate would need if there were no limit."""
    assert isinstance(DEVICE.machine, Machine)
    default = default_schedule(kernel, TARGET.machine)
    usual, simd.SCRATCH = simd.SCRATCH, 1 << 40
    try:
        search = Search(DEVICE.core)
        found = strategy_of(kernel).candidates(kernel, default, DEVICE.machine, search)
    finally:
        simd.SCRATCH = usual
    return [c.scratch for c in found]


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 2),
        "max": round(max(values), 2),
    }


def main(
    run: Run,
    models: Annotated[
        list[Path] | None, typer.Argument(metavar="[MODEL]…", help="ONNX files.")
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="Candidates that are made, of each.")] = 6,
    length: Annotated[int, typer.Option(min=1, help="Size of named dimensions.")] = 128,
) -> None:
    run.keep(row("K0-K3", [paper_step(name).kernel for name in PAPER], 4 * sample))
    for model in models or ():
        run.keep(row(model.stem, model_kernels(model, length), sample))
