"""Every candidate of a bundle in a folder: for pages that tune without any server.

Input: a bundle and device classes.  Output: `tuning/` beside the bundle's files, as docs/modes.md
describes it: modules by their digest, one list per class, and the index.  A reader never sees a
half-written one.  Equal input gives equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright import __version__
from tilewright.base.errors import UsageError
from tilewright.bundle import Bundle, FileRef
from tilewright.bundle.format import BLOBS, encode
from tilewright.bundle.writer import reference, replace, sweep
from tilewright.kernel.schedule import Schedule
from tilewright.kernel.space import Objective
from tilewright.targets import classes as devices
from tilewright.targets.classes import DeviceClass
from tilewright.targets.wasm import TARGETS
from tilewright.tuning.candidates import Built, build, kernels_of, space_of
from tilewright.tuning.offers import Data, described, offer, plans_of

FORMAT = 1
FOLDER = "tuning"
INDEX = "index.json"

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Written:
    """What was written: candidates of all classes, modules that differ, bytes of all files."""

    classes: tuple[str, ...]
    candidates: int
    modules: int
    bytes: int


def wanted(ids: Sequence[str]) -> tuple[DeviceClass, ...]:
    """The classes of these ids; of none, all that run WebAssembly."""
    if not ids:
        return tuple(c for c in devices.CLASSES.values() if c.kind == "wasm")
    found = tuple(devices.find(id) for id in dict.fromkeys(ids))
    for device in found:
        if device.variant not in TARGETS:
            raise UsageError(
                f"There are no kernels for devices of class {device.id} yet",
                hint="Name classes of the kind wasm, or leave --classes out",
            )
    return found


def write_candidates(
    bundle: Bundle,
    classes: Sequence[DeviceClass],
    objective: Objective = "latency",
    progress: Progress = lambda *_: None,
) -> Written:
    """Makes and writes them all, into the bundle's own folder."""
    folder = bundle.folder / FOLDER
    (folder / BLOBS).mkdir(parents=True, exist_ok=True)
    files: dict[str, int] = {}

    def put(data: bytes, extension: str) -> FileRef:
        ref = reference(data, extension)
        if ref.file not in files:
            replace(folder / ref.file, data)
            files[ref.file] = ref.bytes
        return ref

    kernels = kernels_of(bundle)
    plans = plans_of([[step.spec for step in plan.steps] for plan in bundle.manifest.plans])
    listed: dict[str, list[Data]] = {device.id: [] for device in classes}
    for spec, kernel in enumerate(kernels):
        progress("candidates", spec, len(kernels))
        known: dict[tuple[Schedule, str], Built] = {}
        for device in classes:
            space = space_of(kernel, device, objective)
            about = []
            for number, schedule in enumerate(space.schedules):
                key = (schedule, device.variant)
                built = known.get(key) or build(kernel, schedule, TARGETS[device.variant])
                known[key] = built
                put(built.module, "wasm")
                about.append(described(space, number, built, kernel, plans.get(spec, ())))
            head = {**offer(spec, space), "order": space.order}
            listed[device.id].append({**head, "candidates": about})
    modules = len(files)
    spaces = {
        id: put(encode({"class": id, "kernels": found}), "json") for id, found in listed.items()
    }
    index = encode(
        {
            "format": FORMAT,
            "tool": f"tilewright {__version__}",
            "bundle": bundle.pointer.manifest.digest,
            "classes": devices.table(),
            "spaces": spaces,
        }
    )
    replace(folder / INDEX, index)
    sweep(folder / BLOBS, set(files))
    candidates = sum(len(k["candidates"]) for found in listed.values() for k in found)
    return Written(tuple(spaces), candidates, modules, sum(files.values()) + len(index))
