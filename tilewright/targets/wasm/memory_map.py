"""The memory of a program in a WebAssembly host, and the image of each plan for it.

Input: a neutral program and the code of its kernels.  Output: a `MemoryMap` (the address of every
region and of every value) and image bytes.  Nothing is compiled here; docs/bundle-wasm.md has the
layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from tilewright.base.abi import ALIGNMENT, CONTROL_BYTES, MEMORY_LIMIT, MOST_WORKERS, align
from tilewright.base.errors import MemoryLimit
from tilewright.kernel.extents import RuntimeNumber
from tilewright.kernel.layout import RowBlocks
from tilewright.kernel.spec import Buffer
from tilewright.plan import Plan, Program
from tilewright.plan.arena import arena_of, consecutive
from tilewright.targets.protocol import Code
from tilewright.targets.step_sharing import Costs, share, work_of
from tilewright.targets.wasm.f16_memory import HALF
from tilewright.targets.wasm.plan_image import StepCall, image, image_bytes


@dataclass(frozen=True)
class MemoryMap:
    """Addresses in bytes.

    bytes:  of all regions but blocks of states that grow, which follow
    images: address of each plan's image;  arenas: bytes of the arena that each plan uses
    states: address of each state of the program; of one that grows, its place in a block
    values: for each plan, the address of each of its values; of states as above
    """

    bytes: int
    weights: int
    arena: int
    arena_bytes: int
    scratch: int
    scratch_bytes: int
    images: tuple[int, ...]
    arenas: tuple[int, ...]
    states: tuple[int, ...]
    values: tuple[tuple[int, ...], ...]

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors, each aligned to a cache line."""
        return (self.images[0] if self.images else self.arena) - self.weights


def memory_map(
    program: Program, codes: Mapping[str, Sequence[Code]], scratch_least: int
) -> MemoryMap:
    """Control block, weights, images, states of a fixed size, arena, scratch.  Blocks of states
    that grow follow.  `MemoryLimit` if all are too large.

    A bundle runs on any number of workers, so there is a scratch area for each possible worker.
    """
    weights = align(CONTROL_BYTES)
    tensors = tuple(weights + t.offset for t in program.tensors)
    images, at = consecutive(
        [max(image_bytes(_calls(program, p, c)) for c in codes.values()) for p in program.plans],
        weights + program.tensor_bytes,
    )
    fixed, arena = consecutive([0 if s.rows else s.bytes for s in program.states], at)
    (grown, block), both = program.block_places, zip(program.states, fixed, strict=True)
    states = tuple(grown[n] if s.rows else at for n, (s, at) in enumerate(both))
    placed = [arena_of(plan, lambda v: v.bytes) for plan in program.plans]
    arena_bytes = max((total for _, total in placed), default=0)
    values = tuple(
        tuple(
            _address(v.kind, v.tensor, arena + at, tensors, states)
            for v, at in zip(p.values, offsets, strict=True)
        )
        for p, (offsets, _) in zip(program.plans, placed, strict=True)
    )
    most = max((code.scratch for listed in codes.values() for code in listed), default=0)
    return with_scratch(
        MemoryMap(
            0, weights, arena, arena_bytes, arena + arena_bytes, 0,
            images, tuple(total for _, total in placed), states, values,
        ),
        max(scratch_least, most), program.blocks * block,
    )  # fmt: skip


def with_scratch(memory: MemoryMap, scratch: int, further: int = 0) -> MemoryMap:
    """The map with scratch areas, the last region, of `scratch` bytes for each worker.

    further: the most bytes that follow
    """
    each = align(scratch)
    total = align(memory.scratch + each)
    most = total + (MOST_WORKERS - 1) * each + further
    if most > MEMORY_LIMIT:
        raise MemoryLimit(
            f"the model and {MOST_WORKERS} workers do not fit into a wasm32 memory",
            hint="Use smaller buckets or a smaller model, or schedules that need less scratch",
            bytes=most,
            weights=memory.weight_bytes,
            arena=memory.arena_bytes,
            scratch=each,
            limit=MEMORY_LIMIT,
        )
    return replace(memory, scratch_bytes=each, bytes=total)


def plan_image(
    program: Program,
    number: int,
    memory: MemoryMap,
    codes: Sequence[Code],
    slots: Sequence[int],
    costs: Costs,
) -> bytes:
    """The image of plan `number`, with tile counts and scalars of the code, and the map's
    addresses."""
    plan, values = program.plans[number], memory.values[number]
    calls = []
    for step, call in zip(plan.steps, _calls(program, plan, codes), strict=True):
        buffers = program.kernels[step.kernel].buffers
        places = [
            values[a.value] + a.offset * (HALF if b.compact else b.dtype.size)
            for a, b in zip(step.accesses, buffers, strict=True)
        ]
        moves = _moves(program, buffers, places)
        addresses = tuple(
            at if count is None else memory.bytes + at
            for at, count in zip(places, moves or [None] * len(places), strict=True)
        )
        calls.append(replace(call, slot=slots[step.kernel], addresses=addresses, moves=moves))
    works = [
        work_of(program.kernels[step.kernel], call.addresses, call.tiles)
        for step, call in zip(plan.steps, calls, strict=True)
    ]
    shared = [replace(c, **asdict(w)) for c, w in zip(calls, share(works, costs), strict=True)]
    return image(shared, memory.images[number])


def _calls(program: Program, plan: Plan, codes: Sequence[Code]) -> list[StepCall]:
    """The steps without slots and addresses."""
    return [
        StepCall(
            0,
            (0,) * len(step.accesses),
            codes[step.kernel].loops.values,
            codes[step.kernel].loops.tiles,
            codes[step.kernel].loops.counts,
            _moves(program, program.kernels[step.kernel].buffers, (0,) * len(step.accesses)),
        )
        for step in plan.steps
    ]


def _moves(
    program: Program, buffers: Sequence[Buffer], places: Sequence[int]
) -> tuple[RuntimeNumber | None, ...]:
    """How a step's addresses depend on where blocks of states begin, which a host sets as one more
    extent, in cache lines.  Empty if none does."""
    if not any(isinstance(b.layout, RowBlocks) for b in buffers):
        return ()
    return tuple(
        RuntimeNumber(len(program.extents), ALIGNMENT, at, 1, MEMORY_LIMIT - 1, 1)
        if isinstance(b.layout, RowBlocks)
        else None
        for at, b in zip(places, buffers, strict=True)
    )


def _address(
    kind: str, number: int, arena: int, tensors: Sequence[int], states: Sequence[int]
) -> int:
    if kind == "weight":
        return tensors[number]
    return states[number] if kind == "state" else arena
