"""Tilewright, onnxruntime-web, jax-js and TF.js on a real GPU, by turns, each in a Node with Dawn.

Input: a GPU, Node, the npm packages `webgpu` and those of package.json; for cuBLAS, which
joins in the products, PyTorch.  Output: results/peers.webgpu.json.  Kernels are timed as many runs
in a row whose outputs stay on the GPU; models so, too, and from the call to the outputs in
JavaScript. Every answer is compared with onnxruntime's on the CPU first.  What runs in the pages,
and the statistics, are those of peers.browsers.

    python -m benchmarks peers.webgpu [--only k0,model] [--engines tilewright,ort] [--seconds 1]
    python -m benchmarks peers.webgpu --smoke
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import onnx
import typer

from benchmarks.common import Run
from benchmarks.gpu.dawn import facts
from benchmarks.models import nets
from benchmarks.options import Rounds, Smoke, separated
from benchmarks.peers import models
from benchmarks.peers.browsers import Sessions, install, say, sessions
from benchmarks.peers.cases import Case, Model, chosen
from benchmarks.peers.cublas_session import CublasSession, suits
from benchmarks.peers.cublas_session import version as cublas_version
from benchmarks.peers.engines import CUBLAS, ON_GPU, ON_GPUS
from benchmarks.peers.files import MADE, Files, prepared, source
from benchmarks.peers.gpu_cases import CASES, small
from benchmarks.peers.measure import (
    EngineRow,
    Lane,
    Plan,
    about,
    attempt,
    finished,
    opened,
    rounds,
    warmed,
)
from benchmarks.records import Row
from tilewright.base.errors import TilewrightError
from tilewright.hosts.browser_dawn import require_dawn

BROWSER = "dawn"
TARGETS = ("wgsl",)
#: By the source of what writes them.
MODELS_FOLDER = MADE / "models" / source(*(Path(m.__file__ or "") for m in (nets, models)))[:16]
#: An idle card runs at a fraction of its clock.
SETTLE_MS = 50.0


def made(case: Case, kinds: Sequence[str]) -> Files:
    """The files of a case; a model is written first, if it is not there."""
    if isinstance(case.work, Model):
        path = MODELS_FOLDER / f"{case.work.stem}.onnx"
        if not path.exists():
            MODELS_FOLDER.mkdir(parents=True, exist_ok=True)
            name = case.name.removesuffix("-small")
            onnx.save(models.MODELS[name](name != case.name), path)
    return prepared(case, MODELS_FOLDER, kinds, TARGETS)


def lane(files: Files, pool: Sessions, name: str) -> Lane | EngineRow:
    """An engine with the case loaded and its answer checked; a row that says why not."""
    engine, model = ON_GPUS[name], files.case.group == "model"
    version = cublas_version() if engine is CUBLAS else engine.version
    row = EngineRow(engine=name, status="ok", why="", version=version)
    if (why := files.missing.get(engine.needs)) is not None:
        return {**row, "status": "skipped", "why": why}
    for fresh in (model, True):
        try:
            session = CublasSession() if engine is CUBLAS else pool.get(name, 1, fresh)
        except TilewrightError as error:
            return {**row, "status": "failed", "why": str(error)}
        session.add(files)
        found = Lane(session, files, row.copy(), stream=not model)
        attempt(found, partial(opened, found, "again"), say)
        # what an earlier case left behind must not count
        if found.alive:
            break
    return found


def measure(files: Files, pool: Sessions, engines: Sequence[str], plan: Plan) -> list[EngineRow]:
    with ThreadPoolExecutor(len(engines)) as threads:
        made = list(threads.map(partial(lane, files, pool), engines))
    lanes = [each for each in made if isinstance(each, Lane)]
    timed(lanes, plan)
    if files.case.group == "model":
        # the same in a row, beside what one run takes
        also = [replace(x, row=x.row.copy(), stream=True, rounds=[], inside=[]) for x in lanes]
        timed(also, plan)
        for each, streamed in zip(lanes, also, strict=True):
            if each.alive and not streamed.alive:
                # else a single run's time would pass for that in a row
                each.row["stream_why"] = streamed.row["why"]
            elif streamed.rounds:
                found = streamed.row
                each.row |= {
                    "stream_median_ms": found["median_ms"], "stream_spread": found["spread"],
                    "stream_batch": found["batch"], "stream_n": found["n"],
                }  # fmt: skip
    for each in lanes:
        attempt(each, each.session.close, say)
        if files.case.group == "model" or not each.alive:
            pool.drop((each.session.engine, 1))
    return [_kept(each.row if isinstance(each, Lane) else each) for each in made]


def _kept(row: EngineRow) -> EngineRow:
    """Without what is not measured here: engines load side by side, their code from the disk."""
    kept = row.copy()
    kept.pop("code_bytes", None)
    kept.pop("code_gzip_bytes", None)
    kept.pop("first_ms", None)
    return kept


def timed(found: Sequence[Lane], plan: Plan) -> None:
    for lane in found:
        attempt(lane, partial(warmed, lane, plan), say)
    rounds([lane for lane in found if lane.alive], plan, time.monotonic, say)
    for lane in found:
        finished(lane)


def main(
    run: Run,
    only: Annotated[str, typer.Option(help="Cases or groups, with commas.")] = "",
    engines: Annotated[str, typer.Option(help="With commas.")] = ",".join(ON_GPUS),
    seconds: Annotated[float, typer.Option(help="For an engine on a case.")] = 1.0,
    rounds: Rounds = 5,
    smoke: Smoke = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes of --prepare.")] = 1,
    preparing: Annotated[
        bool, typer.Option("--prepare", help="Make the files, measure nothing.")
    ] = False,
) -> None:
    names = separated(engines)
    if unknown := set(names) - set(ON_GPUS):
        raise SystemExit(f"Unknown engines: {unknown}. Known are {', '.join(ON_GPUS)}")
    if CUBLAS.name in names and not cublas_version():
        say("without cuBLAS: PyTorch sees no GPU")
        names.remove(CUBLAS.name)
    install({name: ON_GPU[name] for name in names if name in ON_GPU})
    plan = Plan(seconds, rounds, visits=False, settle=0.0 if smoke else SETTLE_MS)
    known = facts(require_dawn())
    cases = chosen(CASES, separated(only))
    cases = [small(case) for case in cases] if smoke else cases
    kinds = [ON_GPUS[name].needs for name in names]
    if preparing:
        say(f"models are in {MODELS_FOLDER}")
        with ProcessPoolExecutor(jobs) as processes:
            for files in processes.map(partial(made, kinds=kinds), cases):
                say(f"{files.case.name} {files.missing}")
        return
    about_run: Row = {"run": uuid.uuid4().hex[:8]}
    with sessions(BROWSER, ON_GPU) as pool:
        for case in cases:
            say(case.name)
            taking = [name for name in names if name != CUBLAS.name or suits(case)]
            if not taking:
                continue
            found = measure(made(case, kinds), pool, taking, plan)
            for engine in found:
                say(f"  {engine['engine']:12} {about(engine)} {engine.get('stream_median_ms', '')}")
            rows = [{"case": case.name, "group": case.group, **about_run, **row} for row in found]
            for row in rows:
                run.show(row)
            if not smoke:
                run.save(rows, facts=known)
