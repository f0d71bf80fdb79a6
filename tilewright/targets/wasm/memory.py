"""The memory of a program in a WebAssembly host, and the image of each plan for it.

Input: a neutral program and the code of its kernels.  Output: a `MemoryMap` (the address of every
region and of every value) and image bytes.  Nothing is compiled here; docs/bundle-wasm.md has the
layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from tilewright.base.abi import CONTROL_BYTES, MEMORY_LIMIT, MOST_WORKERS, align
from tilewright.base.errors import MemoryLimit
from tilewright.plan import Plan, Program
from tilewright.plan.arena import arena_of, consecutive
from tilewright.targets.protocol import Code
from tilewright.targets.sharing import Costs, share, work_of
from tilewright.targets.wasm.half_words import HALF
from tilewright.targets.wasm.image import StepCall, image, image_bytes


@dataclass(frozen=True)
class MemoryMap:
    """Addresses in bytes.

    images: address of each plan's image;  arenas: bytes of the arena that each plan uses
    states: address of each state of the program
    values: for each plan, the address of each of its values
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
    """Control block, weights, images, states, arena, scratch.  `MemoryLimit` if they are too large.

    A bundle runs on any number of workers, so there is a scratch area for each possible worker.
    """
    weights = align(CONTROL_BYTES)
    tensors = tuple(weights + t.offset for t in program.tensors)
    images, at = consecutive(
        [max(image_bytes(_calls(p, c)) for c in codes.values()) for p in program.plans],
        weights + program.tensor_bytes,
    )
    states, arena = consecutive([s.bytes for s in program.states], at)
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
        max(scratch_least, most),
    )  # fmt: skip


def with_scratch(memory: MemoryMap, scratch: int) -> MemoryMap:
    """The map with scratch areas, the last region, of `scratch` bytes for each worker."""
    each = align(scratch)
    total = align(memory.scratch + each)
    most = total + (MOST_WORKERS - 1) * each
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
    calls = [
        replace(
            call,
            slot=slots[step.kernel],
            addresses=tuple(
                values[a.value] + a.offset * (HALF if b.compact else b.dtype.size)
                for a, b in zip(step.accesses, program.kernels[step.kernel].buffers, strict=True)
            ),
        )
        for step, call in zip(plan.steps, _calls(plan, codes), strict=True)
    ]
    works = [
        work_of(program.kernels[step.kernel], call.addresses, call.tiles)
        for step, call in zip(plan.steps, calls, strict=True)
    ]
    shared = [replace(c, **asdict(w)) for c, w in zip(calls, share(works, costs), strict=True)]
    return image(shared, memory.images[number])


def _calls(plan: Plan, codes: Sequence[Code]) -> list[StepCall]:
    """The steps without slots and addresses."""
    return [
        StepCall(
            0,
            (0,) * len(step.accesses),
            codes[step.kernel].loops.values,
            codes[step.kernel].loops.tiles,
            codes[step.kernel].loops.counts,
        )
        for step in plan.steps
    ]


def _address(
    kind: str, number: int, arena: int, tensors: Sequence[int], states: Sequence[int]
) -> int:
    if kind == "weight":
        return tensors[number]
    return states[number] if kind == "state" else arena
