"""Settings of product schedules, and those whose best value is the same on all devices.

Input: a kernel and its schedule.  Output: the schedules that stay candidates of the lite space.
`lab/primitives` measured the settings that are fixed here (docs/primitives.md); `tests/lab` repeats
the comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tilewright.kernel.form import Contraction, classify
from tilewright.kernel.product_operands import Operands
from tilewright.kernel.spec import Kernel
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.contraction import ContractionSchedule

Change = Callable[[ContractionSchedule], ContractionSchedule]


@dataclass(frozen=True)
class Choice:
    """A setting of schedules, with an untuned and a tuned value.

    has:      true if a schedule has the tuned value
    switch:   True if these are the only values; False: the untuned one is an end of a range
    concerns: true if both values are possible for a product; short sums cannot be unrolled
    """

    untuned: Change
    tuned: Change
    has: Callable[[ContractionSchedule], bool]
    switch: bool = True
    concerns: Callable[[Operands], bool] = lambda roles: True

    def setting(self, tuned: bool) -> Change:
        return self.tuned if tuned else self.untuned


def packed(roles: Operands) -> bool:
    """True if columns are stored in panels, as weights are."""
    return roles.col_step is None


def same(schedule: ContractionSchedule) -> ContractionSchedule:
    return schedule


def _one_step(s: ContractionSchedule) -> ContractionSchedule:
    """One reduction step per pass; if a block was one pass, it still is."""
    return replace(s, r0=1, r1=1 if s.r1 == s.r0 else s.r1)


#: By name, in the order in which they are applied.
CHOICES: Mapping[str, Choice] = {
    "unroll": Choice(
        _one_step, same, lambda s: s.r0 > 1, switch=False,
        concerns=lambda roles: bool(roles.depth) and roles.depth[-1].extent > 1,
    ),
    "vectorize": Choice(
        lambda s: replace(s, lanes=1), same, lambda s: s.lanes > 1,
        concerns=lambda roles: roles.n.extent > 1,
    ),
    "cache_write": Choice(
        lambda s: replace(s, r1=s.r0), same, lambda s: s.r1 == 0 or s.r1 > s.r0, switch=False
    ),
    "reorder": Choice(
        lambda s: replace(s, order="nm"), lambda s: replace(s, order="mn"),
        lambda s: s.order == "mn", concerns=packed,
    ),
    "cache_read": Choice(
        lambda s: replace(s, stage=True), lambda s: replace(s, stage=False),
        lambda s: not s.stage, concerns=packed,
    ),
    "cache_read_rows": Choice(
        lambda s: replace(s, stage=False), lambda s: replace(s, stage=True),
        lambda s: s.stage, concerns=lambda roles: not packed(roles),
    ),
}  # fmt: skip

#: The better value on all measured devices: True for the tuned one; None if devices differ, so both
#: are tried.  Settings that are missing here have no effect and are not changed.
DECIDED: Mapping[str, bool | None] = {
    "unroll": True,
    "vectorize": True,
    "cache_write": True,
    "cache_read_rows": True,
}


def choices(kernel: Kernel, schedule: Schedule) -> tuple[Schedule, ...]:
    """The schedule with each value of the settings that are not decided for its kernel.

    A decided setting gets its value; a schedule that cannot have it is dropped.
    """
    form = classify(kernel)
    if not isinstance(form, Contraction) or not isinstance(schedule, ContractionSchedule):
        return (schedule,)
    made: tuple[ContractionSchedule, ...] = (schedule,)
    for name, tuned in DECIDED.items():
        choice = CHOICES[name]
        if not choice.concerns(form.operands):
            continue
        if tuned is None:
            both = (choice.untuned, choice.tuned) if choice.switch else (same,)
            made = tuple(dict.fromkeys(change(m) for m in made for change in both))
        else:
            made = tuple(m for m in map(choice.setting(tuned), made) if choice.has(m) is tuned)
    return made
