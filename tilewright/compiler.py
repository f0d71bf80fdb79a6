"""The pipeline: ONNX model to bundle.  Read `compile_model`; nothing else calls a stage.

Input: a model file and `Options`.  Output: `Compiled`: the bundle's contents, every intermediate
stage for `tilewright show`, and how long each stage took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tilewright.assembly import Build, Entry, Facts, Planned, contents_of
from tilewright.base.errors import ShapeError, TilewrightError
from tilewright.bundle import Contents, Manifest
from tilewright.frontend import Model, combinations, import_model, load
from tilewright.graph.fuse import fuse
from tilewright.graph.node import Graph
from tilewright.graph.pack import pack
from tilewright.graph.rewrite import rewrite
from tilewright.graph.specs import kernel_steps
from tilewright.kernel.lower import lower
from tilewright.kernel.schedule import Machine, Schedule, default_schedule
from tilewright.kernel.sharing import USUAL, Costs
from tilewright.kernel.space_schedules import SCRATCH
from tilewright.kernel.spec import Kernel
from tilewright.targets import wasm

Progress = Callable[[str, int, int], None]
Probes = tuple[tuple[Mapping[str, int], Graph], ...]


@dataclass(frozen=True)
class Options:
    """What to build.

    shapes:   a shape per input where the file leaves one open; entries may be dimension names
    buckets:  sizes per named dimension: one plan for each combination
    variants: code builds, best first: names of targets/wasm/target.py
    assets:   files to put into the bundle for the page, such as tokenizer.json
    schedule: which schedule a kernel gets
    passes:   names of the Wasm passes to run
    costs:    what decides which steps the workers share
    scratch:  bytes of scratch memory of a worker, at least: what other schedules may need
    """

    shapes: Mapping[str, Sequence[int | str]] = field(default_factory=dict)
    buckets: Mapping[str, Sequence[int]] = field(default_factory=dict)
    variants: tuple[str, ...] = tuple(wasm.TARGETS)
    assets: tuple[Path, ...] = ()
    name: str = ""
    schedule: Callable[[Kernel, Machine], Schedule] = default_schedule
    passes: frozenset[str] = wasm.ALL
    costs: Costs = USUAL
    scratch: int = SCRATCH


@dataclass(frozen=True)
class Compiled:
    """Everything that a compilation made.

    contents: the bundle; plans, entries, modules: the stages; seconds: duration of each stage
    """

    contents: Contents
    plans: tuple[Planned, ...]
    entries: tuple[Entry, ...]
    modules: dict[str, bytes]
    seconds: dict[str, float]

    @property
    def manifest(self) -> Manifest:
        return self.contents.manifest


def compile_model(
    source: Path | Model, options: Options | None = None, progress: Progress | None = None
) -> Compiled:
    """ONNX → graph → kernels → schedules → loops → Wasm → bundle."""
    options = options or Options()
    clock = _Clock(progress)
    with clock.stage("read"):
        model = load(source)
    plans: list[Planned] = []
    choices = combinations(options.buckets)
    for number, dims in enumerate(choices):
        with clock.stage("graph", number, len(choices)):
            graph = pack(rewrite(_imported(model, dims, options)))
        with clock.stage("kernels", number, len(choices)):
            plans.append(Planned(dims, graph, kernel_steps(graph, fuse(graph))))
    with clock.stage("graph"):
        probes = tuple(_probes(model, options))
    return assemble(model.name, plans, options, clock, probes)


def _imported(model: Model, dims: dict[str, int], options: Options) -> Graph:
    """The model at one combination of buckets; an error says which."""
    try:
        return import_model(model, dims, options.shapes)
    except ShapeError as error:
        if not dims:
            raise
        hint = error.hint or "The model may not allow this size: leave out the bucket"
        facts = {**error.facts, "bucket": dims}
        raise ShapeError(error.message, hint=hint, **facts) from error


def _probes(model: Model, options: Options) -> Iterator[tuple[dict[str, int], Graph]]:
    """The model at further sizes of each dimension, beside the largest buckets of the others.

    Buckets alone do not tell n from n rounded up to a multiple of 8.
    """
    full = {name: max(sizes) for name, sizes in options.buckets.items()}
    for name, most in full.items():
        sizes = {most - 1, most // 2} - {0, *options.buckets[name]}
        for size in sorted(sizes or {most + 1}):
            dims = full | {name: size}
            try:
                yield dims, import_model(model, dims, options.shapes)
            except TilewrightError:
                continue  # the model has no such size, so no input has it


def assemble(
    name: str,
    plans: Sequence[Planned],
    options: Options,
    clock: _Clock | None = None,
    probes: Probes = (),
) -> Compiled:
    """Kernels → schedules → loops → Wasm → bundle, for graphs from anywhere."""
    clock = clock or _Clock(None)
    entries, modules = _code(plans, options, clock)
    with clock.stage("bundle"):
        facts = Facts(
            options.name or name,
            options.buckets,
            options.variants,
            options.assets,
            probes,
            options.costs,
            options.scratch,
        )
        contents = contents_of(facts, plans, entries, modules)
    return Compiled(contents, tuple(plans), tuple(entries.values()), modules, clock.seconds)


def _code(
    plans: Sequence[Planned], options: Options, clock: _Clock
) -> tuple[dict[Kernel, Entry], dict[str, bytes]]:
    """Every distinct kernel once; kernels with equal code in all variants share a slot."""
    kernels = list(dict.fromkeys(step.kernel for plan in plans for step in plan.steps))
    targets = [wasm.TARGETS[v] for v in options.variants]
    slots: dict[object, int] = {}
    linked: list[tuple[wasm.CompiledKernel, ...]] = []
    entries: dict[Kernel, Entry] = {}
    for number, kernel in enumerate(kernels):
        with clock.stage("loops", number, len(kernels)):
            schedules = {t.machine: options.schedule(kernel, t.machine) for t in targets}
            loops = {s: lower(kernel, s) for s in dict.fromkeys(schedules.values())}
        with clock.stage("code", number, len(kernels)):
            nameless = {s: replace(fn, name="kernel") for s, fn in loops.items()}  # equal code, too
            compiled = tuple(
                wasm.compile_tile(nameless[schedules[t.machine]], t, options.passes)
                for t in targets
            )
        code = tuple((b.functions, b.helpers) for b in compiled)
        if code not in slots:
            slots[code] = len(slots)
            linked.append(compiled)
        scratch = max(b.scratch for b in compiled)
        builds = {m: Build(s, loops[s]) for m, s in schedules.items()}
        needs = frozenset[str]().union(*(b.needs for b in compiled))
        entries[kernel] = Entry(kernel, slots[code], scratch, builds, needs)
    with clock.stage("link"):
        modules = {
            target.name: wasm.link([built[i] for built in linked], target, 1)
            for i, target in enumerate(targets)
        }
    return entries, modules


class _Clock:
    """Adds up the seconds of each stage and reports progress."""

    def __init__(self, progress: Progress | None) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress

    @contextmanager
    def stage(self, name: str, done: int = 0, total: int = 1) -> Iterator[None]:
        if self._progress is not None:
            self._progress(name, done, total)
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
