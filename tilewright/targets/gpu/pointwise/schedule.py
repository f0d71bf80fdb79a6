"""Schedules of elementwise kernels and long reductions by workgroups.

Input: nothing. Output: schedule types. strategies.py says which are tried; the other files make
loops of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.limits import MOST_THREADS, SIZES, SUBGROUPS, size_of
from tilewright.targets.schedule import Schedule

#: Elements of a map that takes so little time that its launch counts.
SHORT = 2**16


@dataclass(frozen=True)
class VectorMapSchedule(Schedule):
    """Four elements of a thread, and no thread waits for another."""

    form = "map"
    threads: ClassVar[int] = 64


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
        return ""


@dataclass(frozen=True)
class SingleSchedule(Schedule):
    """A thread for each tile, on purpose, as simple CUDA is written by hand: nothing is shared out,
    nothing is staged."""

    form = "single"
