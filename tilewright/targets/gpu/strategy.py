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

from tilewright.base.errors import of_kind
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_class import DeviceClass
from tilewright.targets.gpu.workgroup_limits import Group
from tilewright.targets.lite_space import Core
from tilewright.targets.protocol import Candidate
from tilewright.targets.schedule import Schedule
from tilewright.targets.strategy import Alternative, Search

S = TypeVar("S", bound=Schedule)

#: The most candidates of a kernel, with the default; a device tries these in a few seconds.
MOST = 45

#: The least threads of a group; with fewer, most lanes of a core are idle.
LEAST_THREADS = 16

#: The expected relative cost of an unusual setting, so that other shapes come before it.
UNUSUAL = 1.1


class GroupAlternative(Alternative[S, Group], ABC):
    """An alternative strategy that uses workgroups."""

    kinds: tuple[type[S], ...]

    @abstractmethod
    def suits(self, kernel: Kernel) -> bool:
        """True if it can compute a kernel.  The other methods expect such a kernel."""

    @abstractmethod
    def space(self, kernel: Kernel, core: Core, group: Group) -> Sequence[tuple[S, float]]:
        """Schedules to try, with their costs, best expected first."""

    @abstractmethod
    def traffic(self, kernel: Kernel, schedule: S) -> tuple[int, float]:
        """Bytes of shared memory, and words loaded and stored beyond it."""

    @abstractmethod
    def lower(self, kernel: Kernel, schedule: S) -> TileFn:
        """The loop nest of one tile.  It stores nothing beyond the ends of a kernel."""

    def defaults_with_features(self, kernel: Kernel) -> tuple[S, ...]:
        """Defaults for devices with their features, best first; () if it does not suit."""
        return ()

    def objection(self, kernel: Kernel, schedule: S) -> str:
        """What is wrong with a schedule from outside; "" if code can be made from it."""
        return schedule.objection(kernel)

    def candidates(
        self, kernel: Kernel, usual: Schedule, machine: Group, search: Search
    ) -> Iterator[Candidate]:
        """The candidates of the space.

        The search's relaxation is not used: it is a share of the paper's count of registers, and
        these tiles are counted otherwise.
        """
        for schedule, cost in self.space(kernel, search.core, machine):
            yield Candidate(schedule, "lite", cost, *self.traffic(kernel, schedule))


def limits_of(device: DeviceClass) -> Group:
    """The limits of a workgroup on devices of a class."""
    return of_kind(device.machine, Group, "no group of this target", device=device.id)


#: An alternative with any type of schedule.  A table by schedule type pairs each with its own type.
AnyAlternative: TypeAlias = "GroupAlternative[Any]"
AnyStrategy: TypeAlias = "GroupStrategy[Any]"


class GroupStrategy(GroupAlternative[S], ABC):
    """A strategy that uses workgroups and gives a default."""

    @abstractmethod
    def default(self, kernel: Kernel) -> S:
        """The default schedule of a kernel, the same for every device."""


def nearby(
    usual: S, settings: Mapping[str, Sequence[int]], fits: Callable[[S], bool]
) -> tuple[tuple[S, float], ...]:
    """The default schedule, then others with these settings, nearest first.  It serves kernels
    without a cost model."""

    def distance(s: S) -> float:
        return sum(abs(log2(getattr(s, name) / getattr(usual, name))) for name in settings)

    every_one = (dict(zip(settings, values, strict=True)) for values in every(*settings.values()))
    found = {replace(usual, **chosen) for chosen in every_one} - {usual}
    others = sorted(filter(fits, found), key=lambda s: (distance(s), str(s)))
    return tuple((s, float(UNUSUAL ** distance(s))) for s in (usual, *others[: MOST - 1]))
