"""The common part of all search spaces on one thread with vectors.

Input: a kernel, its default schedule, a machine. Output: schedules that may be tried, and estimates
for each without generating code: scratch memory, tiles, an expected cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from math import log2
from typing import Generic, TypeVar

from tilewright.kernel.spec import Kernel
from tilewright.targets.lite_space import RELAXATION, Core
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import ENOUGH_TILES, Machine

S = TypeVar("S", bound=Schedule)


@dataclass(frozen=True)
class Rules(Generic[S]):
    """A search space and its estimates.

    lite:     the paper's space, for matrix products
    extended: our own schedules
    normal:   the schedule with settings that make no difference set to one value, to find
              duplicates
    balanced: True if there are enough tiles for all workers
    cost:     cycles per product if there is a model, otherwise the distance from the default
    """

    kernel: Kernel
    default: S
    machine: Machine

    @cached_property
    def normal_default(self) -> S:
        return self.normal(self.default)

    def lite(self, core: Core, relaxation: float = RELAXATION) -> Iterator[S]:
        del core, relaxation
        yield from ()

    def extended(self) -> Iterator[S]:
        raise NotImplementedError

    def normal(self, s: S) -> S:
        raise NotImplementedError

    def tiles(self, s: S) -> int:
        raise NotImplementedError

    def balanced(self, s: S) -> bool:
        return self.tiles(s) >= min(ENOUGH_TILES, self.tiles(self.default))

    def scratch(self, s: S) -> int:
        """Bytes of scratch memory per worker, the part that depends on the schedule."""
        del s
        return 0

    def cost(self, s: S) -> float:
        return distance(s, self.normal_default)

    def family(self, s: S) -> str:
        """The group of schedules with which this one's cost compares best."""
        del s
        return ""

    def words(self, s: S) -> float:
        """Words loaded and stored beyond L1, in all tiles; a constant where it is not known."""
        del s
        return self.kernel.bytes / 4


def distance(a: Schedule, b: Schedule) -> float:
    """The number of doublings, halvings and other changes between two schedules."""
    total = float(type(a) is not type(b))
    for field in fields(a):
        value, other = getattr(a, field.name), getattr(b, field.name, None)
        if value == other or other is None:
            continue
        if isinstance(value, str) or not value or not other:
            total += 1
        else:
            total += abs(log2(value / other))
    return total
