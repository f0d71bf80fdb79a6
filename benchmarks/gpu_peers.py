"""Tilewright, onnxruntime-web, jax-js and TF.js on a real GPU, by turns, each in a Node with Dawn.

Input: a GPU, Node, the npm packages `webgpu` and those of peers/package.json.  Output:
results/gpu_peers.json.  Kernels are timed as many runs in a row whose outputs stay on the GPU;
models so, too, and from the call to the outputs in JavaScript.  Every answer is compared with
onnxruntime's on the CPU first.  What runs in the pages, and the statistics, are peers/'s.

    python benchmarks/gpu_peers.py [--only k0,model] [--engines tilewright,ort] [--seconds 1]
    python benchmarks/gpu_peers.py --small --no-save
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import onnx

from benchmarks import common
from benchmarks.gpu import software
from benchmarks.peers.__main__ import install, say
from benchmarks.peers.cases import Case, Model
from benchmarks.peers.engines import ON_GPU
from benchmarks.peers.files import BUILD, Files, prepared
from benchmarks.peers.gpu_cases import CASES, chosen, small
from benchmarks.peers.measure import (
    Lane,
    Plan,
    Row,
    about,
    attempt,
    finished,
    opened,
    rounds,
    warmed,
)
from benchmarks.peers.models import MODELS
from benchmarks.peers.session import Session
from tilewright.base.errors import TilewrightError
from tilewright.hosts.browser_dawn import require_dawn

BROWSER = "dawn"
TARGETS = ("wgsl",)
MODELS_FOLDER = BUILD / "models"
#: An idle card runs at a fraction of its clock.
SETTLE_MS = 50.0
KEY = ("case", "engine")


def made(case: Case, kinds: Sequence[str]) -> Files:
    """The files of a case; a model is written first, if it is not there."""
    if isinstance(case.work, Model):
        path = MODELS_FOLDER / f"{case.work.stem}.onnx"
        if not path.exists():
            MODELS_FOLDER.mkdir(parents=True, exist_ok=True)
            name = case.name.removesuffix("-small")
            onnx.save(MODELS[name](name != case.name), path)
    return prepared(case, MODELS_FOLDER, kinds, TARGETS)


@contextmanager
def lanes(files: Files, engines: Sequence[str]) -> Iterator[list[Lane]]:
    """An open session for each engine that can run the case, and rows of those that cannot."""
    found = []
    with ExitStack() as stack:
        for name in engines:
            row: Row = {"engine": name, "status": "ok", "why": "", "version": ON_GPU[name].version}
            session = Session(name, 1, BROWSER, ON_GPU[name].asked)
            lane = Lane(session, files, row, stream=files.case.group != "model")
            found.append(lane)
            if (why := files.missing.get(ON_GPU[name].needs)) is not None:
                row |= {"status": "skipped", "why": why}
                continue
            say(f"  {name} …")
            try:
                stack.enter_context(session)
            except TilewrightError as error:
                lane.fail(error)
                continue
            session.add(files)
            attempt(lane, partial(opened, lane, "cold"), say)
        yield found


def measure(files: Files, engines: Sequence[str], plan: Plan) -> list[Row]:
    with lanes(files, engines) as found:
        timed(found, plan)
        if files.case.group == "model":
            # the same in a row, beside what one run takes
            also = [replace(x, row=dict(x.row), stream=True, rounds=[], inside=[]) for x in found]
            timed(also, plan)
            for lane, streamed in zip(found, also, strict=True):
                facts = {k: streamed.row.get(k) for k in ("median_ms", "spread", "batch", "n")}
                lane.row |= {f"stream_{k}": v for k, v in facts.items() if v is not None}
    dropped = ("code_bytes", "code_gzip_bytes")
    return [{k: v for k, v in lane.row.items() if k not in dropped} for lane in found]


def timed(found: Sequence[Lane], plan: Plan) -> None:
    for lane in found:
        attempt(lane, partial(warmed, lane, plan), say)
    rounds([lane for lane in found if lane.alive], plan, time.monotonic, say)
    for lane in found:
        finished(lane)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases or groups, with commas")
    parser.add_argument("--engines", default=",".join(ON_GPU), help="with commas")
    parser.add_argument("--seconds", type=float, default=1.0, help="for an engine on a case")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="small forms, for software adapters")
    parser.add_argument("--jobs", type=int, default=1, help="processes that prepare files")
    parser.add_argument("--no-save", action="store_true", help="leave the results file alone")
    parser.add_argument("--commit", default="", help="what was measured, where there is no git")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    engines = args.engines.split(",")
    if unknown := set(engines) - set(ON_GPU):
        raise SystemExit(f"Unknown engines: {unknown}. Known are {', '.join(ON_GPU)}")
    install(ON_GPU)
    plan = Plan(args.seconds, args.rounds, visits=False, settle=0.0 if args.small else SETTLE_MS)
    dawn = require_dawn()
    facts: dict[str, Any] = {
        "machine": common.machine() | common.nvidia_driver(),
        "versions": common.versions() | software(dawn, None),
        "adapter": dict(dawn.adapter),
        "options": list(dawn.options),
    }
    if args.commit:
        facts["commit"] = args.commit
    cases = chosen([name for name in args.only.split(",") if name])
    cases = [small(case) for case in cases] if args.small else cases
    kinds = [ON_GPU[name].needs for name in engines]
    run = uuid.uuid4().hex[:8]
    with ProcessPoolExecutor(args.jobs) as pool:
        for case, files in zip(cases, pool.map(partial(made, kinds=kinds), cases), strict=True):
            say(f"{case.name} {files.missing or ''}")
            rows = measure(files, engines, plan)
            for row in rows:
                say(f"  {row['engine']:12} {about(row)} {row.get('stream_median_ms', '')}")
            rows = [{"case": case.name, "group": case.group, "run": run, **row} for row in rows]
            if not args.no_save:
                common.merge("gpu_peers", rows, KEY, **facts)
            else:
                print(json.dumps(rows))


if __name__ == "__main__":
    main()
