"""The last stage: the neutral program and what each target made of it become a bundle.

Input: graphs, their program, a section per target.  Output: `Contents` as docs/bundle.md describes
them: manifest, plans, tables, and weights as a stream that is computed only while it is written.
Only compiler.py calls this.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import PurePath

import msgspec
import numpy as np

from tilewright import TOOL, bundle
from tilewright.base.abi import align
from tilewright.base.errors import ShapeError
from tilewright.base.sections import Section
from tilewright.bundle import Asset, Contents, Manifest, TensorInfo, Weights, add, section_files
from tilewright.bundle.format import encode
from tilewright.bundle.section_files import store
from tilewright.bundle.weight_decoding import narrowed
from tilewright.fusion.program import BucketPlan, States
from tilewright.graph.node import Graph, Node, computed
from tilewright.kernel.layout import layout_to_data
from tilewright.kernel.serialise import kernel_to_data
from tilewright.plan import Plan, Program, plan_to_data
from tilewright.targets import Code

Blobs = dict[str, bytes | bytearray | memoryview]
#: Contents by name.
Assets = Mapping[str, bytes]


@dataclass(frozen=True)
class ModelFacts:
    """Facts for the manifest that come from the model's file, not from a stage.

    `probes` are graphs at further sizes of named dimensions, only there to show which axes follow;
    `narrow` are the types of inputs and outputs that the model declares as f16 or bf16.
    """

    name: str
    buckets: Mapping[str, Sequence[int]]
    assets: Assets = field(default_factory=dict)
    probes: tuple[tuple[Mapping[str, int], Graph], ...] = ()
    states: States | None = None
    extents: tuple[str, ...] = ()
    narrow: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TargetOutput:
    """What one target made: its section, and the code of every kernel by variant."""

    section: Section
    codes: Mapping[str, Sequence[Code]]


def contents_of(
    facts: ModelFacts,
    plans: Sequence[BucketPlan],
    program: Program,
    tensors: Sequence[Node],
    made: Mapping[str, TargetOutput],
) -> Contents:
    """The whole bundle; weights are not read yet."""
    blobs: Blobs = {}
    specs = [kernel_to_data(kernel) for kernel in program.kernels]
    listed = [
        section_files.KernelEntry(name=kernel.name, spec=spec)
        for kernel, spec in zip(program.kernels, specs, strict=True)
    ]
    states = facts.states or {}
    *offsets, stored = accumulate((align(t.stored_bytes) for t in program.tensors), initial=0)
    widened = any(t.stored and not t.compact for t in program.tensors)
    manifest = Manifest(
        tool=TOOL,
        name=facts.name,
        dims={k: tuple(sorted(v)) for k, v in facts.buckets.items()},
        extents=facts.extents,
        inputs=_infos(plans, facts, lambda g: _without(g.inputs, states)),
        outputs=_infos(plans, facts, lambda g: _without(g.outputs, states.values())),
        states=tuple(
            bundle.StateEntry(
                name=s.name,
                dtype=facts.narrow.get(s.name, s.dtype.name),  # type: ignore[arg-type]
                shape=s.shape,
            )
            for s in program.states
        ),
        growth=bundle.GrowthEntry(**asdict(program.growth)) if program.growth else msgspec.UNSET,
        weights=Weights(bytes=stored, memory=program.tensor_bytes if widened else 0),
        kernels=add(blobs, section_files.pack(listed), "json"),
        plans=tuple(_plan(program, plan, blobs) for plan in program.plans),
        targets={name: store(one.section, _slots(one, specs), blobs) for name, one in made.items()},
        assets=tuple(_asset(name, data, blobs) for name, data in facts.assets.items()),
    )
    table = tuple(
        bundle.TensorEntry(
            dtype=t.dtype.name,  # type: ignore[arg-type]
            shape=t.shape,
            stored=t.stored,  # type: ignore[arg-type]
            scale=t.scale,
            zero=t.zero,
            compact=t.compact or msgspec.UNSET,
            layout=tuple(layout_to_data(t.layout)),
            offset=offset,
            bytes=t.stored_bytes,
        )
        for t, offset in zip(program.tensors, offsets, strict=True)
    )
    return Contents(manifest, blobs, lambda: _weight_stream(tensors, table), table)


def _without(
    pairs: Sequence[tuple[str, Node]], names: Collection[str]
) -> tuple[tuple[str, Node], ...]:
    return tuple((name, n) for name, n in pairs if name not in names)


def _plan(program: Program, plan: Plan, blobs: Blobs) -> bundle.PlanEntry:
    return bundle.PlanEntry(
        dims=dict(plan.dims),
        inputs=tuple(plan.values[i].shape for i in plan.inputs),
        outputs=tuple(plan.values[i].shape for i in plan.outputs),
        steps=tuple(
            bundle.StepEntry(
                spec=step.kernel,
                kernel=program.kernels[step.kernel].name,
                node=step.node,
                flops=program.kernels[step.kernel].flops,
                bytes=program.kernels[step.kernel].bytes,
                checks=tuple(bundle.CheckEntry(**asdict(check)) for check in step.checks),
            )
            for step in plan.steps
        ),
        file=add(blobs, encode(plan_to_data(plan)), "json"),
    )


def _slots(made: TargetOutput, specs: Sequence[Mapping[str, object]]) -> list[section_files.Slot]:
    """Per kernel its slot, and by variant its schedule and the digest of its code."""
    return [
        section_files.Slot(
            slot=slot,
            builds={
                variant: section_files.build_of(spec, codes[number].schedule.to_json(), variant)
                for variant, codes in made.codes.items()
            },
        )
        for number, (slot, spec) in enumerate(zip(made.section.kernels, specs, strict=True))
    ]


def _infos(
    plans: Sequence[BucketPlan],
    facts: ModelFacts,
    pick: Callable[[Graph], tuple[tuple[str, Node], ...]],
) -> tuple[TensorInfo, ...]:
    """Names, dtypes and shapes; an axis that follows a named dimension everywhere is named."""
    seen = [*((p.dims, p.graph) for p in plans), *facts.probes]
    options = {"--extent" if name in facts.extents else "--buckets" for name in facts.buckets}
    given = " and ".join(sorted(options))
    infos = []
    for position, (name, n) in enumerate(pick(plans[0].graph)):
        shapes = [(dims, pick(graph)[position][1].shape) for dims, graph in seen]
        axes = tuple(
            _axis(name, [(dims, shape[axis]) for dims, shape in shapes], given)
            for axis in range(n.rank)
        )
        dtype = facts.narrow.get(name, n.dtype.name)
        infos.append(TensorInfo(name=name, dtype=dtype, shape=axes))  # type: ignore[arg-type]
    return tuple(infos)


def _axis(tensor: str, seen: Sequence[tuple[Mapping[str, int], int]], given: str) -> int | str:
    """The extent of an axis, or the dimension that it follows.  given: options, for the error."""
    first_dims, first = seen[0]
    if all(extent == first for _, extent in seen):
        return first
    for name in first_dims:
        if all(dims[name] == extent for dims, extent in seen):
            return name
    raise ShapeError(
        f"the size of an axis of {tensor!r} is computed from a named dimension",
        hint=f"A host cannot know that size in a run: fix sizes with --shape instead of {given}",
        extents=[extent for _, extent in seen],
    )


def _asset(name: str, contents: bytes, blobs: Blobs) -> Asset:
    # the built-in table: the system's would make bytes differ between machines
    kind = mimetypes.MimeTypes().guess_type(name)[0] or "application/octet-stream"
    ref = add(blobs, contents, PurePath(name).suffix.lstrip(".") or "bin")
    return Asset(name=name, type=kind, **msgspec.structs.asdict(ref))


def _weight_stream(nodes: Sequence[Node], table: Sequence[bundle.TensorEntry]) -> Iterator[bytes]:
    """All tensors: each computed when its turn comes, as narrow as files hold it, then padding."""
    for n, tensor in zip(nodes, table, strict=True):
        data = narrowed(np.ascontiguousarray(computed(n)), tensor).tobytes()
        yield data
        yield bytes(align(len(data)) - len(data))
