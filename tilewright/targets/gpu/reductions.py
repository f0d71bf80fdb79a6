"""Other numbers of threads for long reductions, and whether subgroups swap what they have.

Input: a kernel that rows.py lowers.  Output: `ReductionSchedule`, its space, its loops.  The
default is the target's own choice for any reduction.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import log2

from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.features import SIZES, SUBGROUPS, size_of
from tilewright.targets.gpu.rows import lower_rows
from tilewright.targets.gpu.schedule import MOST_THREADS, WORD
from tilewright.targets.gpu.space import UNUSUAL, Group
from tilewright.targets.lite import Core
from tilewright.targets.plain import Plain
from tilewright.targets.schedule import Schedule


@dataclass(frozen=True)
class ReductionSchedule(Schedule):
    """So many threads for a tile; width: threads of a subgroup that swap what they have, 0: none
    do."""

    form = "rows"
    threads: int = 64
    width: int = 0

    @property
    def features(self) -> frozenset[str]:
        return frozenset({SUBGROUPS, size_of(self.width)} if self.width else ())

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if self.threads & (self.threads - 1) or self.threads > MOST_THREADS:
            return f"threads is a power of two up to {MOST_THREADS}"
        if self.width and (self.width not in SIZES or self.width > self.threads):
            return f"width is 0, or one of {', '.join(map(str, SIZES))} up to threads"
        if lower_rows(kernel, self.threads, self.width) is None:
            return f"the reductions are too short for {self.threads} threads"
        return ""


def suits(kernel: Kernel) -> bool:
    """True for kernels of fixed size whose reductions several threads share out."""
    return not kernel.extents and lower_rows(kernel, LEAST_THREADS) is not None


def default(kernel: Kernel) -> Schedule:
    """What the target does with any reduction."""
    return Plain()


#: Threads that are tried; beside none, the size of subgroups that a class's GPUs have.
THREADS = (32, 64, 128, 256)
LEAST_THREADS = min(THREADS)


def space(kernel: Kernel, core: Core, group: Group) -> tuple[tuple[Schedule, float], ...]:
    """The default, then other numbers of threads, with and without subgroups: the latter are
    expected to be better, with as many threads as are usual."""
    same = lower_rows(kernel)
    usual = ReductionSchedule() if same is None else ReductionSchedule(same.threads)
    every_one = (
        ReductionSchedule(threads, width)
        for threads, width in product(THREADS, (0, *SIZES))
        if threads <= group.threads and (same is None or (threads, width) != (usual.threads, 0))
    )

    def cost(s: ReductionSchedule) -> float:
        far = abs(log2(s.threads / usual.threads))
        return float(UNUSUAL ** (far + (0 if s.width else 1) + (s.width != core.warp_width)))

    found = sorted(
        ((s, cost(s)) for s in every_one if not s.objection(kernel)),
        key=lambda pair: (pair[1], str(pair[0])),
    )
    return (default(kernel), 1.0), *found


def traffic(kernel: Kernel, schedule: Schedule) -> tuple[int, float]:
    """Bytes of shared memory; words beyond it are the same for all."""
    if not isinstance(schedule, ReductionSchedule):
        return 0, 0.0
    return WORD * len(kernel.stages) * schedule.threads // max(1, schedule.width), 0.0


def lower(kernel: Kernel, schedule: ReductionSchedule) -> TileFn:
    fn = lower_rows(kernel, schedule.threads, schedule.width)
    assert fn is not None, f"{kernel.name} has no long reductions"
    return fn
