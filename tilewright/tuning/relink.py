"""The same bundle with other schedules of some kernels: a class of devices starts tuned.

Input: an open bundle, the class, and a schedule per spec number.  Output: `Contents` whose variant
for that class has a new kernel module and new plan images; all other variants stay as they are, and
so do buffers and weights, which are named and not copied.  Equal input gives equal bytes.

A server may hand out `contents.blobs` and the manifest beside the bundle's own weights; the
manifest is complete.  `bundle.write` makes a folder of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import msgspec

from tilewright import TOOL
from tilewright.base.alignment import align
from tilewright.base.errors import BundleVersion, MemoryLimit, UsageError
from tilewright.bundle import Bundle, Code, Contents, FileRef, Manifest, Memory, add, kernels
from tilewright.bundle.image import MEMORY_LIMIT, Call, calls_of, image
from tilewright.kernel.loops import TileFn, settled
from tilewright.kernel.serial import kernel_from_data
from tilewright.kernel.sharing import USUAL, Costs, share, work_of
from tilewright.kernel.spec import Kernel
from tilewright.targets import wasm
from tilewright.targets.classes import DeviceClass
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.table import schedule_from_json
from tilewright.tuning.candidates import loops_of, making

Blobs = dict[str, bytes | bytearray | memoryview]


@dataclass(frozen=True)
class _Part:
    """One kernel in the new module."""

    kernel: Kernel
    schedule: Schedule
    loops: TileFn
    code: wasm.CompiledKernel
    slot: int


def relink(
    bundle: Bundle,
    device: DeviceClass,
    winners: Mapping[int, Schedule],
    costs: Costs = USUAL,
) -> Contents:
    """The bundle with `winners` (spec number → schedule) in the variant of `device`.

    `UsageError` if the bundle has no such variant or no such kernel, `MemoryLimit` if it does not
    fit any more.
    """
    old = bundle.manifest
    variant = _variant(old, device)
    entries = kernels.unpack(bundle.read(old.kernels))
    unknown = sorted(set(winners) - set(range(len(entries))))
    if unknown:
        raise UsageError(
            f"The bundle has no kernel {unknown[0]}",
            hint=f"Its kernels are numbered from 0 to {len(entries) - 1}",
            bundle=old.name,
        )
    target = wasm.TARGETS[variant.variant]
    parts = _parts(entries, target, winners)
    by_slot = {p.slot: p.code for p in parts}
    blobs: Blobs = {}
    module = wasm.link([by_slot[n] for n in range(len(by_slot))], target, 1)
    needs = frozenset[str]().union(*(p.code.needs for p in parts))
    memory = _memory(old.memory, parts)
    images = tuple(
        add(blobs, _image(bundle, number, ref, parts, costs), "bin")
        for number, ref in enumerate(variant.images)
    )
    code = Code(
        variant=target.name,
        features=target.asked(needs),
        registers=target.registers,
        images=images,
        **msgspec.structs.asdict(add(blobs, module, "wasm")),
    )
    listed = [_entry(e, p, target.name) for e, p in zip(entries, parts, strict=True)]
    manifest = msgspec.structs.replace(
        old,
        tool=TOOL,
        memory=memory,
        code=tuple(code if c.variant == code.variant else c for c in old.code),
        slots=max(old.slots, len(by_slot)),
        kernels=add(blobs, kernels.pack(listed), "json"),
    )
    weights = {ref.file for ref in manifest.weights.shards}
    for ref in manifest.files():
        if ref.file not in blobs and ref.file not in weights:
            blobs[ref.file] = bundle.read(ref)
    return Contents(manifest, blobs, bundle.weights)


def _variant(manifest: Manifest, device: DeviceClass) -> Code:
    found = next((c for c in manifest.code if c.variant == device.variant), None)
    if found is None:
        raise UsageError(
            f"The bundle has no code for the class {device.id}",
            hint="Choose a class of another variant, or build the bundle for this one",
            variant=device.variant,
            known=[c.variant for c in manifest.code],
        )
    return found


def _parts(
    entries: Sequence[kernels.Entry], target: wasm.WasmTarget, winners: Mapping[int, Schedule]
) -> list[_Part]:
    """Every kernel with its slot: what stays as it was keeps its own.

    slot 0: specs 0, 1, 2; winner for 1   ->   slot 0: specs 0, 2; a slot at the end: spec 1
    """
    made: dict[int, _Part] = {}
    taken: dict[int, wasm.CompiledKernel] = {}
    usual = [schedule_from_json(e.builds[target.name]["schedule"]) for e in entries]
    changed = {n for n, schedule in winners.items() if schedule != usual[n]}
    total = 1 + max((e.slot for e in entries), default=-1)
    for number in sorted(range(len(entries)), key=lambda n: (n in changed, n)):
        kernel = kernel_from_data(entries[number].spec)
        schedule = winners[number] if number in changed else usual[number]
        with making(kernel, schedule, target):
            # a winner is linked as it was timed; all others share code between shapes
            loops = loops_of(kernel, schedule)
            loops = settled(loops) if number in changed else loops
            code = wasm.compile_tile(loops, target)
        slot = entries[number].slot
        if taken.setdefault(slot, code) != code:
            slot = next((at for at, known in taken.items() if known == code), total)
            total = max(total, slot + 1)
            taken[slot] = code
        made[number] = _Part(kernel, schedule, loops, code, slot)
    return [made[n] for n in range(len(entries))]


def _memory(old: Memory, parts: Sequence[_Part]) -> Memory:
    """Scratch areas are the last region: they may grow."""
    scratch = max(old.scratch_bytes, *(align(p.code.scratch) for p in parts), 0)
    total = align(old.scratch + scratch)
    most = total + (wasm.MOST_WORKERS - 1) * scratch
    if most > MEMORY_LIMIT:
        raise MemoryLimit(
            "the scratch areas of all workers do not fit into a wasm32 memory",
            hint="Choose schedules that need less scratch memory",
            bytes=most,
            scratch=scratch,
            limit=MEMORY_LIMIT,
        )
    return msgspec.structs.replace(old, scratch_bytes=scratch, bytes=total)


def _image(
    bundle: Bundle, number: int, ref: FileRef, parts: Sequence[_Part], costs: Costs
) -> bytes:
    """The image of plan `number`: addresses as they were, all else from the new kernels."""
    plans, memory = bundle.manifest.plans, bundle.manifest.memory
    plan = plans[number]
    used = [parts[step.spec] for step in plan.steps]
    old = calls_of(bundle.read(ref), [len(p.kernel.buffers) for p in used])
    calls = [
        Call(p.slot, call.addresses, p.loops.values, p.loops.tiles)
        for p, call in zip(used, old, strict=True)
    ]
    works = [work_of(p.kernel, c.addresses, c.tiles) for p, c in zip(used, calls, strict=True)]
    ways = share(works, costs)
    data = image([replace(c, **asdict(w)) for c, w in zip(calls, ways, strict=True)], plan.address)
    end = min((p.address for p in plans if p.address > plan.address), default=memory.arena)
    if plan.address + len(data) > end:
        raise BundleVersion(
            "The bundle has no room for the plan as this version writes it",
            hint="Build the bundle again",
            plan=number,
            bytes=len(data),
            room=end - plan.address,
        )
    return data


def _entry(old: kernels.Entry, part: _Part, variant: str) -> kernels.Entry:
    build = kernels.build_of(old.spec, part.schedule.to_json(), variant)
    return msgspec.structs.replace(old, builds=old.builds | {variant: build})
