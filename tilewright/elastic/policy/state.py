"""What a coordinator remembers: immutable, and small enough to be made anew with each event."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TypeVar

from tilewright.base.record import slotted
from tilewright.elastic.policy.notices import Evidence
from tilewright.elastic.policy.pace import Pace
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

    kernel: where the design goes by kernels, the one that runs or waits for its turn
    held: it waits for its turn (a barrier);  beside: normal work was in flight when it began
    spent_us: since its begin, without jumps of the clock
    """

    request: Request
    budgets: tuple[int, ...]
    kernel: int = 0
    held: bool = False
    beside: bool = False
    spent_us: float = 0.0


@slotted
class Flight:
    """A launch of a normal kernel that has not ended; stays: nobody leaves it."""

    kernel: int
    workers: int
    stays: bool = False


@slotted
class Progress:
    """A normal task.

    backlog: inferences that are wanted;  complete: kernels of the present one that are done
    elastic: behind the last kernel of the present inference that was started in the form that
             workers leave, and so may be done in part
    began: when its last inference began, never at first
    """

    task: Normal
    backlog: int = 0
    complete: int = 0
    elastic: int = 0
    flying: tuple[Flight, ...] = ()
    began: float = -inf

    @property
    def following(self) -> int:
        """The kernel to start next; kernels of the next inference have numbers behind the last one
        of this.  A launch whose kernel
        comes before what is complete in its place does nothing: the one before it was left, and
        comes again."""
        kernel = self.complete
        for flight in self.flying:
            kernel += flight.kernel == kernel % len(self.task.kernels)
        return kernel

    @property
    def busy(self) -> bool:
        """An inference has begun and not ended."""
        return bool(self.flying or self.complete or self.elastic)


def pending_us(gpu: Gpu, normal: Sequence[Progress]) -> float:
    """Time of the launches of normal tasks that are in flight."""
    return sum(p.task.kernels[f.kernel].alone_us(gpu) for p in normal for f in p.flying)


@slotted
class Shares:
    """The whole state.

    waiting: critical requests in the order in which they will run
    margins, evidence, paces: by critical task
    turn: the name of whose turn it is, where tasks take turns
    due: by critical task, when its next request may come
    overdue: requests that outlived their lease and have not finished; their tasks are here still
    recount: from when on workers are counted anew; None: all have counted themselves
    """

    critical: tuple[Critical, ...] = ()
    normal: tuple[Progress, ...] = ()
    now: float = 0.0
    waiting: tuple[Request, ...] = ()
    running: Running | None = None
    margins: tuple[float, ...] = ()
    due: tuple[float, ...] = ()
    evidence: tuple[tuple[Evidence, ...], ...] = ()
    paces: tuple[Pace, ...] = ()
    turn: str = ""
    overdue: tuple[Request, ...] = ()
    recount: float | None = None

    def task(self, name: str) -> Critical | None:
        return next((task for task in self.critical if task.name == name), None)


def with_item(values: tuple[T, ...], number: int, value: T) -> tuple[T, ...]:
    """With another value in this place."""
    return (*values[:number], value, *values[number + 1 :])
