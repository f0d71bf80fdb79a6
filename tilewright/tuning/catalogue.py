"""A server's offers to a device: the kernels of a bundle, their spaces, and candidates as code.

Input: an open bundle, a device class, a client's wishes.  Output: `OpenedBundle`, offers, subjects
for candidate_order.py, messages for candidates.  This module keeps no state, does not wait and has
no socket.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilewright.base.errors import BundleCorrupt, InputError, UsageError
from tilewright.bundle import Bundle
from tilewright.bundle.format import REBUILD, checking, reading
from tilewright.bundle.section_files import Slot, unpack, unpack_slots
from tilewright.bundle.signing import Signer
from tilewright.kernel.serialise import kernel_from_data
from tilewright.kernel.spec import Kernel
from tilewright.kernel.spec import check as check_kernel
from tilewright.targets import TARGETS, Target, device_classes
from tilewright.targets.device_class import DeviceClass
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.schedule import Schedule
from tilewright.tuning import candidates
from tilewright.tuning.candidates import Built, Needs, Space, key_of, number_of
from tilewright.tuning.messages import Gold, KernelMessage, Offer, Unknown

#: Schedules by kernel number.
Winners: TypeAlias = Mapping[int, Schedule]


@dataclass(frozen=True, eq=False)
class OpenedBundle:
    """A bundle as sessions see it; all facts about each kernel are in memory.

    slots: by target, its schedules and code of each kernel
    plans: by kernel number, the plans that run it
    """

    bundle: Bundle
    kernels: tuple[Kernel, ...]
    keys: tuple[str, ...]
    slots: Mapping[str, Sequence[Slot]]
    plans: Mapping[int, tuple[int, ...]]

    @property
    def digest(self) -> str:
        return self.bundle.pointer.manifest.digest

    def runs(self, device: DeviceClass, variant: str) -> bool:
        """True if it has this variant of the code that devices of the class run."""
        section = self.bundle.manifest.targets.get(device.target)
        return section is not None and section.build(variant) is not None

    def default(
        self, spec: int, variant: str, space: Space, features: Collection[str]
    ) -> int | None:
        """The number of the candidate that a device with these features runs in the bundle itself;
        None if the space lacks it."""
        slots = self.slots.get(space.device.target)
        if slots is None:
            return None
        return candidates.default_of(slots[spec].builds, variant, space, features)


def opened(bundle: Bundle) -> OpenedBundle:
    """Reads all kernel specifications and schedules.  Raises BundleCorrupt."""
    kernels = kernels_of(bundle)
    plans = candidates.plans_of([[step.spec for step in p.steps] for p in bundle.manifest.plans])
    slots = {name: slots_of(bundle, name, kernels) for name in bundle.manifest.targets}
    return OpenedBundle(bundle, kernels, tuple(map(key_of, kernels)), slots, plans)


def kernels_of(bundle: Bundle) -> tuple[Kernel, ...]:
    """The kernels of a bundle by spec number.  Raises BundleCorrupt."""
    with reading("the list of kernels"):
        entries = unpack(bundle.read(bundle.manifest.kernels))
        made = tuple(kernel_from_data(entry.spec) for entry in entries)
        with checking():
            for kernel in made:
                check_kernel(kernel)
    used = [step.spec for plan in bundle.manifest.plans for step in plan.steps]
    if not all(0 <= spec < len(made) for spec in used):
        raise BundleCorrupt(
            "a plan runs a kernel that the bundle lacks", hint=REBUILD, kernels=len(made)
        )
    return made


def slots_of(bundle: Bundle, name: str, kernels: Sequence[Kernel]) -> list[Slot]:
    """A target's schedules and code of each kernel; candidates can be made only for our own
    targets. Raises BundleCorrupt."""
    section, target = bundle.manifest.targets[name], TARGETS.get(name)
    with reading(f"the list of slots of {name}"):
        slots = unpack_slots(bundle.read(section.kernels))
        if len(slots) != len(kernels):
            raise ValueError(f"it has {len(slots)} of {len(kernels)} kernels")
        if not all(0 <= slot.slot < section.slots for slot in slots):
            raise ValueError(f"it names a slot beyond {section.slots}")
        for slot, kernel in zip(slots, kernels, strict=True):
            for build in section.builds:
                data = slot.builds[build.variant]["schedule"]
                wrong = _objection(target, kernel, data) if target else ""
                if wrong:
                    raise ValueError(f"the schedule of {kernel.name}: {wrong}")
    return slots


def _objection(target: Target, kernel: Kernel, data: Mapping[str, Any]) -> str:
    try:
        return target.objection(kernel, target.schedule(data))
    except InputError as error:
        return error.message


def device_class(name: str) -> DeviceClass:
    """The class of this id.  An unknown id is the client's error."""
    try:
        return device_classes.find(name)
    except UsageError as error:
        raise Unknown(error.message, hint="GET /api/classes lists them", device=name) from error


def class_table() -> list[dict[str, object]]:
    """All classes, as GET /api/classes returns them."""
    return device_classes.table()


def similar_classes(device: DeviceClass) -> tuple[DeviceClass, ...]:
    """Classes of similar hardware, most similar first: the class itself, whose votes other browsers
    of the device may lack; then classes with the same wider class; then the wider ones."""
    found = {device.id: device}
    at = device
    while at.fallback:
        wider = CLASSES[at.fallback]
        near = (
            c for c in CLASSES.values() if c.fallback == wider.id and c.variant == device.variant
        )
        found |= {c.id: c for c in (*near, wider)}
        at = wider
    return tuple(found.values())


def translate(candidate: int, of: Space, to: Space) -> int | None:
    """The number of the same schedule in another space of the kernel; None if it is not there."""
    if not 0 <= candidate < len(of.schedules):
        return None
    return number_of(to, of.schedules[candidate])


def offer(spec: int, space: Space, default: int | None, *, asked: int | None) -> Offer:
    """A kernel's part of `welcome`.  asked: a candidate to measure against the compiler's
    default"""
    question = None if asked is None else Gold(a=0, b=asked)
    return Offer(**_typed(candidates.offer(spec, space, default)) | {"gold": question})


def message(
    opened: OpenedBundle,
    spec: int,
    space: Space,
    candidate: int,
    built: Built,
    signer: Signer | None = None,
) -> KernelMessage:
    """The header that accompanies a module."""
    about = {"spec": spec, "candidate": candidate, "checksum": space.checksum}
    about |= candidates.described(space, candidate, built, opened.plans.get(spec, ()))
    if signer:
        about["signature"] = signer.candidate(opened.digest, about)
    return KernelMessage(**_typed(about))


def _typed(data: candidates.Data) -> candidates.Data:
    needs = data["needs"]
    return data | {"needs": needs and Needs(**needs)}
