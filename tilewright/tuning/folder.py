"""Every candidate of a bundle in a folder: for pages that tune without any server.

Input: a bundle and device classes.  Output: `tuning/` beside the bundle's files, as docs/modes.md
describes it: modules by their digest, one list per class, and the index.  A reader never sees a
half-written one.  Equal input gives equal bytes.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from tilewright import TOOL
from tilewright.base.errors import TilewrightError, UsageError
from tilewright.bundle import Bundle, FileRef
from tilewright.bundle.format import BLOBS, encode
from tilewright.bundle.writer import reference, replace, sweep
from tilewright.kernel.schedule import Schedule
from tilewright.kernel.space import Objective
from tilewright.kernel.spec import Kernel
from tilewright.targets import classes as devices
from tilewright.targets.classes import DeviceClass
from tilewright.targets.wasm import TARGETS
from tilewright.tuning.candidates import Built, build, space_of
from tilewright.tuning.offers import Data, default_of, described, ordered
from tilewright.tuning.queue import opened

log = logging.getLogger(__name__)

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
    workers: int = 1,
) -> Written:
    """Makes and writes them all, into the bundle's own folder.

    Several workers are processes that make kernels side by side; the bytes are the same.
    """
    folder = bundle.folder / FOLDER
    (folder / BLOBS).mkdir(parents=True, exist_ok=True)
    files: dict[str, int] = {}

    def put(data: bytes, extension: str) -> FileRef:
        ref = reference(data, extension)
        if ref.file not in files:
            replace(folder / ref.file, data)
            files[ref.file] = ref.bytes
        return ref

    found = opened(bundle)
    jobs = [
        (spec, kernel, entry.builds, found.plans.get(spec, ()), tuple(classes), objective)
        for spec, (kernel, entry) in enumerate(zip(found.kernels, found.entries, strict=True))
    ]
    listed: dict[str, list[Data]] = {device.id: [] for device in classes}
    with _each(workers) as each:
        for number, made in enumerate(each(_candidates_of, jobs)):
            progress("candidates", number, len(jobs))
            for module in made.modules:
                put(module, "wasm")
            for id, about in made.listed.items():
                listed[id].append(about)
    modules = len(files)
    spaces = {
        id: put(encode({"class": id, "kernels": kernels}), "json") for id, kernels in listed.items()
    }
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
    replace(folder / INDEX, index)
    sweep(folder, INDEX, set(files))
    tried = (c for kernels in listed.values() for k in kernels for c in k["candidates"])
    candidates = sum(c is not None for c in tried)
    return Written(tuple(spaces), candidates, modules, sum(files.values()) + len(index))


@dataclass(frozen=True)
class _Made:
    """Of one kernel: its modules, and by class what the lists say of it."""

    modules: tuple[bytes, ...]
    listed: dict[str, Data]


Job = tuple[int, Kernel, Mapping[str, Data], tuple[int, ...], tuple[DeviceClass, ...], Objective]


def _candidates_of(job: Job) -> _Made:
    """Classes share most of their schedules: each is built once for each target.

    One that cannot be made, or that does not serve the objective, keeps its number, with null, and
    is not in the order of trial.
    """
    spec, kernel, builds, plans, classes, objective = job
    known: dict[tuple[Schedule, str], Built | None] = {}
    listed = {}
    for device in classes:
        space = space_of(kernel, device, objective)
        serving = {0, *space.trial}
        about: list[Data | None] = []
        for number, schedule in enumerate(space.schedules):
            key = (schedule, device.variant)
            if number in serving and key not in known:
                known[key] = _built(kernel, schedule, device.variant)
            built = known[key] if number in serving else None
            about.append(None if built is None else described(space, number, built, kernel, plans))
        default = default_of(builds, device.variant, space)
        offered = ordered(spec, space, default)
        offered["order"] = [n for n in offered["order"] if about[n] is not None]
        listed[device.id] = {**offered, "candidates": about}
    return _Made(tuple(b.module for b in known.values() if b is not None), listed)


def _built(kernel: Kernel, schedule: Schedule, variant: str) -> Built | None:
    """None for one that cannot be made: it is left out, as the server does."""
    try:
        return build(kernel, schedule, TARGETS[variant])
    except TilewrightError as error:
        log.warning("A candidate is left out: %s", error)
        return None


@contextmanager
def _each(workers: int) -> Iterator[Callable[..., Iterable[_Made]]]:
    """`map`, in this process or in several."""
    if workers < 2:
        yield map
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield pool.map
