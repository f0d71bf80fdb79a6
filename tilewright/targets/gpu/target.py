"""What targets for GPUs share: which kernels groups of threads compute, how, and their spaces.

Input: kernels.  Output: schedules, loops and candidates.  A target adds its text and how its plans
are encoded (targets/wgsl/api.py, targets/cuda/api.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any

from tilewright.base.errors import InputError
from tilewright.kernel.form import Ordering, classify
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.plan import Program
from tilewright.targets.device import DeviceClass
from tilewright.targets.gpu import (
    attention,
    dots,
    halves,
    head_matrices,
    head_rows,
    maps,
    matrices,
    order,
    reductions,
    rounded,
    shuffles,
    thin,
    tiles,
)
from tilewright.targets.gpu.dots import DotSchedule
from tilewright.targets.gpu.halves import HalfSchedule
from tilewright.targets.gpu.head_matrices import HeadMatrixSchedule
from tilewright.targets.gpu.head_rows import HeadRowSchedule
from tilewright.targets.gpu.heads import HeadSchedule
from tilewright.targets.gpu.maps import VectorMapSchedule
from tilewright.targets.gpu.matrices import MatrixSchedule
from tilewright.targets.gpu.reductions import ReductionSchedule
from tilewright.targets.gpu.rounded import RoundedSchedule
from tilewright.targets.gpu.rounding import lower_rounding
from tilewright.targets.gpu.rows import lower_rows
from tilewright.targets.gpu.shuffles import ShuffleSchedule
from tilewright.targets.gpu.single import SingleSchedule
from tilewright.targets.gpu.thin import ThinSchedule
from tilewright.targets.gpu.tiles import GroupSchedule
from tilewright.targets.plain import Plain, PlainTarget
from tilewright.targets.protocol import Candidate, Code, Facts
from tilewright.targets.schedule import Schedule

#: Threads of a group where nothing asks for another number.
GROUP = 64

#: How groups of threads compute products and attention, by the type of the schedule.  Of several
#: ways that suit a kernel the first has its default.
WAYS: Mapping[type[Schedule], Any] = {
    GroupSchedule: tiles, ThinSchedule: thin, HeadSchedule: attention, DotSchedule: dots,
    MatrixSchedule: matrices, HalfSchedule: halves, RoundedSchedule: rounded,
    ReductionSchedule: reductions, HeadMatrixSchedule: head_matrices,
    HeadRowSchedule: head_rows, ShuffleSchedule: shuffles, VectorMapSchedule: maps,
}  # fmt: skip


def group_of(fn: TileFn) -> int:
    """Threads of a group: those of a tile, or one for each of several tiles."""
    return fn.threads if fn.thread else GROUP


def halves_of(program: Program) -> frozenset[int]:
    """The weights that lie as halves, two in a word: all readers say so (fusion/halves.py)."""
    return frozenset(
        plan.values[access.value].tensor
        for plan in program.plans
        for step in plan.steps
        for access, buffer in zip(step.accesses, program.kernels[step.kernel].buffers, strict=True)
        if buffer.halves and plan.values[access.value].kind == "weight"
    )


class GroupTarget(PlainTarget):
    """A target whose kernels are computed by groups of threads where that pays.

    ways:    by the type of the schedule
    further: those that only add candidates to those of another
    """

    ways: Mapping[type[Schedule], Any] = WAYS
    facts: Facts
    further: tuple[Any, ...] = (matrices, halves, rounded, head_matrices, head_rows, shuffles)

    def way_of(self, kernel: Kernel) -> Any | None:
        """How groups of threads compute a kernel; None if a thread does it alone."""
        return next((way for way in self.ways.values() if way.suits(kernel)), None)

    def default(self, kernel: Kernel, variant: str) -> Schedule:
        way = self.way_of(kernel)
        schedule: Schedule = Plain() if way is None else way.default(kernel)
        return schedule

    def better(self, kernel: Kernel) -> tuple[Schedule, ...]:
        """What runs instead of the default where a device has all that it needs, best first."""
        return ()

    def able(
        self, code: Code, fits: Callable[[TileFn], bool], everywhere: frozenset[str]
    ) -> tuple[Code, ...]:
        """How steps of a kernel can run, best first; the last needs nothing that is not everywhere.

        fits: whether their buffers begin where loops need them to
        """
        usual = self.default(code.kernel, self.variant.name)
        further = self.better(code.kernel) if code.schedule == usual else ()
        others = dict.fromkeys((usual, Plain()))
        others.pop(code.schedule, None)
        made = (self.code(code.kernel, s) for s in others)
        found = []
        for way in chain((self.code(code.kernel, s) for s in further), [code], made):
            if fits(way.loops):
                found.append(way)
                if way.needs <= everywhere:
                    break
        return tuple(found)

    def schedule(self, data: Mapping[str, Any]) -> Schedule:
        kinds: tuple[type[Schedule], ...] = (*self.ways, SingleSchedule)
        kind = next((kind for kind in kinds if kind.form == data.get("form")), None)
        if kind is None:
            return super().schedule(data)
        try:
            return kind(**{k: v for k, v in data.items() if k != "form"})
        except TypeError as error:
            raise InputError(
                f"No schedule of the form {kind.form!r}: {error}",
                hint=f"Its fields are {', '.join(f.name for f in fields(kind))}",
                schedule=dict(data),
            ) from None

    def objection(self, kernel: Kernel, schedule: Any) -> str:
        if isinstance(schedule, SingleSchedule):
            return ""
        way = self.ways.get(type(schedule))
        if way is None:
            return super().objection(kernel, schedule)
        if not way.suits(kernel):
            return f"{kernel.name} is no kernel for schedules of the form {schedule.form!r}"
        if schedule.threads == 1:
            return "a group has at least two threads, which wait for each other"
        objection: str = schedule.objection(kernel)
        if objection:
            return objection
        missing = sorted(self.lacking(schedule.features))
        return f"the target {self.name} has no {', '.join(missing)}" if missing else ""

    def lacking(self, needs: frozenset[str]) -> frozenset[str]:
        """Which of the features that a kernel needs no device of the target has for it."""
        return needs - self.facts.features

    def lower(self, kernel: Kernel, schedule: Schedule) -> TileFn:
        if isinstance(classify(kernel), Ordering):
            return order.lower(kernel)
        if isinstance(schedule, SingleSchedule):
            return lower_rounding(kernel) or super().lower(kernel, schedule)
        way = self.ways.get(type(schedule))
        if way is not None:
            fn: TileFn = way.lower(kernel, schedule)
            return fn
        return lower_rounding(kernel) or lower_rows(kernel) or super().lower(kernel, schedule)

    def candidates(
        self, kernel: Kernel, device: DeviceClass, relaxation: float
    ) -> Sequence[Candidate]:
        """What groups of threads compute; other kernels have the default alone."""
        del relaxation  # the paper's; these tiles keep sums in registers, which is another count
        first = self.way_of(kernel)
        if first is None:
            return [Candidate(self.default(kernel, device.variant), "default", 0.0, 0, 0.0)]
        found = [
            (s, cost, *way.traffic(kernel, s))
            for way in (first, *(way for way in self.further if way.suits(kernel)))
            for s, cost in way.space(kernel, device.core, device.machine)
            if not self.lacking(s.features)
        ]
        return [
            Candidate(s, "lite" if n else "default", *rest) for n, (s, *rest) in enumerate(found)
        ]
