"""The interface of strategies: a strategy is one way in which a target computes kernels.

Input: a kernel.  Output: its default schedule, the schedules worth trying with their expected
costs, and the loops of a schedule.  A target's table (simd/strategies.py, gpu/gpu_target.py) lists
its strategies; other code uses them only through this interface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar

from tilewright.base.errors import InputError, one_of
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.lite_space import RELAXATION, Core
from tilewright.targets.protocol import Candidate
from tilewright.targets.schedule import Schedule

S = TypeVar("S", bound=Schedule)
M = TypeVar("M", contravariant=True)


def _alone(schedule: Schedule) -> Iterable[Schedule]:
    return (schedule,)


@dataclass(frozen=True)
class Search:
    """Parameters of a search, besides the limits of the device.

    core:       figures for the formulas of the lite space (targets/lite_space.py)
    relaxation: the margin of a resource that a lite tile may leave unused
    settings:   turns a lite tile into its variants with all settings that are not sizes
    """

    core: Core
    relaxation: float = RELAXATION
    settings: Callable[[Any], Iterable[Any]] = _alone


class Strategy(Protocol[S, M]):
    """A strategy that adds candidates to those of another one; it never gives a default.

    S: its schedules;  M: the target's data about limits of the device
    """

    @property
    def kinds(self) -> tuple[type[S], ...]:
        """The types of its schedules."""

    def suits(self, kernel: Kernel, /) -> bool:
        """True if it can compute a kernel.  The other methods expect such a kernel."""

    def candidates(
        self, kernel: Kernel, default: Schedule, machine: M, search: Search, /
    ) -> Iterable[Candidate]:
        """Schedules worth trying, best expected first, each with its expected cost.

        Costs are part of this method, since a cost is relative to the others of its space.
        default: the kernel's default schedule
        """

    def lower(self, kernel: Kernel, schedule: S, /) -> TileFn:
        """The loop nest of one tile, for a schedule without an objection."""


class DefaultStrategy(Strategy[S, M], Protocol[S, M]):
    """A strategy that also gives a default."""

    def default(self, kernel: Kernel, machine: M, /) -> Schedule:
        """The schedule that a kernel starts with, computed without measurements; the first
        candidate."""


def kinds_by_tag(kinds: Iterable[type[Schedule]]) -> Mapping[str, type[Schedule]]:
    """These types of schedule by their tag, which is the key "form" in JSON."""
    return {kind.tag: kind for kind in kinds}


def schedule_of(data: Mapping[str, object], kinds: Mapping[str, type[Schedule]]) -> Schedule:
    """The schedule whose `to_json` gave this data; `InputError` if no type of schedule fits the
    data.

    Missing fields get their defaults.  The values are not checked here; `objection` does that.
    """
    kind = kinds.get(str(data.get("form")))
    if kind is None:
        raise InputError(
            f"No schedule has the tag {data.get('form')!r}",
            hint=one_of(sorted(kinds)),
            schedule=dict(data),
        )
    known = {field.name for field in fields(kind)}
    values = {name: value for name, value in data.items() if name != "form"}
    unknown = sorted(values.keys() - known)
    if unknown:
        raise InputError(
            f"A schedule with the tag {kind.tag} has no {', '.join(unknown)}",
            hint=f"It has {', '.join(sorted(known))}",
            schedule=dict(data),
        )
    return kind(**values)
