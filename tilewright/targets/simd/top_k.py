"""Top-k and sorting on one thread: the only schedule, and its loops (targets/scalar_top_k.py).

Input: a kernel of the form `TopK`. Output: its schedule and loops. Nothing is tuned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets import scalar_top_k
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.space_rules import Rules


@dataclass(frozen=True)
class TopKSchedule(Schedule):
    """A tile is one row."""

    tag = "order"


@dataclass(frozen=True)
class TopKRules(Rules[TopKSchedule]):
    """A space with one schedule."""

    def extended(self) -> Iterator[TopKSchedule]:
        yield self.default

    def normal(self, s: TopKSchedule) -> TopKSchedule:
        return s

    def tiles(self, s: TopKSchedule) -> int:
        del s
        return prod(v.extent for v in self.kernel.rows)


def default(kernel: Kernel, machine: Machine) -> TopKSchedule:
    del kernel, machine
    return TopKSchedule()


def rules(kernel: Kernel, default: TopKSchedule, machine: Machine) -> TopKRules:
    return TopKRules(kernel, default, machine)


def lower(kernel: Kernel, schedule: TopKSchedule) -> TileFn:
    del schedule
    return scalar_top_k.lower(kernel)
