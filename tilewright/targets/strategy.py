"""Strategies: the ways in which a target computes kernels, all with one interface.

Input: a kernel.  Output: the schedule that it starts with, those that are worth trying with what is
expected of each, and the loops of one.  A target's table (simd/strategies.py, gpu/gpu_target.py)
lists its strategies; nobody else looks into one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar

from tilewright.base.errors import InputError
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
    """What a space is searched with, beside what its schedules must fit.

    core:       figures of the lite space's formulas (targets/lite_space.py)
    relaxation: how much of a resource a lite tile may leave unused
    settings:   the forms of a lite tile with all settings of what is no size
    """

    core: Core
    relaxation: float = RELAXATION
    settings: Callable[[Any], Iterable[Any]] = _alone


class Alternative(Protocol[S, M]):
    """A strategy that no kernel starts with: it adds candidates to those of another one.

    S: its schedules;  M: what they must fit, which is data of the target
    """

    @property
    def kinds(self) -> tuple[type[S], ...]:
        """The types of its schedules."""

    def suits(self, kernel: Kernel, /) -> bool:
        """Whether it can compute a kernel; nothing else is asked of it otherwise."""

    def candidates(
        self, kernel: Kernel, usual: Schedule, machine: M, search: Search, /
    ) -> Iterable[Candidate]:
        """Schedules that are worth trying, the likely best first, each with its expected cost.

        Rules and costs are one question, since costs are known relative to the others of a space.
        usual: what the kernel starts with
        """

    def lower(self, kernel: Kernel, schedule: S, /) -> TileFn:
        """The loop nest of one tile, under a schedule that meets no objection."""


class Strategy(Alternative[S, M], Protocol[S, M]):
    """A strategy that kernels start with."""

    def default(self, kernel: Kernel, machine: M, /) -> Schedule:
        """The schedule that a kernel starts with, from arithmetic alone; the first candidate."""


def kinds_by_form(strategies: Iterable[Alternative[Any, Any]]) -> Mapping[str, type[Schedule]]:
    """Every type of schedule by the name of its form, as JSON has it."""
    return {kind.form: kind for strategy in strategies for kind in strategy.kinds}


def schedule_of(data: Mapping[str, object], kinds: Mapping[str, type[Schedule]]) -> Schedule:
    """The schedule of which `to_json` gave this data; `InputError` if it gives no such data.

    Fields that are left out have their defaults; `objection` says whether the values will do.
    """
    kind = kinds.get(str(data.get("form")))
    if kind is None:
        raise InputError(
            f"No schedule has the form {data.get('form')!r}",
            hint=f"It is one of {', '.join(sorted(kinds))}",
            schedule=dict(data),
        )
    known = {field.name for field in fields(kind)}
    values = {name: value for name, value in data.items() if name != "form"}
    unknown = sorted(values.keys() - known)
    if unknown:
        raise InputError(
            f"A schedule of the form {kind.form} has no {', '.join(unknown)}",
            hint=f"It has {', '.join(sorted(known))}",
            schedule=dict(data),
        )
    return kind(**values)
