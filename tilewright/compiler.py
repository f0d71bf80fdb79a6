"""The pipeline: model to bundle.  Read `compile_model`; nothing else calls a stage.

Input: a model file and `Options`.  Output: `Compiled`: the bundle's contents, every intermediate
stage for `tilewright show`, and how long each stage took.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tilewright.assembly import Assets, ModelFacts, TargetOutput, contents_of
from tilewright.base.errors import InvalidModel, ShapeError, TilewrightError, UsageError
from tilewright.bundle import Contents, Manifest
from tilewright.frontend import Importer, Model, combinations, load
from tilewright.frontend.exports import ExportedModel, PromptedExport
from tilewright.frontend.float16_types import narrow_of, nodes_in_f16
from tilewright.frontend.language import Decoder
from tilewright.frontend.speech import Whisper
from tilewright.fusion.f16_operands import with_rounded_attention
from tilewright.fusion.fuse import fuse
from tilewright.fusion.kernel_specs import RegionKernels, kernel_steps
from tilewright.fusion.program import BucketPlan, States, program_of
from tilewright.graph.extent_tracing import SizeProbe, trace_extents
from tilewright.graph.node import Graph
from tilewright.graph.passes import Passes
from tilewright.kernel.layout import Packing
from tilewright.kernel.spec import Kernel
from tilewright.plan import Growth, Program
from tilewright.targets import DEFAULT, Code, Target, target

Progress = Callable[[str, int, int], None]
#: The schedule of a kernel in a variant.
Choose = Callable[[Kernel, Any], Any]
#: A model's file as a source of graphs.
Graphs = Importer | Decoder | ExportedModel | PromptedExport | Whisper
#: What a model is read from.
Source = Path | Model | Decoder | ExportedModel | PromptedExport | Whisper
Probes = tuple[tuple[Mapping[str, int], Graph], ...]


@dataclass(frozen=True)
class Options:
    """What to build.

    shapes:   a shape per input where the file leaves one open; entries may be dimension names
    buckets:  sizes per named dimension: one plan for each combination
    extents:  the largest size of named dimensions that each run sets anew, without a bucket
    targets:  names of the targets to build for
    variants: which of the targets' variants to build; if none is named all but those for one engine
    states:   by the name of an input, the output that is its contents in the next run
    halves:   whether f32 weights of two axes or more are rounded to f16, to be stored as such, and
              attention may round its operands so
    bytes:    whether products with weights of 4 bits may round their other operand to i8
    tf32:     whether products with weights of f32 may round both operands to TF32; not with bytes
    assets:   further files of the bundle by name, such as tokenizer.json: their contents
    schedule: which schedule a kernel gets from a target's variant; the target's default if None
    compact_states: whether WebAssembly's memory holds f32 states as f16; with `halves` CUDA's, too,
              if it is the only target
    growth:   how the memory of states grows with the text, if they can grow
    without:  names of optional passes of targets that do not run
    settings: what targets may be told beyond this, such as "costs", "scratch" and "bank"
    """

    shapes: Mapping[str, Sequence[int | str]] = field(default_factory=dict)
    buckets: Mapping[str, Sequence[int]] = field(default_factory=dict)
    extents: Mapping[str, int] = field(default_factory=dict)
    targets: tuple[str, ...] = DEFAULT
    variants: tuple[str, ...] = ()
    states: States = field(default_factory=dict)
    halves: bool = False
    bytes: bool = False
    tf32: bool = False
    assets: Assets = field(default_factory=dict)
    name: str = ""
    schedule: Choose | None = None
    compact_states: bool = False
    growth: Growth | None = None
    without: frozenset[str] = frozenset()
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def dims(self) -> dict[str, Sequence[int]]:
        """All named dimensions; an extent has one size, its bound."""
        return {**self.buckets, **{name: (bound,) for name, bound in self.extents.items()}}


@dataclass(frozen=True)
class Compiled:
    """Everything that a compilation made.

    contents: the bundle; plans, program, made: the stages; seconds: duration of each stage
    """

    contents: Contents
    plans: tuple[BucketPlan, ...]
    program: Program
    made: Mapping[str, TargetOutput]
    seconds: dict[str, float]

    @property
    def manifest(self) -> Manifest:
        return self.contents.manifest

    @property
    def codes(self) -> Sequence[Code]:
        """Every kernel in the first variant of the first target."""
        return next(iter(next(iter(self.made.values())).codes.values()))


@contextmanager
def paused() -> Iterator[None]:
    """Pauses Python's cyclic garbage collector, which would take as long as compiling does.

    A compilation makes millions of small objects that live to its end, and hardly any cycles.
    Another thread that paused the collector earlier may resume it inside.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


@paused()
def compile_model(
    source: Source,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Compiled:
    """A model → graph → kernels → plan → per target schedules, code, section → bundle."""
    options = options or Options()
    clock = _Clock(progress)
    with clock.stage("read"):
        read = _read(source, options)
    importer, narrow, rounded = read.importer, read.narrow, read.in_f16
    options = replace(options, states=_all_states(read.inputs, options.states))
    _check_states(options.states, narrow)
    # what all combinations share is imported, rewritten, packed and fused once
    passes, known = Passes(_packing(options.targets)), RegionKernels()
    plans: list[BucketPlan] = []
    _check_extents(options)
    choices = _choices(importer, options)
    for number, dims in enumerate(choices):
        with clock.stage("graph", number, len(choices)):
            graph = passes.run(_imported(importer, dims, options))
            graph, extents = trace_extents(graph, _sizes(importer, passes, dims, options))
        with clock.stage("kernels", number, len(choices)):
            steps = kernel_steps(graph, fuse(graph), known, extents)
            plans.append(_rounding(BucketPlan(dims, graph, steps, extents), rounded))
    with clock.stage("graph"):
        probes = tuple(_probes(importer, options))
    return assemble(read.name, plans, options, clock, probes, narrow)


@dataclass(frozen=True)
class _Read:
    """The facts about a model's file that the pipeline reads, for any file format.

    inputs: their names;  narrow: as of `ModelFacts`;  in_f16: names of nodes whose results are f16
    """

    importer: Graphs
    name: str
    inputs: tuple[str, ...]
    narrow: Mapping[str, str] = field(default_factory=dict)
    in_f16: frozenset[str] = frozenset()


def _read(source: Source, options: Options) -> _Read:
    """The file's header, checked; it reads no weights."""
    if options.tf32 and options.bytes:
        raise UsageError(
            "Products cannot round their operands both to TF32 and to bytes",
            hint="Choose one of --tf32 and --bytes",
        )
    if isinstance(source, Decoder | Whisper):
        return _Read(source, source.name, source.inputs)
    rounded = {"halves": options.halves, "bytes": options.bytes, "tf32": options.tf32}
    if isinstance(source, PromptedExport):
        source = source.rounded(**rounded) if any(rounded.values()) else source
        return _Read(source, source.name, source.inputs, source.narrow)
    model = source.model if isinstance(source, ExportedModel) else load(source)
    if any(rounded.values()):
        model = replace(model, **rounded, _constants={})  # type: ignore[arg-type]
    if isinstance(source, ExportedModel):
        decoder = ExportedModel(model, source.room)
        return _Read(decoder, decoder.name, decoder.inputs, decoder.narrow, decoder.in_f16)
    names = tuple(i.name for i in model.inputs)
    return _Read(Importer(model), model.name, names, narrow_of(model), nodes_in_f16(model))


def _choices(importer: Graphs, options: Options) -> list[dict[str, int]]:
    """The combinations of sizes that get a plan, the smallest first."""
    if isinstance(importer, Decoder | PromptedExport | Whisper):
        return importer.combinations(options.dims)
    return combinations(options.dims)


def _rounding(plan: BucketPlan, nodes: Collection[str] | None = None) -> BucketPlan:
    """Attention of which all products are of these nodes (None: any) may round its operands to
    f16."""
    steps = tuple(
        replace(step, kernel=with_rounded_attention(step.kernel))
        if nodes is None or (step.products and all(name in nodes for name in step.products))
        else step
        for step in plan.steps
    )
    return replace(plan, steps=steps)


def _all_states(inputs: Sequence[str], given: States) -> States:
    """The states by name.  A pattern such as `past.*` = `present.*` stands for all inputs that
    match it."""
    found: dict[str, str] = {}
    for old, new in given.items():
        if "*" not in old:
            found[old] = new
            continue
        before, _, behind = old.partition("*")
        matching = [
            name for name in inputs
            if name.startswith(before) and name.endswith(behind)
            and len(name) >= len(before) + len(behind)
        ]  # fmt: skip
        if not matching or new.count("*") != 1:
            raise UsageError(
                f"The model has no states {old}={new}",
                hint="A pattern has one * on both sides, which stands for the same text",
                inputs=list(inputs),
            )
        for name in matching:
            found[name] = new.replace("*", name[len(before) : len(name) - len(behind)])
    return found


def _check_states(states: States, narrow: Mapping[str, str]) -> None:
    """A state keeps numbers of one type, which in memory may be those of another."""
    for old, new in states.items():
        if narrow.get(old) != narrow.get(new):
            raise UsageError(
                f"Input {old!r} and output {new!r} cannot be one state",
                hint="Both must have the same dtype and shape",
                input=narrow.get(old, ""),
                output=narrow.get(new, ""),
            )


def _packing(names: Sequence[str]) -> Packing:
    """How all targets of the bundle want weights to lie; they share them."""
    wanted = {name: target(name).facts.packing for name in names}
    if len(set(wanted.values())) != 1:
        raise UsageError(
            "These targets need weights in different layouts",
            hint="Build a bundle for each",
            targets=list(names),
        )
    return wanted[names[0]]


def _imported(importer: Graphs, dims: dict[str, int], options: Options) -> Graph:
    """The model at one combination of buckets; an error says which."""
    try:
        return importer.graph(dims, options.shapes)
    except ShapeError as error:
        if not dims:
            raise
        hint = error.hint or "The model may not allow this size: leave out the bucket"
        facts = {**error.facts, "bucket": dims}
        raise ShapeError(error.message, hint=hint, **facts) from error


#: The smallest bound: two smaller sizes show what follows an extent, and neither may be 1.
LEAST_BOUND = 4

#: Where min(n, 10) is n: further sizes that show what follows.
SHORT = (2, 3)


def _check_extents(options: Options) -> None:
    for name, bound in options.extents.items():
        if name in options.buckets or bound < LEAST_BOUND:
            raise UsageError(
                f"The dimension {name!r} cannot be an extent up to {bound}",
                hint=f"An extent is not a bucket, and its bound is at least {LEAST_BOUND}",
                extents=dict(options.extents),
                buckets=list(options.buckets),
            )


def _sizes(
    importer: Graphs,
    passes: Passes,
    dims: dict[str, int],
    options: Options,
) -> Iterator[SizeProbe]:
    """The model at smaller sizes of each extent, which show what follows it."""
    for number, (name, bound) in enumerate(options.extents.items()):
        for size in sorted({*SHORT, bound - 1, bound // 2}):
            try:
                graph = _imported(importer, dims | {name: size}, options)
            except (ShapeError, InvalidModel):
                if size < bound // 2:
                    continue  # right at the bound, the model has no such size
                raise
            yield SizeProbe(name, number, bound, size, passes.run(graph))


def _probes(importer: Graphs, options: Options) -> Iterator[tuple[dict[str, int], Graph]]:
    """The model at further sizes of each dimension, beside the largest buckets of the others.

    Buckets alone do not tell n from n rounded up to a multiple of 8.
    """
    full = {name: max(sizes) for name, sizes in options.dims.items()}
    for name, most in full.items():
        sizes = {most - 1, most // 2} - {0, *options.dims[name]}
        for size in sorted(sizes or {most + 1}):
            dims = full | {name: size}
            try:
                yield dims, importer.graph(dims, options.shapes)
            except TilewrightError:
                continue  # the model has no such size, so no input has it


@paused()
def assemble(
    name: str,
    plans: Sequence[BucketPlan],
    options: Options,
    clock: _Clock | None = None,
    probes: Probes = (),
    narrow: Mapping[str, str] | None = None,
) -> Compiled:
    """Kernels → plan → per target schedules, code, section → bundle, for graphs from anywhere."""
    clock = clock or _Clock(None)
    with clock.stage("plan"):
        if options.halves:
            plans = [_rounding(plan) for plan in plans]
        f16 = all(target(name).facts.f16_memory for name in options.targets)
        grows = all(target(name).facts.grows for name in options.targets)
        f16_states = options.halves and all(target(n).facts.f16_states for n in options.targets)
        program, tensors = program_of(
            plans, options.states, options.extents, f16, options.compact_states,
            options.growth if grows else None, f16_states,
        )  # fmt: skip
    made = {n: _made(target(n), program, options, clock) for n in options.targets}
    with clock.stage("bundle"):
        facts = ModelFacts(
            options.name or name, options.dims, options.assets, probes, options.states,
            tuple(options.extents), narrow or {},
        )  # fmt: skip
        contents = contents_of(facts, plans, program, tensors, made)
    return Compiled(contents, tuple(plans), program, made, clock.seconds)


def _made(chosen: Target, program: Program, options: Options, clock: _Clock) -> TargetOutput:
    """Every kernel's code in every variant, and the target's section."""
    usual = [v for v, known in chosen.variants.items() if known.is_default]
    variants = [v for v in chosen.variants if v in (options.variants or usual)]
    if not variants:
        raise UsageError(
            f"The target {chosen.name} has none of the variants {', '.join(options.variants)}",
            hint=f"It has {', '.join(chosen.variants)}",
            target=chosen.name,
        )
    codes: dict[str, list[Code]] = {v: [] for v in variants}
    for number, kernel in enumerate(program.kernels):
        with clock.stage("code", number, len(program.kernels)):
            schedules = {
                v: options.schedule(kernel, chosen.variants[v])
                if options.schedule
                else chosen.default(kernel, v)
                for v in variants
            }
            for variant, code in chosen.codes(kernel, schedules, without=options.without).items():
                codes[variant].append(code)
    with clock.stage("link"):
        return TargetOutput(chosen.encode(program, codes, options.settings), codes)


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
