"""Elastic forms of kernels of the usual kinds on an NVIDIA GPU: bits under eviction, and cost.

Input: a GPU with its driver, the extras `cuda` and `elastic`.  Output:
results/cuda.foreign_gpu.json. The kernels are those of tests/elastic_sources/samples.cu, on sizes
that fill a GPU.

* what "forms": each kernel, plain and elastic; ratio: elastic over plain;  each: tiles of a task;
  task_us: how long a task takes a worker, and so at most who asks for room;
* what "padding": kernels whose shared arrays `--pad-shared` makes longer, in the elastic form with
  and without; ratio: with over without.

    python -m benchmarks cuda.foreign_gpu [--rounds 15] [--evictions 20] [--each 1 --each 4]
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from math import ceil, prod
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.common import ROOT, Run, nvidia_machine
from benchmarks.gpu.gpu_clock import RUN_MS, WARM_MS
from benchmarks.options import Rounds
from benchmarks.records import Row
from lab.timing import figures
from tilewright.elastic.transform import ElasticOptions, Transformed, transform
from tilewright.elastic.transform.cpu_trial import TrialLaunch, bits, copies
from tilewright.elastic.transform.gpu_trial import GpuTrial

SOURCE = ROOT / "tests" / "elastic_sources" / "samples.cu"
#: Elements of the long arrays: more than the caches of a GPU hold.
N = 1 << 24
#: How C++ calls the kernels; templates have their arguments.
KERNELS = {
    name: name
    for name in ("reduce", "scan", "transpose", "gram", "histogram", "stencil", "bodies", "softmax")
} | {"gemm": "gemm<float, 16>", "shifted": "shifted<5>"}


def launches() -> dict[str, TrialLaunch]:
    """Of each kernel, with arguments that fill a GPU: about a gigabyte."""
    rng, i32 = np.random.default_rng(0), np.int32

    def normal(*shape: int) -> NDArray[np.float32]:
        return rng.standard_normal(shape, np.float32)

    def zeros(*shape: int) -> NDArray[np.float32]:
        return np.zeros(shape, np.float32)

    def digits() -> NDArray[np.int32]:
        return rng.integers(0, 9, N, i32)

    size, square, one = i32(N), 1 << 20, (64, 1, 1)
    pixels = rng.integers(0, 256, N).astype(np.uint8)
    cube = np.void(np.array([256] * 3, np.uint32).tobytes())
    return {
        "reduce": TrialLaunch((N // 64, 1, 1), one, (normal(N), zeros(N // 64), size), 256),
        "scan": TrialLaunch((N // 64, 1, 1), one, (digits(), np.zeros(N, i32), size)),
        "transpose": TrialLaunch((128, 128, 1), (32, 8, 1),
                                 (normal(4096, 4096), zeros(4096, 4096), i32(4096), i32(4096))),
        "gram": TrialLaunch((64, 256, 1), (32, 8, 1),
                            (normal(2048, 1024), zeros(2048, 2048), i32(2048), i32(1024))),
        "histogram": TrialLaunch((4096, 1, 1), (256, 1, 1),
                                 (pixels, np.zeros(256, np.uint32), size)),
        "stencil": TrialLaunch((8, 64, 64), (32, 4, 4), (normal(N), zeros(N), cube)),
        "bodies": TrialLaunch((1024, 1, 1), (32, 1, 1),
                              (normal(1 << 15, 4), zeros(1 << 15, 4), i32(1 << 15))),
        "softmax": TrialLaunch((1 << 11, 1, 1), (256, 1, 1),
                               (normal(1 << 16, 256), zeros(1 << 16, 256), i32(1 << 16), i32(256))),
        "gemm": TrialLaunch((64, 64, 1), (16, 16, 1),
                            (normal(square), normal(square), zeros(square), *[i32(1024)] * 3)),
        "shifted": TrialLaunch((N // 256, 1, 1), (256, 1, 1), (digits(), size)),
    }  # fmt: skip


#: Milliseconds of two runs, each the mean of so many.
Cost = Callable[[int], tuple[float, float]]


def compared(cost: Cost, rounds: int) -> tuple[float, float, Row]:
    """Medians of both, by turns on a warm GPU; the ratio of the second to the first."""
    once = cost(3)[0]
    times = max(1, min(200, round(RUN_MS / max(once, 1e-3))))
    spent = 0.0
    while spent < WARM_MS:
        spent += sum(cost(times)) * times
    pairs = [cost(times) for _ in range(rounds)]
    ratios = [second / first for first, second in pairs]
    first, second = (round(statistics.median(p[n] for p in pairs), 5) for n in range(2))
    return first, second, dict(figures(ratios, "ratio"))


def measured(trial: GpuTrial, name: str, launch: TrialLaunch, rounds: int, evictions: int) -> Row:
    plain, rng, taken, away = copies(launch), random.Random(0), 0, 0
    trial.plain(name, plain)
    expected = bits(plain)
    once = trial.cost(name, copies(launch), 3)[0]

    def leave() -> int:
        time.sleep(rng.uniform(0, 1e-3 * max(once, 0.02)))
        return rng.choice((0, 0, 1, 7))

    each = trial.tiles_of_task(name, launch)
    row: Row = {"what": "forms", "kernel": name, "each": each}
    for _ in range(evictions):
        given = copies(launch)
        taken += 1
        away += trial.elastic(name, given, leave) - 1
        if bits(given) != expected:
            return {**row, "equal": False, "evictions": away, "runs": taken}
    row |= {"equal": True, "runs": taken, "evictions": away}
    plain_ms, elastic_ms, found = compared(lambda n: trial.cost(name, launch, n), rounds)
    task_us = 1e3 * elastic_ms * trial.workers(name, launch) / ceil(launch.tiles / each)
    times = {"plain_ms": plain_ms, "elastic_ms": elastic_ms, "task_us": round(task_us, 2)}
    return {**row, **times, **found}


def padded_names(made: Transformed) -> Iterator[str]:
    """Kernels with a shared array that was made longer."""
    longer = {k.name for k in made.kernels if any("one element longer" in n for n in k.notes)}
    return (name for name in KERNELS if name in longer)


def padding(trial: GpuTrial, padded: GpuTrial, name: str, launch: TrialLaunch, rounds: int) -> Row:
    plain, given = copies(launch), copies(launch)
    trial.plain(name, plain)
    padded.elastic(name, given, lambda: None)
    row = {"what": "padding", "kernel": name, "equal": bits(given) == bits(plain)}

    def cost(times: int) -> tuple[float, float]:
        return trial.cost(name, launch, times)[1], padded.cost(name, launch, times)[1]

    elastic_ms, padded_ms, found = compared(cost, rounds)
    return {**row, "elastic_ms": elastic_ms, "padded_ms": padded_ms, **found}


def main(
    run: Run,
    rounds: Rounds = 15,
    evictions: Annotated[int, typer.Option(min=1, help="Runs from which workers go.")] = 20,
    each: Annotated[list[int] | None, typer.Option(help="Tiles of a task; repeatable.")] = None,
) -> None:
    source, given = SOURCE.read_text(), launches()
    threads = {name: prod(launch.block) for name, launch in given.items()}
    text = transform(source, SOURCE.name, options=ElasticOptions(threads=threads)).text
    rows = []
    for tiles in each or (None,):
        trial = GpuTrial(text, KERNELS, each=tiles)
        for name, launch in given.items():
            rows.append(measured(trial, name, launch, rounds, evictions))
            run.show(rows[-1])
    made = transform(source, SOURCE.name, options=ElasticOptions(pad=True, threads=threads))
    padded, plain = GpuTrial(made.text, KERNELS), GpuTrial(text, KERNELS)
    for name in padded_names(made):
        rows.append(padding(plain, padded, name, given[name], rounds))
        run.show(rows[-1])
    run.save(rows, facts={"machine": nvidia_machine()})
