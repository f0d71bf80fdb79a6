"""Kernels of the WGSL target on a real GPU, through Dawn in Node: TFLOP/s, beside cuBLAS.

Input: a GPU, Node, the npm package `webgpu`.  Output: results/gpu.kernels.json.  The engine's own
backend repeats a plan of one kernel in one submission, and its time is that of the GPU's own
clock.  Beside it: a WGSL kernel that copies memory and, where PyTorch sees the GPU, cuBLAS in f32
without TF32, by turns with ours.  Random data; outputs are compared before anything is timed.

    python -m benchmarks gpu.kernels [--only K0] [--rounds 5] [--smoke]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import Run
from benchmarks.gpu.cublas import cuda
from benchmarks.gpu.dawn import WGSL, facts
from benchmarks.gpu.products import (
    CASES,
    RUNS,
    Case,
    Runner,
    chosen_cases,
    measure,
)
from benchmarks.options import Only, Rounds
from benchmarks.records import Row
from lab.timing import spread
from tilewright.base.numpy_scalars import Array
from tilewright.bundle import write
from tilewright.hosts.browser import BrowserHost
from tilewright.hosts.browser_dawn import Dawn, require_dawn

COPY_BYTES = 1 << 30


class OnDawn(Runner):
    """A case in the engine, on Dawn."""

    def __init__(self, host: BrowserHost, case: Case, folder: Path) -> None:
        write(case.subject(case.readers, WGSL).contents, folder)
        self.model = host.load(folder)
        info = self.model.info
        super().__init__(case, [str(x["name"]) for x in (*info["inputs"], info["outputs"][0])])

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return self.model.run(inputs).outputs

    def many(self, runs: int) -> list[float]:
        return self.model.time(runs, 0, repeat=self.times).milliseconds

    def waited(self) -> float:
        return statistics.median(self.model.time(RUNS, 1).milliseconds)

    @property
    def features(self) -> Sequence[str]:
        features: list[str] = self.model.info["variant"]["features"]
        return features


def memory(dawn: Dawn, size: int) -> Row:
    """The adapter with its limits, and GB/s of a WGSL kernel that copies and one that reads."""
    script = Path(__file__).with_name("copy.mjs")
    command = [str(dawn.path), str(script), str(dawn.package), " ".join(dawn.options), str(size)]
    done = subprocess.run(
        command, env={**os.environ, **dawn.environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{script.name} failed:\n{done.stdout}{done.stderr}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    moved = {"copy": 2 * found["bytes"], "read": found["bytes"]}
    rows = {
        kind: {
            "gb_per_s": round(moved[kind] / statistics.median(times) / 1e6, 1),
            "spread": round(spread(times), 4),
            "n": len(times),
        }
        for kind, times in found["milliseconds"].items()
    }
    return {"adapter": found["adapter"], "memory": rows | {"bytes": found["bytes"]}}


def main(
    run: Run,
    only: Only = None,
    rounds: Rounds = 5,
    smoke: Annotated[bool, typer.Option("--smoke", help="K0 right; nothing is written.")] = False,
    copy_bytes: Annotated[int, typer.Option(help="That are copied and read.")] = COPY_BYTES,
) -> None:
    dawn, torch = require_dawn(), cuda()
    with tempfile.TemporaryDirectory(prefix="gpu-") as folder, BrowserHost(dawn) as host:
        if smoke:
            shown(host, dawn, Path(folder))
            return
        moved = memory(dawn, copy_bytes)
        print(json.dumps(moved["memory"]), flush=True)
        rows = []
        for number, case in enumerate(chosen_cases(only)):
            ours = OnDawn(host, case, Path(folder, str(number)))
            rows.append(measure(ours, torch, case, rounds))
            ours.model.dispose()
            run.show(rows[-1])
    run.save(rows, facts=facts(dawn, torch) | moved)


def shown(host: BrowserHost, dawn: Dawn, folder: Path) -> None:
    print(json.dumps(dict(dawn.adapter)))
    print(json.dumps(host.info))
    ours = OnDawn(host, CASES[0], folder)
    print(ours.model.info["variant"], ours.model.info["lost"])
    print("relative error", ours.error, "ms", ours.model.time(10, 3).milliseconds)
