"""The state of a coordinator: immutable, and small, since each event makes a new one."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TypeVar

from tilewright.base.fast_records import changed, slotted
from tilewright.elastic.policy.baseline import Baseline
from tilewright.elastic.policy.sequential_test import Evidence
from tilewright.elastic.policy.tasks import Critical, Gpu, Normal

T = TypeVar("T")


@slotted
class Request:
    """A critical request; deadline: absolute, or None."""

    number: int
    task: str
    arrived: float
    deadline: float | None


@slotted
class Running:
    """The critical request that has begun.

    kernel: the number of the running or next kernel, for policies that decide by kernels
    held: it waits at a barrier;  shared: normal work was in flight when it began
    spent_us: time since it began, without jumps of the clock
    """

    request: Request
    budgets: tuple[int, ...]
    kernel: int = 0
    held: bool = False
    shared: bool = False
    spent_us: float = 0.0


@slotted
class CriticalState:
    """A critical task and what the coordinator knows of it.

    margin: what its budgets keep free below the bound, see budgets.py
    due:    when its next request may come
    evidence: against its curves, by the budgets of requests
    """

    task: Critical
    margin: float = 1.0
    due: float = 0.0
    evidence: tuple[Evidence, ...] = ()
    baseline: Baseline = Baseline()


@slotted
class Flight:
    """A launch of a normal kernel that has not ended; stays: no worker can leave it."""

    kernel: int
    workers: int
    stays: bool = False


@slotted
class Progress:
    """A normal task.

    backlog: requested inferences;  complete: finished kernels of the present one
    elastic: the number after the last kernel of the present inference that was started in elastic
             form, and so may be partly computed
    began: when its last inference began; -inf before the first
    """

    task: Normal
    backlog: int = 0
    complete: int = 0
    elastic: int = 0
    flying: tuple[Flight, ...] = ()
    began: float = -inf

    @property
    def following(self) -> int:
        """The kernel to start next; the numbers of the next inference follow those of this one.

        A kernel that is launched too early does nothing: workers left the kernel before it, which
        must be launched again.
        """
        kernel = self.complete
        for flight in self.flying:
            kernel += flight.kernel == kernel % len(self.task.kernels)
        return kernel

    @property
    def busy(self) -> bool:
        """True if an inference has begun and not ended."""
        return bool(self.flying or self.complete or self.elastic)


def pending_us(gpu: Gpu, normal: Sequence[Progress]) -> float:
    """Microseconds of the launches of normal tasks in flight."""
    return sum(p.task.kernels[f.kernel].alone_us(gpu) for p in normal for f in p.flying)


@slotted
class SchedulerState:
    """The whole state.

    waiting: critical requests in the order in which they will run
    holder: the task that has the device, if the policy is exclusive
    overdue: requests that outlived their lease and have not finished; their tasks have not left
    recount: when workers are to be counted again; None: the count is right
    """

    critical: tuple[CriticalState, ...] = ()
    normal: tuple[Progress, ...] = ()
    now: float = 0.0
    waiting: tuple[Request, ...] = ()
    running: Running | None = None
    holder: str = ""
    overdue: tuple[Request, ...] = ()
    recount: float | None = None

    def critical_state(self, name: str) -> CriticalState | None:
        return next((one for one in self.critical if one.task.name == name), None)

    def task(self, name: str) -> Critical | None:
        found = self.critical_state(name)
        return None if found is None else found.task

    @property
    def critical_tasks(self) -> list[Critical]:
        return [one.task for one in self.critical]


def with_critical(state: SchedulerState, new: CriticalState) -> SchedulerState:
    """The state with this in place of what it had of the task."""
    name = new.task.name
    return changed(
        state, critical=tuple(new if one.task.name == name else one for one in state.critical)
    )


def with_item(values: tuple[T, ...], number: int, value: T) -> tuple[T, ...]:
    """The tuple with another value at this position."""
    return (*values[:number], value, *values[number + 1 :])
