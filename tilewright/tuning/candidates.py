"""Candidates: the space of one kernel on one class of devices, and the code of each of them.

Input: kernels of a bundle, a `DeviceClass`.  Output: `Space`: numbered schedules with their order
of trial, the same in every process; `Built`: one of them as a module.  It measures nothing.
Only the standard library is needed, so that a page can do the same under Pyodide.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tilewright.base.errors import CompilerBug, UsageError
from tilewright.base.source import compiler_digest
from tilewright.kernel.serial import kernel_to_data
from tilewright.kernel.spec import Kernel
from tilewright.targets import target as find_target
from tilewright.targets.device_class import DeviceClass
from tilewright.targets.lite_space import RELAXATION, Objective, product_of
from tilewright.targets.protocol import Candidate, Fixed, Mark, Target, fixed
from tilewright.targets.schedule import Schedule

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Needs:
    """What a schedule takes of that which objectives but latency count; known without measuring.

    traffic: words loaded and stored beyond L1; scratch: bytes of scratch memory of a worker, as far
    as they depend on the schedule
    """

    traffic: float
    scratch: int


@dataclass(frozen=True)
class Space:
    """The numbered candidates of a kernel on a class of devices.

    key:       SHA-256 of the kernel's specification without its name
    kind:      `Kernel.anchor`; shape: its sizes, "384x768x768" for a product (m, k, n)
    schedules: the index in it is the number of the candidate; 0 is what the bundle starts with
    marks:     "default", "lite" (the paper's space) or "extended" (our own), one per schedule
    needs:     what each schedule takes
    order:     all numbers but 0, the best by the objective first
    useful:    how many of these have less of it than 0, so that trying them serves the objective;
               of latency all, since nobody knows it before
    checksum:  16 hex digits over all that the numbers mean
    fixed:     why there is only the default, if the kernel's kind is the reason; else ""
    slow:      a schedule beyond the space that is much slower than 0 on any device, for gold
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
        """Numbers in the order of trial, as far as they serve the objective."""
        return self.order[: self.useful]

    def trial_on(self, features: Collection[str]) -> tuple[int, ...]:
        """The same of a device with these features beyond those of its class."""
        return tuple(number for number in self.trial if self.runs(number, features))

    @property
    def gold(self) -> int | None:
        """The number after the last; it has no votes, so that checksums need not name it."""
        return None if self.slow is None else len(self.schedules)

    def schedule(self, number: int) -> Schedule | None:
        """What a number means; None if it means nothing."""
        known = (*self.schedules, self.slow)
        return known[number] if 0 <= number < len(known) else None

    def runs(self, number: int, features: Collection[str]) -> bool:
        """Whether a device with these features beyond those of its class can run it."""
        found = self.schedule(number)
        return found is not None and found.features.issubset(features)

    def mark(self, number: int) -> Mark:
        """What is said of it; who asks about gold need not tell that it is."""
        return self.marks[number] if number < len(self.marks) else "extended"


@dataclass(frozen=True)
class Built:
    """One candidate as code.

    module:    as engines of the target exchange it, a file of this extension
    digest:    SHA-256 of module
    tiles:     of the kernel under this schedule, as its hosts count them (`Target.tiles`)
    grain:     tiles per ticket of its steps
    scratch:   bytes of a worker's scratch area that it needs
    features:  what a host must have to run it

    It reads no run-time scalars, so that the argument block of any other candidate suits it.
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

    The objective decides the order of trial only, and how much of it is useful.  Numbers mean
    something to others only at the usual relaxation ratio of the lite space.
    Raises `NoSpace` where the class's target has no schedules to choose from.
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


#: What comes first is small; equal ones are in the order of latency (the page's order.js, too).
_KEYS: Mapping[Objective, Callable[[Candidate], float]] = {
    "traffic": lambda c: c.words,
    "scratch": lambda c: c.scratch,
}


def _order(found: Sequence[Candidate], objective: Objective) -> tuple[tuple[int, ...], int]:
    """All but the default, and how many of them need less than it does."""
    by_cost = sorted(range(1, len(found)), key=lambda n: (_amount(found[n].cost), found[n].cost, n))
    order = _mixed(by_cost, found)
    if objective == "latency":
        return order, len(order)
    needs = [_amount(_KEYS[objective](c)) for c in found]
    return tuple(sorted(order, key=needs.__getitem__)), sum(need < needs[0] for need in needs)


#: One candidate in this number comes from the family that was tried least, and costs less than
#: this multiple of the best one.
MIXED_EVERY, MIXED_WORSE = 2, 2.0


def _mixed(order: Sequence[int], found: Sequence[Candidate]) -> tuple[int, ...]:
    """An order with the best of all families early: a model is as wrong for all of one.

    Before: a a a a a b b c   after: a b a c a b a a
    """
    waiting: dict[str, list[int]] = {}
    for number in reversed(order):
        waiting.setdefault(found[number].family, []).append(number)
    rank = {number: place for place, number in enumerate(order)}
    taken = dict.fromkeys(waiting, 0)
    limit = MIXED_WORSE * found[order[0]].cost if order else 0.0
    mixed: list[int] = []
    while len(mixed) < len(order):
        heads = [numbers[-1] for numbers in waiting.values() if numbers]
        turn = len(mixed) % MIXED_EVERY == MIXED_EVERY - 1
        worth = [n for n in heads if found[n].cost <= limit] if turn else []
        chosen = min(
            worth or heads, key=lambda n: (taken[found[n].family] if worth else 0, rank[n])
        )
        family = found[chosen].family
        mixed.append(waiting[family].pop())
        taken[family] += 1
    return tuple(mixed)


def _amount(value: float) -> float:
    """Sums that differ in their last bits are the same."""
    return round(value, 6)


def build(kernel: Kernel, schedule: Schedule, target: str, variant: str) -> Built:
    """One candidate as a module of its own; a typed error as `making` says if it cannot be made."""
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
    """Says which kernel and schedule something is wrong with.

    `UsageError` for a schedule that means nothing, `CompilerBug` where an invariant fails.
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
    """What names a kernel everywhere: its specification, whatever a model calls it."""
    data = kernel_to_data(kernel)
    del data["name"]
    return _digest(data)


def shape_of(kernel: Kernel) -> str:
    """For people: "12x384x384x64" for a product ([batch,] m, k, n), else the extents of the output
    and, after a colon, of the first reduction."""
    matrix = product_of(kernel)
    if matrix is not None:
        return str(matrix)
    axes = "x".join(str(v.extent) for v in kernel.axes) or "1"
    reduced = "x".join(str(v.extent) for v in kernel.stages[0].axes) if kernel.stages else ""
    return f"{axes}:{reduced}" if reduced else axes


def number_of(space: Space, schedule: Schedule) -> int | None:
    """The number of a schedule, such as the one that a relinked bundle has; None if it has none."""
    return space.schedules.index(schedule) if schedule in space.schedules else None


def _digest(data: object) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
