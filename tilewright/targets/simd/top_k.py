"""Top-k and sorting on one thread: the only schedule, and its loops (targets/top_k.py).

Input: a kernel of the form `Ordering`. Output: its schedule and loops. Nothing is tuned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets import top_k
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.search_rules import Rules


@dataclass(frozen=True)
class OrderSchedule(Schedule):
    """A tile is one row."""

    form = "order"


@dataclass(frozen=True)
class OrderRules(Rules[OrderSchedule]):
    """A space with one schedule."""

    def extended(self) -> Iterator[OrderSchedule]:
        yield self.default

    def normal(self, s: OrderSchedule) -> OrderSchedule:
        return s

    def tiles(self, s: OrderSchedule) -> int:
        del s
        return prod(v.extent for v in self.kernel.rows)


def default(kernel: Kernel, machine: Machine) -> OrderSchedule:
    del kernel, machine
    return OrderSchedule()


def rules(kernel: Kernel, usual: OrderSchedule, machine: Machine) -> OrderRules:
    return OrderRules(kernel, usual, machine)


def lower(kernel: Kernel, schedule: OrderSchedule) -> TileFn:
    del schedule
    return top_k.lower(kernel)
