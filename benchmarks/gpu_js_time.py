"""How long JavaScript works for a run of a 12-layer encoder on WebGPU, the GPU's time aside.

Input: Node, the npm package `webgpu`, a GPU or a software adapter.  Output:
results/gpu_js_time.json.  gpu_js_time.mjs runs the engine's own code in one thread; what messages
between page and worker cost is not in it.

    python benchmarks/gpu_js_time.py [--runs 200] [--small]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import common
from benchmarks.gpu import WGSL, facts
from benchmarks.peers.models import Text, roberta
from tilewright.bundle import write
from tilewright.compiler import compile_model
from tilewright.hosts.browser_dawn import Dawn, require_dawn
from tilewright.server import BackgroundServer, create_app

SCRIPT = Path(__file__).with_suffix(".mjs")
NAME = "encoder"
#: As many dispatches, but little work: for software adapters.
SMALL = Text(length=16, width=64, heads=2, hidden=128, words=1000)


def spent(dawn: Dawn, bundle: Path, runs: int) -> dict[str, Any]:
    """What the script says of each run."""
    with BackgroundServer(create_app({NAME: bundle})) as server:
        words = (str(dawn.package), " ".join(dawn.options), f"{server.url}/bundles/{NAME}/")
        done = subprocess.run(
            [str(dawn.path), "--no-warnings", str(SCRIPT), *words, str(runs)],
            env={**os.environ, **dawn.environment}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{SCRIPT.name} failed:\n{done.stdout}{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def figures(runs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Medians in milliseconds: before the last submission, after the device's answer, of both."""
    columns = {key: [run[key] for run in runs] for key in runs[0]}
    whole = [run["before"] + run["after"] for run in runs]
    own = [total - dawn for total, dawn in zip(whole, columns["dawn"], strict=True)]
    return {
        "dispatches": runs[0]["dispatches"],
        **{f"{k}_ms": round(statistics.median(columns[k]), 4) for k in ("before", "after", "dawn")},
        "whole_ms": round(statistics.median(whole), 4),
        "without_dawn_ms": round(statistics.median(own), 4),
        "device_ms": round(statistics.median(columns["device"]), 4),
        "spread": round(common.spread(whole), 4),
        "n": len(runs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--small", action="store_true", help="narrow layers; nothing is written")
    parser.add_argument("--commit", default="", help="what was measured, where there is no git")
    args = parser.parse_args()
    sizes, dawn = SMALL if args.small else Text(), require_dawn()
    with tempfile.TemporaryDirectory(prefix="js-time-") as folder:
        write(compile_model(roberta(sizes), WGSL).contents, Path(folder))
        found = spent(dawn, Path(folder), args.runs)
    row = {"model": "RoBERTa-base", **vars(sizes), **figures(found["runs"])}
    print(json.dumps(row))
    if args.small:
        return
    print(common.save("gpu_js_time", [row], **facts(dawn, args.commit)))


if __name__ == "__main__":
    main()
