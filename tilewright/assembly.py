"""The last stage: plans, kernels and code become the contents of a bundle.

Input: fused graphs with their kernels, schedules, loops and linked modules.  Output: `Contents` as
docs/bundle.md describes them: memory map, plan images, manifest, and weights as a stream that is
computed only while it is written.  Only compiler.py calls this.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from tilewright import TOOL
from tilewright.base.alignment import align
from tilewright.base.errors import MemoryLimit, ShapeError, UsageError
from tilewright.bundle import (
    Asset,
    Code,
    Contents,
    Manifest,
    Memory,
    Placed,
    Plan,
    TensorInfo,
    Weights,
    add,
    kernels,
)
from tilewright.bundle import Step as StepInfo
from tilewright.bundle.image import CONTROL_BYTES, MEMORY_LIMIT, Call, image, image_bytes
from tilewright.graph.constants import Constants
from tilewright.graph.memory import Life, place
from tilewright.graph.node import Graph, Node, evaluate
from tilewright.graph.steps import Step
from tilewright.kernel.loops import TileFn
from tilewright.kernel.schedule import Machine, Schedule
from tilewright.kernel.serial import kernel_to_data
from tilewright.kernel.sharing import USUAL, Costs, share, work_of
from tilewright.kernel.spec import Kernel
from tilewright.targets import wasm

Blobs = dict[str, bytes | bytearray | memoryview]


@dataclass(frozen=True)
class Facts:
    """What the manifest says that no stage computes.

    `probes` are graphs at further sizes of named dimensions, only there to show which axes follow.
    """

    name: str
    buckets: Mapping[str, Sequence[int]]
    variants: tuple[str, ...]
    assets: tuple[Path, ...]
    probes: tuple[tuple[Mapping[str, int], Graph], ...] = ()
    costs: Costs = USUAL
    scratch: int = 0


@dataclass(frozen=True)
class Planned:
    """One combination of buckets on its way through the stages."""

    dims: dict[str, int]
    graph: Graph
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Build:
    """A kernel as one machine runs it."""

    schedule: Schedule
    loops: TileFn


@dataclass(frozen=True)
class Entry:
    """One distinct kernel: its code slot, bytes of scratch memory, and a build per machine.

    needs: features of the host that its code uses although not every kernel does
    """

    kernel: Kernel
    slot: int
    scratch: int
    builds: Mapping[Machine, Build]
    needs: frozenset[str] = frozenset()

    @property
    def first(self) -> Build:
        """The build of the first variant."""
        return next(iter(self.builds.values()))


def contents_of(
    facts: Facts,
    plans: Sequence[Planned],
    entries: Mapping[Kernel, Entry],
    modules: Mapping[str, bytes],
) -> Contents:
    """The whole bundle; weights are not read yet."""
    blobs: Blobs = {}
    weights = _weights(plans)
    stored = list(dict.fromkeys(weights.values()))
    weight_bytes = sum(align(w.bytes) for w in stored)
    memory, arenas, images = _memory(plans, entries, weight_bytes, facts.scratch)
    specs = {kernel: number for number, kernel in enumerate(entries)}
    placed = [
        _Site(plan, arena, at, memory, entries, weights, facts.costs)
        for plan, arena, at in zip(plans, arenas, images, strict=True)
    ]
    targets = [wasm.TARGETS[v] for v in facts.variants]
    needs = frozenset[str]().union(*(e.needs for e in entries.values()))
    slots = 1 + max((e.slot for e in entries.values()), default=0)
    manifest = Manifest(
        tool=TOOL,
        name=facts.name,
        dims={k: tuple(sorted(v)) for k, v in facts.buckets.items()},
        inputs=_infos(plans, facts, lambda g: g.inputs),
        outputs=_infos(plans, facts, lambda g: g.outputs),
        memory=memory,
        weights=Weights(bytes=weight_bytes),
        driver=add(blobs, wasm.driver(slots), "wasm"),
        code=tuple(
            Code(
                variant=t.name,
                features=t.asked(needs),
                registers=t.machine.registers,
                images=tuple(add(blobs, site.image(t.machine), "bin") for site in placed),
                **msgspec.structs.asdict(add(blobs, modules[t.name], "wasm")),
            )
            for t in targets
        ),
        slots=slots,
        kernels=add(blobs, _kernels_json(entries, targets), "json"),
        plans=tuple(_plan(site, specs) for site in placed),
        assets=_assets(facts.assets, blobs),
    )
    return Contents(manifest, blobs, lambda: _weight_stream(stored))


@dataclass(frozen=True)
class _Arena:
    """Offsets of a plan's buffers in the arena."""

    offsets: dict[Node, int]
    bytes: int


def _arena(plan: Planned) -> _Arena:
    """Lives: inputs all the time, so that a run leaves them as they were; outputs to the end."""
    end = len(plan.steps)
    first: dict[Node, int] = {n: -1 for _, n in plan.graph.inputs}
    last = dict.fromkeys(first, end)
    for number, step in enumerate(plan.steps):
        first.setdefault(step.output, number)
        last[step.output] = number
        for n in step.inputs:
            if n in first:
                last[n] = max(last[n], number)
    for _, n in plan.graph.outputs:
        last[n] = end
    nodes = list(first)
    lives = [Life(n.size * n.dtype.size, first[n], last[n]) for n in nodes]
    offsets, total = place(lives)
    return _Arena(dict(zip(nodes, offsets, strict=True)), total)


def _memory(
    plans: Sequence[Planned], entries: Mapping[Kernel, Entry], weight_bytes: int, scratch_least: int
) -> tuple[Memory, list[_Arena], list[int]]:
    """The memory map, each plan's arena, and the address of each plan image.

    A bundle runs on any number of workers, so the scratch areas of all of them must fit.
    """
    arenas = [_arena(plan) for plan in plans]
    at = align(CONTROL_BYTES) + weight_bytes
    images = []
    machines = {m: None for entry in entries.values() for m in entry.builds}
    for plan in plans:
        images.append(at)
        at += align(max((_image_bytes(plan, entries, m) for m in machines), default=0))
    arena_bytes = max(a.bytes for a in arenas)
    scratch = at + arena_bytes
    scratch_bytes = align(max(scratch_least, *(e.scratch for e in entries.values()), 0))
    total = align(scratch + scratch_bytes)
    most = total + (wasm.MOST_WORKERS - 1) * scratch_bytes
    if most > MEMORY_LIMIT:
        raise MemoryLimit(
            f"the model and {wasm.MOST_WORKERS} workers do not fit into a wasm32 memory",
            hint="Use smaller buckets or a smaller model",
            bytes=most,
            weights=weight_bytes,
            arena=arena_bytes,
            scratch=scratch_bytes,
            limit=MEMORY_LIMIT,
        )
    memory = Memory(
        bytes=total,
        control=0,
        weights=align(CONTROL_BYTES),
        arena=at,
        arena_bytes=arena_bytes,
        scratch=scratch,
        scratch_bytes=scratch_bytes,
    )
    return memory, arenas, images


def _image_bytes(plan: Planned, entries: Mapping[Kernel, Entry], machine: Machine) -> int:
    """The size of the plan's image, before its buffers have addresses."""
    calls = []
    for step in plan.steps:
        loops = entries[step.kernel].builds[machine].loops
        calls.append(Call(0, (0,) * (1 + len(step.inputs)), loops.values, loops.tiles))
    return image_bytes(calls)


@dataclass(frozen=True)
class _Site:
    """A plan and where all that it touches lies: the same for every machine."""

    plan: Planned
    arena: _Arena
    at: int
    memory: Memory
    entries: Mapping[Kernel, Entry]
    weights: Mapping[Node, _Weight]
    costs: Costs

    def address(self, n: Node) -> int:
        if n in self.arena.offsets:
            return self.memory.arena + self.arena.offsets[n]
        return self.memory.weights + self.weights[n].offset

    def image(self, machine: Machine) -> bytes:
        """The plan image: tile counts and scalars are the machine's, addresses everyone's."""
        calls = []
        for step in self.plan.steps:
            entry = self.entries[step.kernel]
            loops = entry.builds[machine].loops
            nodes = zip((step.output, *step.inputs), step.offsets, strict=True)
            addresses = tuple(self.address(n) + at * n.dtype.size for n, at in nodes)
            calls.append(Call(entry.slot, addresses, loops.values, loops.tiles))
        return image(self._shared(calls), self.at)

    def _shared(self, calls: Sequence[Call]) -> list[Call]:
        """The steps with how the workers share them; addresses tell what depends on what."""
        works = [
            work_of(step.kernel, call.addresses, call.tiles)
            for step, call in zip(self.plan.steps, calls, strict=True)
        ]
        ways = share(works, self.costs)
        return [replace(call, **asdict(way)) for call, way in zip(calls, ways, strict=True)]


def _plan(site: _Site, specs: Mapping[Kernel, int]) -> Plan:
    plan = site.plan

    def placed(pairs: Sequence[tuple[str, Node]]) -> tuple[Placed, ...]:
        return tuple(
            Placed(
                name=name,
                dtype=n.dtype.name,  # type: ignore[arg-type]
                shape=n.shape,
                address=site.address(n),
                bytes=n.size * n.dtype.size,
            )
            for name, n in pairs
        )

    return Plan(
        dims=plan.dims,
        address=site.at,
        inputs=placed(plan.graph.inputs),
        outputs=placed(plan.graph.outputs),
        arena_bytes=site.arena.bytes,
        steps=tuple(
            StepInfo(
                slot=site.entries[s.kernel].slot,
                spec=specs[s.kernel],
                kernel=s.kernel.name,
                node=s.source,
                flops=s.kernel.flops,
                bytes=s.kernel.bytes,
            )
            for s in plan.steps
        ),
    )


def _infos(
    plans: Sequence[Planned],
    facts: Facts,
    pick: Callable[[Graph], tuple[tuple[str, Node], ...]],
) -> tuple[TensorInfo, ...]:
    """Names, dtypes and shapes; an axis that follows a named dimension everywhere is named."""
    seen = [*((p.dims, p.graph) for p in plans), *facts.probes]
    infos = []
    for position, (name, n) in enumerate(pick(plans[0].graph)):
        shapes = [(dims, pick(graph)[position][1].shape) for dims, graph in seen]
        axes = tuple(
            _axis(name, [(dims, shape[axis]) for dims, shape in shapes]) for axis in range(n.rank)
        )
        infos.append(TensorInfo(name=name, dtype=n.dtype.name, shape=axes))  # type: ignore[arg-type]
    return tuple(infos)


def _axis(tensor: str, seen: Sequence[tuple[Mapping[str, int], int]]) -> int | str:
    """The extent of an axis, or the dimension that it follows."""
    first_dims, first = seen[0]
    if all(extent == first for _, extent in seen):
        return first
    for name in first_dims:
        if all(dims[name] == extent for dims, extent in seen):
            return name
    raise ShapeError(
        f"an axis of {tensor!r} depends on a named dimension without being that dimension",
        hint="Padding could not be cropped from it: fix sizes with --shape instead of --buckets",
        extents=[extent for _, extent in seen],
    )


def _kernels_json(entries: Mapping[Kernel, Entry], targets: Sequence[wasm.WasmTarget]) -> bytes:
    """Each kernel's specification once, and per variant its schedule and identity."""
    listed = []
    for kernel, entry in entries.items():
        spec = kernel_to_data(kernel)
        builds = {
            t.name: kernels.build_of(spec, entry.builds[t.machine].schedule.to_json(), t.name)
            for t in targets
        }
        named = kernels.Entry(name=kernel.name, slot=entry.slot, spec=spec, builds=builds)
        listed.append(named)
    return kernels.pack(listed)


def _assets(paths: Sequence[Path], blobs: Blobs) -> tuple[Asset, ...]:
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        raise UsageError("two assets have the same name", hint="Rename one", assets=names)
    return tuple(_asset(path, blobs) for path in paths)


def _asset(path: Path, blobs: Blobs) -> Asset:
    # the built-in table: the system's would make bytes differ between machines
    kind = mimetypes.MimeTypes().guess_type(path.name)[0] or "application/octet-stream"
    ref = add(blobs, path.read_bytes(), path.suffix.lstrip(".") or "bin")
    return Asset(name=path.name, type=kind, **msgspec.structs.asdict(ref))


@dataclass(frozen=True)
class _Weight:
    """A constant that kernels load: how to compute it, and its place in the weight region."""

    node: Node
    offset: int

    @property
    def bytes(self) -> int:
        return self.node.size * self.node.dtype.size


def _weights(plans: Sequence[Planned]) -> dict[Node, _Weight]:
    """The place of every constant that a step reads; equal ones share it."""
    constants = Constants()
    found: dict[int, _Weight] = {}
    places: dict[Node, _Weight] = {}
    at = 0
    for n in (n for plan in plans for step in plan.steps for n in step.inputs if n.constant):
        if n not in places:
            number = constants.number(n)
            if number not in found:
                found[number] = _Weight(n, at)
                at += align(found[number].bytes)
            places[n] = found[number]
    return places


def _weight_stream(weights: Sequence[_Weight]) -> Iterator[bytes]:
    """The weight region: each constant computed when its turn comes, then padding."""
    for w in weights:
        value = evaluate([w.node])[0]
        data = np.ascontiguousarray(value).tobytes()
        yield data
        yield bytes(align(len(data)) - len(data))
