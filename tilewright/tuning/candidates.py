"""Candidates: the space of one kernel on one class of devices, and the code of each candidate.

Input: kernels of a bundle, a `DeviceClass`.  Output: `Space`, numbered schedules with their order
of trial, the same in every process; `Built`, a candidate as a module; and the public description of
a kernel and of a candidate as plain data, the same from a server, a static build and a page.
Nothing is measured here.  Only the standard library is needed, so that a page can run this under
Pyodide.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tilewright.base.compiler_digest import compiler_digest
from tilewright.base.errors import CompilerBug, UsageError
from tilewright.kernel.serialise import kernel_to_data
from tilewright.kernel.spec import Kernel
from tilewright.targets import target
from tilewright.targets import target as find_target
from tilewright.targets.device_class import DeviceClass
from tilewright.targets.lite_space import RELAXATION, Objective, product_of
from tilewright.targets.protocol import Candidate, Fixed, Mark, Target, fixed
from tilewright.targets.schedule import Schedule

if TYPE_CHECKING:
    from tilewright.bundle.section_files import SlotBuild


@dataclass(frozen=True)
class Needs:
    """A schedule's resources, which objectives other than latency count; known without measuring.

    traffic: words loaded and stored beyond L1;  scratch: bytes of scratch memory of a worker, the
             part that depends on the schedule
    """

    traffic: float
    scratch: int


@dataclass(frozen=True)
class Space:
    """The numbered candidates of a kernel on a class of devices.

    key:       SHA-256 of the kernel's specification without its name
    kind:      `Kernel.anchor`;  shape: its sizes, "384x768x768" for a product (m, k, n)
    schedules: by candidate number; 0 is the bundle's default
    marks:     "default", "lite" (the paper's space) or "extended" (our own), one per schedule
    needs:     the resources of each schedule
    order:     all numbers but 0, best by the objective first
    useful:    how many of these need less of the objective's resource than 0.  For latency it is
        all, since that must be measured.
    checksum:  16 hex digits over the meaning of all numbers
    fixed:     why there is only the default, if the kernel's kind is the reason; else ""
    slow:      a schedule outside the space that is much slower than 0 on any device, for gold
        questions; its number is `gold`
    """

    key: str
    kind: str
    shape: str
    device: DeviceClass
    schedules: tuple[Schedule, ...]
    marks: tuple[Mark, ...]
    needs: tuple[Needs, ...]
    order: tuple[int, ...]
    useful: int
    checksum: str
    fixed: Fixed
    slow: Schedule | None

    @property
    def trial(self) -> tuple[int, ...]:
        """Numbers in the order of trial, without those that cannot serve the objective."""
        return self.order[: self.useful]

    def trial_on(self, features: Collection[str]) -> tuple[int, ...]:
        """The same for a device with these features beyond those of its class."""
        return tuple(number for number in self.trial if self.runs(number, features))

    @property
    def gold(self) -> int | None:
        """The number after the last one.  It has no votes, so checksums need not include it."""
        return None if self.slow is None else len(self.schedules)

    def schedule(self, number: int) -> Schedule | None:
        """The schedule of a number; None if there is none."""
        known = (*self.schedules, self.slow)
        return known[number] if 0 <= number < len(known) else None

    def runs(self, number: int, features: Collection[str]) -> bool:
        """True if a device with these features beyond those of its class can run it."""
        found = self.schedule(number)
        return found is not None and found.features.issubset(features)

    def mark(self, number: int) -> Mark:
        """The public description of a candidate.  It does not reveal a gold question."""
        return self.marks[number] if number < len(self.marks) else "extended"


@dataclass(frozen=True)
class Built:
    """One candidate as code.

    module:    a file with this extension, as engines of the target load it
    digest:    SHA-256 of module
    tiles:     of the kernel under this schedule, as hosts count them (`Target.tiles`)
    grain:     tiles per ticket of its steps
    scratch:   bytes of a worker's scratch area that it needs
    features:  features that a host must have to run it

    It has no run-time scalars, so the argument block of any other candidate fits it.
    """

    module: bytes
    extension: str
    digest: str
    tiles: int
    grain: int
    scratch: int
    schedule: Schedule
    features: tuple[str, ...]


def space_of(
    kernel: Kernel,
    device: DeviceClass,
    objective: Objective = "latency",
    relaxation: float = RELAXATION,
) -> Space:
    """Every candidate of a kernel; equal arguments give an equal space in every process.

    The objective decides only the order of trial, and how much of it is useful.  Others understand
    the numbers only at the default relaxation of the lite space. Raises `NoSpace` if the class's
    target has no schedules to choose from.
    """
    target = find_target(device.target)
    found = target.candidates(kernel, device, relaxation)
    key = key_of(kernel)
    schedules = tuple(c.schedule for c in found)
    order, useful = _order(found, objective)
    figures = [device.id, asdict(device.core), device.machine and asdict(device.machine)]
    told = [key, figures, compiler_digest(), [s.to_json() for s in schedules]]
    return Space(
        key=key,
        kind=kernel.anchor,
        shape=shape_of(kernel),
        device=device,
        schedules=schedules,
        marks=tuple(c.mark for c in found),
        needs=tuple(Needs(_amount(c.words), c.scratch) for c in found),
        order=order,
        useful=useful,
        checksum=_digest(told)[:16],
        fixed=fixed(kernel) if len(found) == 1 else "",
        slow=target.slow(kernel, schedules[0]),
    )


#: Sort keys, smallest first; ties are in the order of latency, as in the page's candidate_order.js.
_KEYS: Mapping[Objective, Callable[[Candidate], float]] = {
    "traffic": lambda c: c.words,
    "scratch": lambda c: c.scratch,
}


def _order(found: Sequence[Candidate], objective: Objective) -> tuple[tuple[int, ...], int]:
    """All numbers but the default's, and how many of them need less than it does."""
    by_cost = sorted(range(1, len(found)), key=lambda n: (_amount(found[n].cost), found[n].cost, n))
    order = mixed(by_cost, found)
    if objective == "latency":
        return order, len(order)
    needs = [_amount(_KEYS[objective](c)) for c in found]
    return tuple(sorted(order, key=needs.__getitem__)), sum(need < needs[0] for need in needs)


#: Every `MIXED_EVERY`-th candidate comes from the family that was tried least, if its cost is below
#: `MIXED_WORSE` times the best one's.
MIXED_EVERY, MIXED_WORSE = 2, 2.0


def mixed(order: Sequence[int], found: Sequence[Candidate]) -> tuple[int, ...]:
    """An order with the best of all families early, since a model's error is similar within a
    family.

    Before: a a a a a b b c   after: a b a c a b a a
    """
    waiting: dict[str, list[int]] = {}
    for number in reversed(order):
        waiting.setdefault(found[number].family, []).append(number)
    rank = {number: place for place, number in enumerate(order)}
    taken = dict.fromkeys(waiting, 0)
    limit = MIXED_WORSE * found[order[0]].cost if order else 0.0
    result: list[int] = []
    while len(result) < len(order):
        heads = [numbers[-1] for numbers in waiting.values() if numbers]
        turn = len(result) % MIXED_EVERY == MIXED_EVERY - 1
        worth = [n for n in heads if found[n].cost <= limit] if turn else []
        chosen = min(
            worth or heads, key=lambda n: (taken[found[n].family] if worth else 0, rank[n])
        )
        family = found[chosen].family
        result.append(waiting[family].pop())
        taken[family] += 1
    return tuple(result)


def _amount(value: float) -> float:
    """The value rounded, so that sums which differ only in their last bits are equal."""
    return round(value, 6)


def build(kernel: Kernel, schedule: Schedule, target: str, variant: str) -> Built:
    """One candidate as a module of its own.  Raises the errors of `making`."""
    chosen = find_target(target)
    with making(chosen, kernel, schedule, variant):
        code = chosen.codes(kernel, {variant: schedule}, alone=True)[variant]
        file = chosen.module(code, variant)
    tiles = chosen.tiles(code)
    return Built(
        module=file.data,
        extension=file.extension,
        digest=hashlib.sha256(file.data).hexdigest(),
        tiles=tiles,
        grain=chosen.grain(kernel, tiles),
        scratch=code.scratch,
        schedule=schedule,
        features=tuple(sorted(code.needs & chosen.facts.features)),
    )


@contextmanager
def making(target: Target, kernel: Kernel, schedule: Schedule, variant: str) -> Iterator[None]:
    """Adds the kernel and schedule to errors of its body.

    `UsageError` for an invalid schedule, `CompilerBug` if an invariant fails.
    """
    wrong = target.objection(kernel, schedule)
    if wrong:
        raise UsageError(
            f"No code can be made from a schedule: {wrong}",
            hint="Take a schedule that `tune --save` wrote for this kernel",
            kernel=kernel.name,
            schedule=str(schedule),
        )
    try:
        yield
    except CompilerBug as error:
        facts = error.facts | {"kernel": kernel.name, "schedule": str(schedule), "variant": variant}
        why = f"a schedule cannot be made: {error.message}"
        raise CompilerBug(why, hint=error.hint, **facts) from error


def key_of(kernel: Kernel) -> str:
    """The key of a kernel everywhere: a digest of its specification, without the model's name for
    it."""
    data = kernel_to_data(kernel)
    del data["name"]
    return _digest(data)


def shape_of(kernel: Kernel) -> str:
    """A readable shape: "12x384x384x64" for a product ([batch,] m, k, n), else the extents of the
    output and, after a colon, of the first reduction."""
    matrix = product_of(kernel)
    if matrix is not None:
        return str(matrix)
    axes = "x".join(str(v.extent) for v in kernel.axes) or "1"
    reduced = "x".join(str(v.extent) for v in kernel.stages[0].axes) if kernel.stages else ""
    return f"{axes}:{reduced}" if reduced else axes


def number_of(space: Space, schedule: Schedule) -> int | None:
    """The number of a schedule, for example of a relinked bundle's; None if it has none."""
    return space.schedules.index(schedule) if schedule in space.schedules else None


def _digest(data: object) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


Data = dict[str, Any]


def plans_of(plans: Sequence[Iterable[int]]) -> dict[int, tuple[int, ...]]:
    """For each kernel the plans that run it.  plans: for each plan the kernels of its steps"""
    found: dict[int, tuple[int, ...]] = {}
    for number, specs in enumerate(plans):
        for spec in sorted(set(specs)):
            found[spec] = (*found.get(spec, ()), number)
    return found


def default_of(
    builds: Mapping[str, SlotBuild], variant: str, space: Space, features: Collection[str]
) -> int | None:
    """The candidate that a device runs in the bundle itself: 0, unless the bundle was relinked.

    builds: of a slot (bundle/section_files.py)
    features: of the device; if one that the relinked candidate needs is missing, the bundle runs 0
    """
    if variant not in builds:
        return None
    chosen = target(space.device.target).schedule(builds[variant]["schedule"])
    return number_of(space, chosen) if chosen.features.issubset(features) else 0


def offer(spec: int, space: Space, default: int | None) -> Data:
    """The description of a kernel that may be tuned."""
    return {
        "spec": spec,
        "kind": space.kind,
        "shape": space.shape,
        "checksum": space.checksum,
        "count": len(space.schedules),
        "fixed": space.fixed,
        "default": default,
        "schedule": _schedule_of(space, default),
        "needs": needs_of(space, default),
        "gold": None,
    }


def _schedule_of(space: Space, number: int | None) -> str:
    found = None if number is None else space.schedule(number)
    return str(found or "")


def needs_of(space: Space, number: int | None) -> Data | None:
    """A candidate's resources that objectives count; None if they are not known."""
    if number is None or number >= len(space.needs):
        return None
    return asdict(space.needs[number])


def ordered(spec: int, space: Space, default: int | None, features: Collection[str]) -> Data:
    """The description of a kernel, with the candidates that a device with these features can run,
    in their order of trial.  It serves clients without a server.

    If the bundle has a tuned candidate, the compiler's default comes first: devices judge the
    bundle's candidate against it before they try others.
    """
    judge = [] if default == 0 else [0]
    order = [number for number in space.trial_on(features) if number != default]
    return offer(spec, space, default) | {"order": judge + order}


def described(space: Space, number: int, built: Built, plans: Iterable[int]) -> Data:
    """The description of a candidate: what an engine needs to swap it in, and readable facts."""
    return {
        "mark": space.mark(number),
        "schedule": str(built.schedule),
        "features": sorted(built.schedule.features),
        "digest": built.digest,
        "tiles": built.tiles,
        "grains": dict.fromkeys(plans, built.grain),
        "scratch": built.scratch,
        "needs": needs_of(space, number),
        "bytes": len(built.module),
    }
