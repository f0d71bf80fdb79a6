"""The interface of strategies that use workgroups (targets/strategy.py has the general one).

Input: a kernel and the limits of a workgroup. Output: the interface, and a default search order for
kernels without a cost model: schedules nearest to the default come first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product as every
from math import log2
from typing import Any, TypeAlias, TypeVar

from tilewright.base.invariants import of_kind
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.device import DeviceClass
from tilewright.targets.gpu.limits import Group
from tilewright.targets.lite import Core
from tilewright.targets.protocol import Candidate
from tilewright.targets.schedule import Schedule
from tilewright.targets.strategy import Alternative, Search, Strategy

S = TypeVar("S", bound=Schedule)

#: Candidates of a kernel, with the default: what a device tries in a few seconds.
MOST = 45

#: Groups of fewer threads leave most of a core's lanes without work.
LEAST_THREADS = 16

#: How much worse an unusual setting is expected to be, so that other shapes come in between.
UNUSUAL = 1.1


class GroupAlternative(Alternative[S, Group], ABC):
    """An alternative by groups of threads."""

    kinds: tuple[type[S], ...]

    @abstractmethod
    def suits(self, kernel: Kernel) -> bool:
        """Whether it can compute a kernel; nothing else is asked of it otherwise."""

    @abstractmethod
    def space(self, kernel: Kernel, core: Core, group: Group) -> Sequence[tuple[S, float]]:
        """Schedules that are worth trying with their costs, the likely best first."""

    @abstractmethod
    def traffic(self, kernel: Kernel, schedule: S) -> tuple[int, float]:
        """Bytes of shared memory; words loaded and stored beyond it."""

    @abstractmethod
    def lower(self, kernel: Kernel, schedule: S) -> TileFn:
        """The loop nest of one tile; what lies beyond the ends of a kernel is not stored."""

    def usual(self, kernel: Kernel) -> tuple[S, ...]:
        """What is tried first where nothing was tuned, the likely best first; () where it does not
        suit."""
        return ()

    def objection(self, kernel: Kernel, schedule: S) -> str:
        """What is wrong with a schedule from outside; "" if code can be made from it."""
        return schedule.objection(kernel)

    def candidates(
        self, kernel: Kernel, usual: Schedule, machine: Group, search: Search
    ) -> Iterator[Candidate]:
        """Those of the space.  The relaxation is the paper's: these tiles keep sums in registers,
        which is another count."""
        for schedule, cost in self.space(kernel, search.core, machine):
            yield Candidate(schedule, "lite", cost, *self.traffic(kernel, schedule))


def limits_of(device: DeviceClass) -> Group:
    """What a group may have on devices of a class."""
    return of_kind(device.machine, Group, "no group of this target", device=device.id)


#: One of any schedules: who has found it by a schedule's type gives it no other.
AnyAlternative: TypeAlias = "GroupAlternative[Any]"
AnyStrategy: TypeAlias = "GroupStrategy[Any]"


class GroupStrategy(GroupAlternative[S], Strategy[S, Group]):
    """A strategy by groups of threads."""

    @abstractmethod
    def first(self, kernel: Kernel) -> S:
        """The schedule that a kernel starts with, on any device."""

    def default(self, kernel: Kernel, machine: Group) -> S:
        return self.first(kernel)


def nearby(
    usual: S, settings: Mapping[str, Sequence[int]], fits: Callable[[S], bool]
) -> tuple[tuple[S, float], ...]:
    """The usual schedule, then others of these settings: for want of a model of such kernels, those
    nearest to it first."""

    def distance(s: S) -> float:
        return sum(abs(log2(getattr(s, name) / getattr(usual, name))) for name in settings)

    every_one = (dict(zip(settings, values, strict=True)) for values in every(*settings.values()))
    found = {replace(usual, **chosen) for chosen in every_one} - {usual}
    others = sorted(filter(fits, found), key=lambda s: (distance(s), str(s)))
    return tuple((s, float(UNUSUAL ** distance(s))) for s in (usual, *others[: MOST - 1]))
