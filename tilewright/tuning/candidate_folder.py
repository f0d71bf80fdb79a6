"""Writes every candidate of a bundle to a folder, for pages that tune without a server.

Input: a bundle, device classes, and a way to call the compiler's functions.  Output: `tuning/`
beside the bundle's files, as in docs/modes.md: modules by digest, one list per class, and the
index; also the candidates that were left out.  A reader never sees a half-written folder.  Equal
input gives equal bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from tilewright import TOOL
from tilewright.base.errors import NoSpace, TilewrightError, UsageError
from tilewright.base.sections import File
from tilewright.bundle import Bundle, FileRef
from tilewright.bundle.format import encode
from tilewright.bundle.owned_files import FolderPart, check
from tilewright.bundle.signing import Signer
from tilewright.bundle.writer import reference
from tilewright.kernel.spec import Kernel
from tilewright.targets import device_classes as devices
from tilewright.targets import target as find_target
from tilewright.targets.device_class import DeviceClass
from tilewright.targets.lite_space import Objective
from tilewright.targets.schedule import Schedule
from tilewright.tuning.candidates import (
    Built,
    Data,
    Space,
    build,
    default_of,
    described,
    ordered,
    space_of,
)
from tilewright.tuning.catalogue import opened

FORMAT = 1
FOLDER = "tuning"
INDEX = "index.json"

Progress = Callable[[str, int, int], None]
#: Calls a function of the compiler: here, or in a worker that may fail with a typed error.
Call = Callable[..., Awaitable[Any]]


async def in_process(function: Callable[..., Any], *given: object) -> Any:
    """Calls it in this process, without limits."""
    return function(*given)


@dataclass(frozen=True)
class LeftOut:
    """A schedule of a kernel (number, name) that could not be made for a variant, and the
    reason."""

    spec: int
    kernel: str
    schedule: str
    variant: str
    why: str


@dataclass(frozen=True)
class Written:
    """The result: number of candidates of all classes, number of distinct modules, bytes of all
    files, and the candidates that were left out."""

    classes: tuple[str, ...]
    candidates: int
    modules: int
    bytes: int
    left_out: tuple[LeftOut, ...] = ()


def tunable_classes(ids: Sequence[str]) -> tuple[DeviceClass, ...]:
    """The classes of these ids; without ids, all that can be tuned."""
    if not ids:
        return tuple(c for c in devices.CLASSES.values() if c.tunable)
    found = tuple(devices.find(id) for id in dict.fromkeys(ids))
    for device in found:
        if not device.tunable:
            raise NoSpace(
                f"There are no candidates for devices of class {device.id} yet",
                hint="Name classes that have a variant, or leave --classes out",
            )
    return found


def write_candidates(
    bundle: Bundle,
    classes: Sequence[DeviceClass],
    objective: Objective = "latency",
    progress: Progress = lambda *_: None,
    call: Call = in_process,
    signer: Signer | None = None,
) -> Written:
    """Makes all candidates and writes them into the bundle's own folder.

    The bytes do not depend on the process that makes them.  A candidate that cannot be made is left
    out; a missing space is an error.  Classes of targets that the bundle lacks are skipped;
    `UsageError` if no class is left.
    """
    targets = bundle.manifest.targets
    served = [device for device in classes if device.target in targets]
    if classes and not served:
        raise UsageError(
            "The bundle has no code for any of these classes",
            hint="Name classes of a target that the bundle has, or add their target with --target",
            classes=[device.id for device in classes],
            targets=sorted(targets),
        )
    check(bundle.folder, (f"{FOLDER}/{INDEX}",))
    with FolderPart(bundle.folder, FOLDER) as section:
        return _written(section, bundle, served, objective, progress, call, signer)


def _written(
    section: FolderPart,
    bundle: Bundle,
    classes: Sequence[DeviceClass],
    objective: Objective,
    progress: Progress,
    call: Call,
    signer: Signer | None,
) -> Written:
    files = _Files(section)
    listed: dict[str, list[Data]] = {device.id: [] for device in classes}
    left_out: list[LeftOut] = []

    def take(made: _Made) -> None:
        files.put(made.modules)
        for id, about in made.listed.items():
            listed[id].append(about)
        left_out.extend(made.left_out)

    asyncio.run(_make_all(_jobs(bundle, classes, objective), take, progress, call))
    modules = len(files.bytes)
    if signer:
        _sign(signer, bundle.pointer.manifest.digest, listed)
    lists = [File(encode({"class": id, "kernels": of}), "json") for id, of in listed.items()]
    spaces = dict(zip(listed, files.put(lists), strict=True))
    index = encode(
        {
            "format": FORMAT,
            "tool": TOOL,
            "bundle": bundle.pointer.manifest.digest,
            "objective": objective,
            "classes": devices.table(),
            "spaces": spaces,
        }
    )
    section.put(f"{FOLDER}/{INDEX}", index)
    tried = (c for kernels in listed.values() for k in kernels for c in k["candidates"])
    candidates = sum(c is not None for c in tried)
    size = sum(files.bytes.values()) + len(index)
    return Written(tuple(spaces), candidates, modules, size, tuple(left_out))


@dataclass(frozen=True)
class _Files:
    """Writes files that are named by their content.  bytes: of each file, by its name"""

    section: FolderPart
    bytes: dict[str, int] = field(default_factory=dict)

    def put(self, made: Iterable[File]) -> list[FileRef]:
        """Writes files.  Equal files are written once."""
        refs = {reference(file.data, file.extension): file.data for file in made}
        self.section.put_all({f"{FOLDER}/{ref.file}": data for ref, data in refs.items()})
        self.bytes.update({ref.file: ref.bytes for ref in refs})
        return list(refs)


def _sign(signer: Signer, bundle: str, listed: Mapping[str, list[Data]]) -> None:
    """Adds a signature to each candidate of the lists."""
    for kernel in chain.from_iterable(listed.values()):
        for number, about in enumerate(kernel["candidates"]):
            if about is not None:
                named = {"spec": kernel["spec"], "candidate": number}
                whole = about | named | {"checksum": kernel["checksum"]}
                about["signature"] = signer.candidate(bundle, whole)


@dataclass(frozen=True)
class _Made:
    """One kernel's modules, and its entries in the lists, by class."""

    modules: tuple[File, ...]
    listed: dict[str, Data]
    left_out: tuple[LeftOut, ...]


Job = tuple[int, Kernel, Mapping[str, Data], tuple[int, ...], tuple[DeviceClass, ...], Objective]


def _jobs(bundle: Bundle, classes: Sequence[DeviceClass], objective: Objective) -> list[Job]:
    """What must be made: one job for each kernel."""
    found = opened(bundle)
    return [
        (
            spec,
            kernel,
            {name: slots[spec].builds for name, slots in found.slots.items()},
            found.plans.get(spec, ()),
            tuple(classes),
            objective,
        )
        for spec, kernel in enumerate(found.kernels)
    ]


async def _make_all(
    jobs: Sequence[Job], take: Callable[[_Made], None], progress: Progress, call: Call
) -> None:
    """Starts all jobs, and passes their results to `take` in the order of the jobs."""
    started = [asyncio.ensure_future(_candidates_of(job, call)) for job in jobs]
    for number, coming in enumerate(started):
        progress("candidates", number, len(jobs))
        take(await coming)


async def _candidates_of(job: Job, call: Call) -> _Made:
    """Builds a kernel's candidates.  Classes share most schedules; each is built once per variant.

    A candidate that cannot be made, or that cannot serve the objective, keeps its number with null,
    and is not in the order of trial.
    """
    spec, kernel, builds, plans, classes, objective = job
    spaces: list[Space] = [await call(space_of, kernel, device, objective) for device in classes]
    serving = [{0, *space.trial} for space in spaces]
    keys = dict.fromkeys(
        (space.schedules[number], space.device.target, space.device.variant)
        for space, numbers in zip(spaces, serving, strict=True)
        for number in sorted(numbers)
    )
    made = await asyncio.gather(*(_built(spec, kernel, *key, call) for key in keys))
    known = dict(zip(keys, made, strict=True))
    listed = {}
    for space, numbers in zip(spaces, serving, strict=True):
        device = space.device
        about: list[Data | None] = []
        for number, schedule in enumerate(space.schedules):
            key = (schedule, device.target, device.variant)
            built = known[key] if number in numbers else None
            if isinstance(built, Built):
                about.append(described(space, number, built, plans))
            else:
                about.append(None)
        own = builds.get(device.target, {})
        # Pages skip candidates that their device cannot run.
        every = find_target(device.target).facts.features
        default = default_of(own, device.variant, space, every)
        offered = ordered(spec, space, default, every)
        offered["order"] = [n for n in offered["order"] if about[n] is not None]
        listed[device.id] = {**offered, "candidates": about}
    return _Made(
        tuple(File(b.module, b.extension) for b in made if isinstance(b, Built)),
        listed,
        tuple(b for b in made if isinstance(b, LeftOut)),
    )


async def _built(
    spec: int, kernel: Kernel, schedule: Schedule, target: str, variant: str, call: Call
) -> Built | LeftOut:
    """Builds one candidate; any failure leaves only this candidate out, as on a server."""
    try:
        built: Built = await call(build, kernel, schedule, target, variant)
    except TilewrightError as error:
        return LeftOut(spec, kernel.name, str(schedule), variant, str(error))
    return built
