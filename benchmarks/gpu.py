"""Kernels of the WGSL target on a real GPU, through Dawn in Node: TFLOP/s, beside cuBLAS.

Input: a GPU, Node, the npm package `webgpu`.  Output: results/gpu.json.  The engine's own backend
repeats a plan of one kernel in one submission, and its time is that of the GPU's own clock.  Beside
it: a WGSL kernel that copies memory and, where PyTorch sees the GPU, cuBLAS in f32 without TF32, by
turns with ours.  Random data; outputs are compared before anything is timed.

    python benchmarks/gpu.py [--only K0] [--rounds 5] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import common
from cublas import cuda
from products import CASES, RUNS, Case, Runner, chosen, measure

from tilewright.bundle import write
from tilewright.compiler import Options
from tilewright.hosts.browser import BrowserHost
from tilewright.hosts.browser_dawn import Dawn, require_dawn

WGSL = Options(targets=("wgsl",))
COPY_BYTES = 1 << 30


class OnDawn(Runner):
    """A case in the engine, on Dawn."""

    def __init__(self, host: BrowserHost, case: Case, folder: Path) -> None:
        write(case.subject(case.readers, WGSL).contents, folder)
        self.model = host.load(folder)
        info = self.model.info
        super().__init__(case, [str(x["name"]) for x in (*info["inputs"], info["outputs"][0])])

    def run(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.model.run(inputs).outputs

    def many(self, runs: int) -> list[float]:
        return self.model.time(runs, 0, repeat=self.times).milliseconds

    def waited(self) -> float:
        return statistics.median(self.model.time(RUNS, 1).milliseconds)

    @property
    def features(self) -> Sequence[str]:
        features: list[str] = self.model.info["variant"]["features"]
        return features


def memory(dawn: Dawn, size: int) -> dict[str, Any]:
    """The adapter with its limits, and GB/s of a WGSL kernel that copies and one that reads."""
    script = Path(__file__).with_name("gpu_copy.mjs")
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
            "spread": round(common.spread(times), 4),
            "n": len(times),
        }
        for kind, times in found["milliseconds"].items()
    }
    return {"adapter": found["adapter"], "memory": rows | {"bytes": found["bytes"]}}


def software(dawn: Dawn, torch: Any) -> dict[str, str]:
    package = json.loads((dawn.package / "package.json").read_text())
    node = subprocess.run(
        [str(dawn.path), "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    found = {"webgpu": package["version"], "node": node}
    return found | ({"torch": torch.__version__, "cuda": torch.version.cuda} if torch else {})


def facts(dawn: Dawn, commit: str = "") -> dict[str, Any]:
    """What a record says of where it was measured; `commit` where there is no git."""
    return {
        **common.nvidia_facts(commit),
        "versions": common.versions() | software(dawn, None),
        "options": list(dawn.options),
        "adapter": dict(dawn.adapter),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], help="cases that begin so; others keep their rows"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="K0 right, and nothing is written")
    parser.add_argument("--copy-bytes", type=int, default=COPY_BYTES)
    parser.add_argument("--commit", default="", help="what was measured, where there is no git")
    args = parser.parse_args()
    dawn, torch = require_dawn(), cuda()
    with tempfile.TemporaryDirectory(prefix="gpu-") as folder, BrowserHost(dawn) as host:
        if args.smoke:
            smoke(host, dawn, Path(folder))
            return
        moved = memory(dawn, args.copy_bytes)
        print(json.dumps(moved["memory"]), flush=True)
        rows = []
        for number, case in enumerate(chosen(args.only)):
            ours = OnDawn(host, case, Path(folder, str(number)))
            rows.append(measure(ours, torch, case, args.rounds))
            ours.model.dispose()
            print(rows[-1], flush=True)
    known = facts(dawn, args.commit) | moved
    known["versions"] |= software(dawn, torch)
    print(common.merge("gpu", rows, ("case",), **known))


def smoke(host: BrowserHost, dawn: Dawn, folder: Path) -> None:
    print(json.dumps(dict(dawn.adapter)))
    print(json.dumps(host.info))
    ours = OnDawn(host, CASES[0], folder)
    print(ours.model.info["variant"], ours.model.info["lost"])
    print("relative error", ours.error, "ms", ours.model.time(10, 3).milliseconds)


if __name__ == "__main__":
    main()
