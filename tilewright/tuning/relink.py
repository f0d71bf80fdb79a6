"""Gives some kernels of a bundle other schedules, so that a class of devices starts tuned.

Input: an open bundle, the class, and a schedule per spec number.  Output: `Contents`, whose variant
for that class has new code and newly encoded plans.  All other variants are unchanged, and so are
buffers and weights, which are referenced and not copied.  Equal input gives equal bytes.

A server may serve `contents.blobs` and the complete manifest beside the bundle's own weights;
`bundle.write` writes them as a folder.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tilewright import TOOL
from tilewright.base.dtypes import DTYPES, in_memory
from tilewright.base.errors import UsageError
from tilewright.bundle import Bundle, Contents, Manifest, SectionEntry, section_files
from tilewright.bundle.format import checking, parse, reading
from tilewright.bundle.section_files import load, store
from tilewright.kernel.spec import Kernel
from tilewright.plan import Extent, Growth, Program, State, Tensor, check, plan_from_data
from tilewright.targets import Code, Target
from tilewright.targets import target as find_target
from tilewright.targets.device_class import DeviceClass
from tilewright.targets.schedule import Schedule
from tilewright.tuning.candidates import making
from tilewright.tuning.catalogue import kernels_of, slots_of


def relink(
    bundle: Bundle,
    device: DeviceClass,
    winners: Mapping[int, Schedule],
    settings: Mapping[str, object] | None = None,
) -> Contents:
    """The bundle with `winners` (spec number → schedule) in the variant of `device`.

    Raises UsageError if the bundle has no such variant or kernel, BundleCorrupt if it is damaged,
    MemoryLimit if it no longer fits.
    """
    old = bundle.manifest
    section = _section(old, device)
    target = find_target(device.target)
    entries = section_files.unpack(bundle.read(old.kernels))
    unknown = sorted(set(winners) - set(range(len(entries))))
    if unknown:
        raise UsageError(
            f"The bundle has no kernel {unknown[0]}",
            hint=f"Its kernels are numbered from 0 to {len(entries) - 1}",
            bundle=old.name,
        )
    program = program_of(bundle)
    slots = slots_of(bundle, target.name, program.kernels)
    current = [target.schedule(slot.builds[device.variant]["schedule"]) for slot in slots]
    changed = frozenset(n for n, schedule in winners.items() if schedule != current[n])
    # A winner is linked as it was timed; other kernels share code between shapes.
    codes = [
        _code(
            target, device.variant, kernel, winners[n] if n in changed else current[n], n in changed
        )
        for n, kernel in enumerate(program.kernels)
    ]
    made = target.exchange(
        program, load(bundle, section), device.variant, codes, changed, settings or {}
    )
    listed = [
        msgspec.structs.replace(
            slot,
            builds=slot.builds
            | {
                device.variant: section_files.build_of(
                    entry.spec, code.schedule.to_json(), device.variant
                )
            },
        )
        for slot, code, entry in zip(slots, codes, entries, strict=True)
    ]
    blobs: dict[str, bytes | bytearray | memoryview] = {}
    manifest = msgspec.structs.replace(
        old, tool=TOOL, targets=old.targets | {target.name: store(made, listed, blobs)}
    )
    weights = {ref.file for ref in manifest.weights.shards}
    for ref in manifest.files():
        if ref.file not in blobs and ref.file not in weights:
            blobs[ref.file] = bundle.read(ref)
    return Contents(manifest, blobs, bundle.weights)


def program_of(bundle: Bundle) -> Program:
    """The neutral program of a bundle.  Raises BundleCorrupt."""
    manifest, growth = bundle.manifest, bundle.manifest.grown
    with reading("the plans"):
        plans = [
            parse(bundle.read(plan.file), dict[str, object], "a plan") for plan in manifest.plans
        ]
        made = tuple(map(plan_from_data, plans))
    program = Program(
        kernels_of(bundle),
        made,
        tuple(Tensor(DTYPES[t.dtype], t.shape) for t in bundle.tensors()),
        states=tuple(
            State(s.name, in_memory(s.dtype), s.shape, rows=growth.rows if growth else 0)
            for s in manifest.states
        ),
        extents=tuple(Extent(name, manifest.dims[name][-1]) for name in manifest.extents),
        growth=Growth(growth.input, growth.dim, growth.rows) if growth else None,
    )
    with reading("the plans"), checking():
        check(program)
    return program


def _section(manifest: Manifest, device: DeviceClass) -> SectionEntry:
    """The section of the bundle with the code of the class."""
    section = manifest.targets.get(device.target)
    if section is None or section.build(device.variant) is None:
        raise UsageError(
            f"The bundle has no code for the class {device.id}",
            hint="Choose a class of another variant, or build the bundle for this one",
            target=device.target,
            variant=device.variant,
            known=[b.variant for s in manifest.targets.values() for b in s.builds],
        )
    return section


def _code(target: Target, variant: str, kernel: Kernel, schedule: Schedule, alone: bool) -> Code:
    with making(target, kernel, schedule, variant):
        return target.codes(kernel, {variant: schedule}, alone=alone)[variant]
