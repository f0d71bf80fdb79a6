"""The interface of strategies that use workgroups (targets/strategy.py has the general one).

Input: a kernel and the limits of a workgroup. Output: the interface, and a default search order for
kernels without a cost model: schedules nearest to the default come first.

A strategy has one name: the class `RegisterGemm` has the instance `REGISTER_GEMM` and the schedules
`RegisterGemmSchedule`, and its loops are in register_gemm.py. Only the tag that JSON has may
differ (docs/spaces.md lists the tags): stores and bundles keep the names that they were written
with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product as every
from math import log2
from typing import TypeVar

from tilewright.base.errors import of_kind
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_class import DeviceClass
from tilewright.targets.gpu.workgroup_limits import WorkgroupLimits
from tilewright.targets.lite_space import Core
from tilewright.targets.protocol import Candidate
from tilewright.targets.scalar_lowering import Plain
from tilewright.targets.schedule import Schedule
from tilewright.targets.strategy import Search, Strategy

S = TypeVar("S", bound=Schedule)

#: The most candidates of a kernel, with the default; a device tries these in a few seconds.
MOST_SCHEDULES = 45

#: The least threads of a group; with fewer, most lanes of a core are idle.
LEAST_THREADS = 16

#: The expected relative cost of an unusual setting, so that other shapes come before it.
UNUSUAL_COST = 1.1


class AnyStrategy(ABC):
    """A strategy as a target's table has it: its schedules may be of any type."""

    @property
    @abstractmethod
    def kinds(self) -> tuple[type[Schedule], ...]:
        """The types of its schedules."""

    @abstractmethod
    def suits(self, kernel: Kernel) -> bool:
        """True if it can compute a kernel.  The other methods expect such a kernel."""

    @abstractmethod
    def candidates(
        self, kernel: Kernel, default: Schedule, machine: WorkgroupLimits, search: Search
    ) -> Iterator[Candidate]:
        """The candidates of the space."""

    def defaults_with_features(self, kernel: Kernel) -> Sequence[Schedule]:
        """Defaults for devices with their features, best first; () if it does not suit."""
        return ()

    @abstractmethod
    def objection_to_any(self, kernel: Kernel, schedule: Schedule) -> str:
        """`objection`, for a schedule that is known to be one of `kinds`."""

    @abstractmethod
    def lower_any(self, kernel: Kernel, schedule: Schedule) -> TileFn:
        """`lower`, for a schedule that is known to be one of `kinds`."""


class AnyDefaultStrategy(AnyStrategy):
    """The same, for a strategy that gives a default."""

    @abstractmethod
    def default(self, kernel: Kernel) -> Schedule:
        """The default schedule of a kernel, the same for every device."""


class WorkgroupStrategy(Strategy[S, WorkgroupLimits], AnyStrategy):
    """A strategy that uses workgroups.  kind: the type of its schedules"""

    kind: type[S]

    @property
    def kinds(self) -> tuple[type[S], ...]:
        return (self.kind,)

    @abstractmethod
    def space(
        self, kernel: Kernel, core: Core, group: WorkgroupLimits
    ) -> Sequence[tuple[S | Plain, float]]:
        """Schedules to try, with their costs, best expected first.  `Plain` stands for the loops
        without a strategy (`lower_otherwise` in pointwise/strategies.py)."""

    @abstractmethod
    def traffic(self, kernel: Kernel, schedule: S) -> tuple[int, float]:
        """Bytes of shared memory, and words loaded and stored beyond it."""

    @abstractmethod
    def lower(self, kernel: Kernel, schedule: S) -> TileFn:
        """The loop nest of one tile.  It stores nothing beyond the ends of a kernel."""

    def objection(self, kernel: Kernel, schedule: S) -> str:
        """What is wrong with a schedule from outside; "" if code can be made from it."""
        return schedule.objection(kernel)

    def candidates(
        self, kernel: Kernel, default: Schedule, machine: WorkgroupLimits, search: Search
    ) -> Iterator[Candidate]:
        """The candidates of the space.

        The search's relaxation is not used: it is a share of the paper's count of registers, and
        these tiles are counted otherwise.
        """
        for schedule, cost in self.space(kernel, search.core, machine):
            traffic = (0, 0.0) if isinstance(schedule, Plain) else self.traffic(kernel, schedule)
            yield Candidate(schedule, "lite", cost, *traffic)

    def objection_to_any(self, kernel: Kernel, schedule: Schedule) -> str:
        return self.objection(kernel, of_kind(schedule, self.kind, "another strategy's schedule"))

    def lower_any(self, kernel: Kernel, schedule: Schedule) -> TileFn:
        return self.lower(kernel, of_kind(schedule, self.kind, "another strategy's schedule"))


class DefaultWorkgroupStrategy(WorkgroupStrategy[S], AnyDefaultStrategy):
    """A strategy that uses workgroups and gives a default."""

    @abstractmethod
    def default(self, kernel: Kernel) -> S | Plain:
        """The default schedule of a kernel, the same for every device."""


def limits_of(device: DeviceClass) -> WorkgroupLimits:
    """The limits of a workgroup on devices of a class."""
    return of_kind(device.machine, WorkgroupLimits, "no group of this target", device=device.id)


def nearest_schedules(
    default: S, settings: Mapping[str, Sequence[int]], fits: Callable[[S], bool]
) -> tuple[tuple[S, float], ...]:
    """The default schedule, then others with these settings, nearest first.  It serves kernels
    without a cost model."""

    def distance(s: S) -> float:
        return sum(abs(log2(getattr(s, name) / getattr(default, name))) for name in settings)

    every_one = (dict(zip(settings, values, strict=True)) for values in every(*settings.values()))
    found = {replace(default, **chosen) for chosen in every_one} - {default}
    others = sorted(filter(fits, found), key=lambda s: (distance(s), str(s)))
    return tuple(
        (s, float(UNUSUAL_COST ** distance(s))) for s in (default, *others[: MOST_SCHEDULES - 1])
    )
