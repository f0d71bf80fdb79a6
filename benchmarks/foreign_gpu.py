"""Elastic forms of kernels of the usual kinds on an NVIDIA GPU: bits under eviction, and cost.

Input: a GPU with its driver, the extras `cuda` and `elastic`.  Output: results/foreign_gpu.json.
The kernels are those of tests/elastic_sources/samples.cu, on sizes that fill a GPU.

    python benchmarks/foreign_gpu.py [--rounds 15] [--evictions 20]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import common
import numpy as np

from tilewright.elastic.transform import transform
from tilewright.elastic.transform.gpu_trial import GpuTrial
from tilewright.elastic.transform.trial import TrialLaunch, bits, copies

SOURCE = Path(__file__).parents[1] / "tests" / "elastic_sources" / "samples.cu"
I = np.int32  # noqa: E741
RNG = np.random.default_rng(0)
#: The GPU's clock settles within so many milliseconds, and one measurement takes about as many.
WARM_MS, RUN_MS = 200.0, 10.0


def _f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def _z(*shape: int) -> Any:
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


def measured(trial: GpuTrial, name: str, rounds: int, evictions: int) -> dict[str, Any]:
    launch = CASES[name][1]
    plain, rng, taken, away = copies(launch), random.Random(0), 0, 0
    trial.plain(name, plain)
    expected = bits(plain)
    once = trial.cost(name, copies(launch), 3)[0]

    def leave() -> int:
        time.sleep(rng.uniform(0, 1e-3 * max(once, 0.02)))
        return rng.choice((0, 0, 1, 7))

    for _ in range(evictions):
        given = copies(launch)
        taken += 1
        away += trial.elastic(name, given, leave) - 1
        if bits(given) != expected:
            return {"kernel": name, "equal": False, "evictions": away, "runs": taken}
    times = max(1, min(200, round(RUN_MS / max(once, 1e-3))))
    spent = 0.0
    while spent < WARM_MS:
        spent += sum(trial.cost(name, launch, times)) * times
    pairs = [trial.cost(name, launch, times) for _ in range(rounds)]
    ratios = [e / p for p, e in pairs]
    return {
        "kernel": name,
        "equal": True,
        "runs": taken,
        "evictions": away,
        "plain_ms": round(statistics.median(p for p, _ in pairs), 5),
        "elastic_ms": round(statistics.median(e for _, e in pairs), 5),
        "ratio": round(statistics.median(ratios), 4),
        "spread": round(common.spread(ratios), 4),
        "n": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--evictions", type=int, default=20)
    parser.add_argument("--commit", default="", help="what was measured, where there is no git")
    args = parser.parse_args()
    text = transform(SOURCE.read_text(), SOURCE.name).text
    trial = GpuTrial(text, {name: kernel for name, (kernel, _) in CASES.items()})
    rows = []
    for name in CASES:
        rows.append(measured(trial, name, args.rounds, args.evictions))
        print(rows[-1], flush=True)
    print(common.save(
        "foreign_gpu", rows,
        machine=common.machine() | common.nvidia_driver(),
        versions=common.versions(),
        commit=args.commit or common.commit(),
    ))  # fmt: skip


if __name__ == "__main__":
    main()
