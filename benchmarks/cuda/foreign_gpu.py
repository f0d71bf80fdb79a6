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
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.common import Run, nvidia_machine
from benchmarks.options import Rounds
from benchmarks.records import Row
from lab.timing import figures
from tilewright.elastic.transform import ElasticOptions, Transformed, transform
from tilewright.elastic.transform.cpu_trial import TrialLaunch, bits, copies
from tilewright.elastic.transform.gpu_trial import GpuTrial

SOURCE = Path(__file__).parents[2] / "tests" / "elastic_sources" / "samples.cu"
I = np.int32  # noqa: E741
RNG = np.random.default_rng(0)
#: The GPU's clock settles within so many milliseconds, and one measurement takes about as many.
WARM_MS, RUN_MS = 200.0, 10.0


def _f(*shape: int) -> NDArray[np.float32]:
    return RNG.standard_normal(shape, np.float32)


def _z(*shape: int) -> NDArray[np.float32]:
    return np.zeros(shape, np.float32)


N = 1 << 24
CASES: dict[str, tuple[str, TrialLaunch]] = {
    "reduce": ("reduce", TrialLaunch((N // 64, 1, 1), (64, 1, 1), (_f(N), _z(N // 64), I(N)), 256)),
    "scan": (
        "scan",
        TrialLaunch((N // 64, 1, 1), (64, 1, 1),
                  (RNG.integers(0, 9, N, np.int32), np.zeros(N, np.int32), I(N))),
    ),
    "transpose": (
        "transpose",
        TrialLaunch((128, 128, 1), (32, 8, 1), (_f(4096, 4096), _z(4096, 4096), I(4096), I(4096))),
    ),
    "gram": (
        "gram",
        TrialLaunch((64, 256, 1), (32, 8, 1),
                  (_f(2048, 1024), _z(2048, 2048), I(2048), I(1024))),
    ),
    "histogram": (
        "histogram",
        TrialLaunch((4096, 1, 1), (256, 1, 1),
                  (RNG.integers(0, 256, N).astype(np.uint8), np.zeros(256, np.uint32), I(N))),
    ),
    "stencil": (
        "stencil",
        TrialLaunch((8, 64, 64), (32, 4, 4),
                  (_f(N), _z(N), np.void(np.array([256] * 3, np.uint32).tobytes()))),
    ),
    "bodies": (
        "bodies",
        TrialLaunch((1024, 1, 1), (32, 1, 1), (_f(1 << 15, 4), _z(1 << 15, 4), I(1 << 15))),
    ),
    "softmax": (
        "softmax",
        TrialLaunch((1 << 11, 1, 1), (256, 1, 1),
                  (_f(1 << 16, 256), _z(1 << 16, 256), I(1 << 16), I(256))),
    ),
    "gemm": (
        "gemm<float, 16>",
        TrialLaunch((64, 64, 1), (16, 16, 1),
                  (_f(1 << 20), _f(1 << 20), _z(1 << 20), I(1024), I(1024), I(1024))),
    ),
    "shifted": (
        "shifted<5>",
        TrialLaunch((N // 256, 1, 1), (256, 1, 1), (RNG.integers(0, 9, N, np.int32), I(N))),
    ),
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


def measured(trial: GpuTrial, name: str, rounds: int, evictions: int) -> Row:
    launch = CASES[name][1]
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
    """Cases whose kernel has a shared array that was made longer."""
    longer = {k.name for k in made.kernels if any("one element longer" in n for n in k.notes)}
    return (name for name, (kernel, _) in CASES.items() if kernel.partition("<")[0] in longer)


def padding(trial: GpuTrial, padded: GpuTrial, name: str, rounds: int) -> Row:
    launch = CASES[name][1]
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
    source, names = SOURCE.read_text(), {name: kernel for name, (kernel, _) in CASES.items()}
    threads = dict[str, int]()
    for kernel, launch in CASES.values():
        name = kernel.partition("<")[0]
        threads[name] = max(threads.get(name, 1), prod(launch.block))
    text = transform(source, SOURCE.name, options=ElasticOptions(threads=threads)).text
    rows = []
    for tiles in each or (None,):
        trial = GpuTrial(text, names, each=tiles)
        for name in CASES:
            rows.append(measured(trial, name, rounds, evictions))
            run.show(rows[-1])
    made = transform(source, SOURCE.name, options=ElasticOptions(pad=True, threads=threads))
    padded, plain = GpuTrial(made.text, names), GpuTrial(text, names)
    for name in padded_names(made):
        rows.append(padding(plain, padded, name, rounds))
        run.show(rows[-1])
    run.save(rows, machine=nvidia_machine())
