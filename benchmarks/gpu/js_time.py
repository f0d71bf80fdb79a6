"""How long JavaScript works for a run of a 12-layer encoder on WebGPU, the device's time aside.

Input: Node with the npm packages `webgpu` and `puppeteer-core`, Chromium, an adapter.  Output:
results/gpu.js_time.json, a row per host.  In Chromium it is the engine as pages have it: the page's
thread and the worker's, messages included.  In Node it is the engine's own code in one thread,
with new arrays for the outputs and with those of the run before.

    python -m benchmarks gpu.js_time [--runs 200] [--narrow] [--host chromium]

A software adapter takes seconds for a run of the whole model: `--narrow` has about as many
dispatches and the same output, but layers with little work.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import onnx
import typer
from onnx import TensorProto, helper, numpy_helper

from benchmarks.common import Run
from benchmarks.gpu.dawn import WGSL, facts
from benchmarks.options import Runs, among
from benchmarks.peers.models import Text, roberta
from benchmarks.records import Row
from lab.timing import spread
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
WORKER, SPIES = "gpu_worker.js", ("js_worker.mjs", "js_spy.mjs")


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


@dataclass(frozen=True)
class Told:
    """What a script measured.  runs: milliseconds of the parts of each run, by name"""

    adapter: str
    dispatches: int
    runs: Sequence[Mapping[str, float]]


def told(command: Sequence[str], environment: Mapping[str, str], given: str = "") -> Told:
    """The last line of JSON that a script prints."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, input=given, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stdout}{done.stderr}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return Told(found["adapter"], found["dispatches"], found["runs"])


def in_node(bundle: Path, runs: int, *given: str) -> Told:
    dawn = require_dawn()
    with BackgroundServer(create_app({NAME: bundle})) as server:
        words = (str(dawn.package), " ".join(dawn.options), f"{server.url}/bundles/{NAME}/")
        node = (str(dawn.path), "--no-warnings", str(HERE / "js_time.mjs"))
        return told((*node, *words, str(WARM), str(runs), *given), dawn.environment)


def in_chromium(bundle: Path, runs: int) -> Told:
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
            command = ("node", str(HERE / "js_page.mjs"))
            return told(command, browser.environment, json.dumps(asked))


HOSTS: Mapping[str, Callable[[Path, int], Told]] = {
    "node": in_node,
    "node, given arrays": lambda bundle, runs: in_node(bundle, runs, "given"),
    "chromium": in_chromium,
}


def figures(found: Told) -> Row:
    """Medians in milliseconds of the parts of a run: before the last submission, after the
    device's answer, and in Chromium in the page; `dawn`: of them in finish() and submit().
    `bare`: in Node, what the calls that record dispatches take by themselves;  `own`: without both
    `quiet`: the lowest decile of all of it, which a busy machine disturbs less."""
    runs = found.runs
    columns = {key: [run[key] for run in runs] for key in runs[0]}
    whole = [run["before"] + run["after"] + run.get("page", 0.0) for run in runs]
    rest = [total - dawn for total, dawn in zip(whole, columns["dawn"], strict=True)]
    columns |= {"whole": whole, "without_dawn": rest}
    if "bare" in columns:
        columns["own"] = [total - bare for total, bare in zip(rest, columns["bare"], strict=True)]
    medians = {f"{key}_ms": round(statistics.median(of), 4) for key, of in columns.items()}
    return {
        "dispatches": found.dispatches, **medians,
        "quiet_ms": round(statistics.quantiles(whole, n=10)[0], 4),
        "spread": round(spread(whole), 4), "n": len(runs),
    }  # fmt: skip


def main(
    run: Run,
    runs: Runs = 200,
    host: Annotated[list[str] | None, among(HOSTS, "By default all; repeatable")] = None,
    narrowed: Annotated[bool, typer.Option("--narrow", help="Layers with little work.")] = False,
) -> None:
    sizes = SMALL if narrowed else Text()
    with tempfile.TemporaryDirectory(prefix="js-time-") as folder:
        bundle, rows = Path(folder), []
        write(compile_model(narrow() if narrowed else roberta(sizes), WGSL).contents, bundle)
        for name in host or HOSTS:
            found = HOSTS[name](bundle, runs)
            about = {"host": name, "adapter": found.adapter, "model": "RoBERTa-base"}
            rows.append({**about, **vars(sizes), **figures(found)})
            run.show(rows[-1])
    run.save(rows, facts=facts(require_dawn()))
