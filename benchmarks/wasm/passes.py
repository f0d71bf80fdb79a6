"""The paper's ablation (nnJIT, table 5) from a naive base, and LLVM on the same loops.

Input: engines.  Output: results/wasm.passes.json, a row per engine, kernel and set: compile time,
code size and kernel time.  The naive base recomputes every address and constant where it is used;
then come the three passes, one more each time, and each of the last two alone; then where values
are placed.  LLVM compiles C that has our loops (llvm.py), with vectors and without; where clang is
missing these rows are left out.  Sets of a kernel are timed by turns; outputs are checked.

    python -m benchmarks wasm.passes [--host chromium --host firefox --host node] [--kernel K0]
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.accuracy import relative_error, require_close
from benchmarks.common import Run
from benchmarks.models.layers import LAYERS, step_of
from benchmarks.options import Rounds, among
from benchmarks.records import Row
from benchmarks.wasm import llvm
from lab.paper_spaces import PAPER
from lab.subjects import alone, paper_step
from lab.timing import by_turns, timer_of
from tilewright.api.host_registry import engine_of
from tilewright.base.errors import HostError
from tilewright.bundle import Contents, add, open_bundle, write
from tilewright.compiler import Options, compile_model
from tilewright.fusion.kernel_steps import KernelStep
from tilewright.hosts.browser import BrowserHost, BrowserModel
from tilewright.hosts.reference import ReferenceHost
from tilewright.kernel.loops import TileFn
from tilewright.targets import target, wasm
from tilewright.targets.simd.contraction import ContractionSchedule
from tilewright.targets.simd.strategies import lower

HOSTS = ("chromium", "firefox", "node")
VARIANT = "x86"
#: The convolution: 64 channels, 56x56, windows of 3x3.
LAYER = LAYERS[1]
#: Relative error of an output's norm.  Sums of 3,072 terms in another order differ by less.
TOLERANCE = 1e-5
RUNS = 4

Arrays = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Text:
    """What clang is given.  r0, lanes: of our loops' schedule, 0 as it is;  flags: more of them"""

    r0: int = 0
    lanes: int = 0
    flags: tuple[str, ...] = ()


#: By itself clang moves the loads of a pass to its top, where they take more registers than there
#: are, and adds constants to pointers that instructions have offsets for.  Its options prevent that
#: where a pass is one step; of more steps it nests the products, and so loads them all first.
LLVM: dict[str, Text] = {
    "LLVM": Text(),
    "LLVM, order of the source": Text(flags=llvm.ORDER),
    "LLVM, one step per pass": Text(r0=1),
    "LLVM, one step, order of the source": Text(r0=1, flags=llvm.ORDER),
    "LLVM, without vectors": Text(lanes=1),
}


def steps() -> dict[str, Callable[[], KernelStep]]:
    def convolution() -> KernelStep:
        compiled = compile_model(LAYER.onnx())
        return compiled.plans[0].steps[step_of(compiled)]

    return {name: partial(paper_step, name) for name in PAPER} | {LAYER.name: convolution}


def sets(kernel: str) -> dict[str, frozenset[str]]:
    """Names of sets, and what runs: the paper's table; of other kernels than K0 its ends."""
    names = [name for name, _ in wasm.PASSES]
    one, two, three = names
    table = {
        "naive": frozenset[str](),
        one: frozenset({one}),
        f"{one} + {two}": frozenset({one, two}),
        "three passes": frozenset(names),
        f"{two} alone": frozenset({two}),
        f"{three} alone": frozenset({three}),
        "placement alone": wasm.ALL - frozenset(names),
        "ours": wasm.ALL,
    }
    short = ("naive", "three passes", "ours")
    return table if kernel == "K0" else {name: table[name] for name in short}


@dataclass(frozen=True)
class Made:
    """A kernel under one set: a bundle, and what its code took and is.

    compile_ms: from the schedule to a module's bytes; of LLVM from C, start of programs included
    """

    name: str
    path: Path
    compile_ms: float
    code_bytes: int


def made(
    step: KernelStep, by_set: Mapping[str, frozenset[str]], folder: Path, repeats: int
) -> Iterator[Made]:
    """A bundle for each set, our own default last, then those of LLVM."""
    for number, (name, enabled) in enumerate(by_set.items()):
        without = wasm.ALL - enabled
        contents = alone(step, Options(variants=(VARIANT,), without=without)).contents
        spent = [_compiled(step, without) for _ in range(repeats)]
        size = contents.manifest.targets["wasm"].builds[0].code.bytes
        path = folder / f"set{number}"
        write(contents, path)
        yield Made(name, path, statistics.median(spent), size)
    if not _has_clang():
        return
    for number, (name, text) in enumerate(LLVM.items()):
        fn = loops(step, text.r0, text.lanes)
        source, times = llvm.text_of(fn), max(3, repeats // 3)
        found = [llvm.compiled(source, folder, text.flags) for _ in range(times)]
        module = llvm.in_bundle(found[-1][0], bool(fn.scratch))
        path = folder / f"llvm{number}"
        write(exchanged(contents, module), path)
        yield Made(name, path, statistics.median(ms for _, ms in found), len(module))


def _has_clang() -> bool:
    try:
        llvm.clang()
    except HostError as error:
        print(f"No rows of LLVM: {error}")
        return False
    return True


def _compiled(step: KernelStep, without: frozenset[str]) -> float:
    """Milliseconds of one compilation."""
    made_by = target("wasm")
    start = time.perf_counter()
    schedule = made_by.default(step.kernel, VARIANT)
    code = made_by.codes(step.kernel, {VARIANT: schedule}, without=without)[VARIANT]
    made_by.module(code, VARIANT)
    return (time.perf_counter() - start) * 1e3


def loops(step: KernelStep, r0: int = 0, lanes: int = 0) -> TileFn:
    """The loops of the default schedule, but for these, which leave its tiles as they are."""
    schedule = target("wasm").default(step.kernel, VARIANT)
    assert isinstance(schedule, ContractionSchedule)
    other = replace(schedule, r0=r0 or schedule.r0, lanes=lanes or schedule.lanes)
    usual, fn = lower(step.kernel, schedule), lower(step.kernel, other)
    assert (usual.tiles, usual.values, usual.scratch) == (fn.tiles, fn.values, fn.scratch)
    return fn


def exchanged(contents: Contents, module: bytes) -> Contents:
    """The bundle with other code for its only kernel."""
    blobs = dict(contents.blobs)
    section = contents.manifest.targets["wasm"]
    (build,) = section.builds
    build = msgspec.structs.replace(build, code=add(blobs, module, "wasm"))
    section = msgspec.structs.replace(section, builds=(build,))
    manifest = msgspec.structs.replace(contents.manifest, targets={"wasm": section})
    return replace(contents, manifest=manifest, blobs=blobs)


def inputs_of(path: Path) -> Arrays:
    rng = np.random.default_rng(1)
    told = open_bundle(path).manifest.inputs
    return {i.name: rng.standard_normal([int(d) for d in i.shape], np.float32) for i in told}


def check(model: BrowserModel, one: Made, inputs: Arrays, expected: Arrays) -> float:
    """The relative error of the output."""
    (got,), (want,) = model.run(dict(inputs)).outputs.values(), expected.values()
    return require_close(one.name, relative_error(got, want), TOLERANCE)


def measure(
    host: str, kernel: str, step: KernelStep, compiles: int, warm: int, rounds: int
) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as name, BrowserHost(host) as h:
        built = list(made(step, sets(kernel), Path(name), compiles))
        inputs = inputs_of(built[0].path)
        expected = ReferenceHost(built[0].path).run(inputs).outputs
        models = [h.load(one.path, threads=1) for one in built]
        errors = [check(m, one, inputs, expected) for m, one in zip(models, built, strict=True)]
        timers = dict(enumerate(partial(timer_of(model), RUNS) for model in models))
        by_turns(timers, warm)
        times = list(by_turns(timers, rounds).values())
    engine = engine_of(host)
    base, flops = min(times[0]), step.kernel.flops
    return [
        {
            "host": host, "engine": engine, "kernel": kernel, "set": one.name,
            "compile_ms": round(one.compile_ms, 2), "code_bytes": one.code_bytes,
            "kernel_ms": round(min(found), 3), "median_ms": round(statistics.median(found), 3),
            "n": len(found), "gflops": round(flops / min(found) / 1e6, 2),
            "speedup": round(base / min(found), 3), "relative_error": error,
            **({"compiler": llvm.version()} if one.name in LLVM else {}),
        }
        for one, found, error in zip(built, times, errors, strict=True)
    ]  # fmt: skip


def main(
    run: Run,
    host: Annotated[list[str] | None, among(HOSTS, "Engines; repeatable")] = None,
    kernel: Annotated[list[str] | None, among(steps(), "Kernels; repeatable")] = None,
    warm: Annotated[int, typer.Option(help="Rounds before those that count.")] = 20,
    rounds: Rounds = 30,
    compiles: Annotated[int, typer.Option(min=1, help="Compilations that are timed.")] = 15,
) -> None:
    for name in kernel or steps():
        for engine in host or HOSTS:
            rows = measure(engine, name, steps()[name](), compiles, warm, rounds)
            for row in rows:
                run.show(row)
            run.save(rows)
