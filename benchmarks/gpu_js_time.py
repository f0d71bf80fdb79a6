"""How long JavaScript works for a run of a 12-layer encoder on WebGPU, the device's time aside.

Input: Node with the npm packages `webgpu` and `puppeteer-core`, Chromium, an adapter.  Output:
results/gpu_js_time.json, a row per host.  In Chromium it is the engine as pages have it: the page's
thread and the worker's, messages included.  In Node it is the engine's own code in one thread,
with new arrays for the outputs and with those of the run before.

    python benchmarks/gpu_js_time.py [--runs 200] [--narrow] [--host chromium] [--no-save]

A software adapter takes seconds for a run of the whole model: `--narrow` has about as many
dispatches and the same output, but layers with little work.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks import common
from benchmarks.gpu import WGSL, facts
from benchmarks.peers.models import Text, roberta
from tilewright.bundle import write
from tilewright.compiler import compile_model
from tilewright.hosts.browser_dawn import require_dawn
from tilewright.hosts.browser_programs import program
from tilewright.server import BackgroundServer, create_app
from tilewright.server.app import WEB

HERE = Path(__file__).parent
NAME = "encoder"
#: As many dispatches, but little work: for software adapters.
SMALL = Text(length=16, width=64, heads=2, hidden=128, words=1000)
#: Runs before the counted ones: until then the compilers of JavaScript are at work.
WARM = 100
#: The engine's worker in Chromium, and what it imports first to be timed.
WORKER, SPIES = "gpu_worker.js", ("gpu_js_worker.mjs", "gpu_js_spy.mjs")


def narrow() -> onnx.ModelProto:
    """The encoder of `SMALL`, its output repeated to that of the whole model."""
    model, whole = roberta(SMALL), Text()
    (output,) = model.graph.output
    repeats = [1, whole.length // SMALL.length, whole.width // SMALL.width]
    model.graph.initializer.append(numpy_helper.from_array(np.array(repeats), "repeats"))
    model.graph.node.append(helper.make_node("Tile", [output.name, "repeats"], ["repeated"]))
    shape = (1, whole.length, whole.width)
    output.CopyFrom(helper.make_tensor_value_info("repeated", TensorProto.FLOAT, shape))
    return model


def told(command: Sequence[str], environment: Mapping[str, str], given: str = "") -> dict[str, Any]:
    """The last line of JSON that a script prints."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, input=given, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stdout}{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def in_node(bundle: Path, runs: int, *given: str) -> dict[str, Any]:
    dawn = require_dawn()
    with BackgroundServer(create_app({NAME: bundle})) as server:
        words = (str(dawn.package), " ".join(dawn.options), f"{server.url}/bundles/{NAME}/")
        node = (str(dawn.path), "--no-warnings", str(HERE / "gpu_js_time.mjs"))
        return told((*node, *words, str(WARM), str(runs), *given), dawn.environment)


def in_chromium(bundle: Path, runs: int) -> dict[str, Any]:
    browser = program("chromium-webgpu")
    with tempfile.TemporaryDirectory(prefix="js-time-") as folder:
        web = shutil.copytree(WEB, Path(folder, "web"))
        for spy in SPIES:
            shutil.copy(HERE / spy, web / "engine")
        worker = web / "engine" / WORKER
        worker.write_text(f"import './{SPIES[0]}';\n{worker.read_text()}")
        with BackgroundServer(create_app({NAME: bundle}, web=web)) as server:
            asked = {
                "command": browser.command(Path(folder), ""), "url": f"{server.url}/host/host.html",
                "bundle": f"/bundles/{NAME}/", "warm": WARM, "runs": runs,
            }  # fmt: skip
            command = ("node", str(HERE / "gpu_js_page.mjs"))
            return told(command, browser.environment, json.dumps(asked))


HOSTS: Mapping[str, Callable[[Path, int], dict[str, Any]]] = {
    "node": in_node,
    "node, given arrays": lambda bundle, runs: in_node(bundle, runs, "given"),
    "chromium": in_chromium,
}


def figures(found: Mapping[str, Any]) -> dict[str, Any]:
    """Medians in milliseconds of the parts of a run: before the last submission, after the
    device's answer, and in Chromium in the page; `dawn`: of them in finish() and submit().
    `bare`: in Node, what the calls that record dispatches take by themselves;  `own`: without both
    `quiet`: the lowest decile of all of it, which a busy machine disturbs less."""
    runs: Sequence[Mapping[str, float]] = found["runs"]
    columns = {key: [run[key] for run in runs] for key in runs[0]}
    whole = [run["before"] + run["after"] + run.get("page", 0.0) for run in runs]
    rest = [total - dawn for total, dawn in zip(whole, columns["dawn"], strict=True)]
    columns |= {"whole": whole, "without_dawn": rest}
    if "bare" in columns:
        columns["own"] = [total - bare for total, bare in zip(rest, columns["bare"], strict=True)]
    medians = {f"{key}_ms": round(statistics.median(of), 4) for key, of in columns.items()}
    return {
        "dispatches": found["dispatches"], **medians,
        "quiet_ms": round(statistics.quantiles(whole, n=10)[0], 4),
        "spread": round(common.spread(whole), 4), "n": len(runs),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--host", action="append", choices=HOSTS, help="by default all")
    parser.add_argument("--narrow", action="store_true", help="layers with little work")
    parser.add_argument("--no-save", action="store_true", help="nothing is written")
    parser.add_argument("--commit", default="", help="what was measured, where there is no git")
    args = parser.parse_args()
    sizes = SMALL if args.narrow else Text()
    with tempfile.TemporaryDirectory(prefix="js-time-") as folder:
        bundle, rows = Path(folder), []
        write(compile_model(narrow() if args.narrow else roberta(sizes), WGSL).contents, bundle)
        for host in args.host or HOSTS:
            found = HOSTS[host](bundle, args.runs)
            about = {"host": host, "adapter": found["adapter"], "model": "RoBERTa-base"}
            rows.append({**about, **vars(sizes), **figures(found)})
            print(json.dumps(rows[-1]), flush=True)
    if not args.no_save:
        known = facts(require_dawn(), args.commit)
        print(common.merge("gpu_js_time", rows, ("host", "width"), **known))


if __name__ == "__main__":
    main()
