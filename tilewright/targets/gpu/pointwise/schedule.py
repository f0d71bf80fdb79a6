"""Schedules of elementwise kernels and long reductions by workgroups.

Input: none. Output: schedule types. strategies.py chooses the schedules to try; the other files
make their loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.workgroup_limits import (
    MOST_THREADS,
    SUBGROUP_SIZES,
    SUBGROUPS_FEATURE,
    subgroup_feature,
)
from tilewright.targets.schedule import Schedule

#: Elements of a map that is so short that its launch takes most of the time.
SHORT_MAP_ELEMENTS = 2**16


@dataclass(frozen=True)
class VectorMapSchedule(Schedule):
    """Each thread computes four elements; threads do not wait for each other."""

    tag = "map"
    threads: ClassVar[int] = 64


@dataclass(frozen=True)
class WorkgroupReductionSchedule(Schedule):
    """Several threads for a tile.  width: threads of a subgroup that exchange values; 0: none do"""

    tag = "rows"
    threads: int = 64
    width: int = 0

    @property
    def features(self) -> frozenset[str]:
        return frozenset({SUBGROUPS_FEATURE, subgroup_feature(self.width)} if self.width else ())

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if self.threads & (self.threads - 1) or self.threads > MOST_THREADS:
            return f"threads is a power of two up to {MOST_THREADS}"
        if self.width and (self.width not in SUBGROUP_SIZES or self.width > self.threads):
            return f"width is 0, or one of {', '.join(map(str, SUBGROUP_SIZES))} up to threads"
        return ""


@dataclass(frozen=True)
class SingleSchedule(Schedule):
    """A thread for each tile and no shared memory, as in simple hand-written CUDA.  Used for
    comparison."""

    tag = "single"
