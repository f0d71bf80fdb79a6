"""Events that a coordinator receives, and actions that it decides on.

Events have the time `now` in microseconds of any monotonic clock.  The executor (agents.py) or the
simulator carries out the actions, in their order.
"""

from __future__ import annotations

from tilewright.base.errors import TilewrightError
from tilewright.base.fast_records import slotted


@slotted
class Arrived:
    """A request for one inference, numbered `request`.

    came: its time of arrival, if that was before the event; its deadline counts from then
    """

    now: float
    task: str
    request: int
    came: float | None = None


@slotted
class Reached:
    """A critical request begins its kernel of this number; for policies that decide by kernels."""

    now: float
    request: int
    kernel: int


@slotted
class Finished:
    """A critical request has ended.

    took_us: from its start, without waiting; None: it failed or was given up, so its time does not
             count
    """

    now: float
    request: int
    took_us: float | None


@slotted
class Ended:
    """A launch of a normal kernel has ended; complete: finished kernels of the inference."""

    now: float
    task: str
    complete: int


@slotted
class Tick:
    """Time has passed."""

    now: float


@slotted
class Gone:
    """A task has left, with all its requests.

    died: its process has ended, so its workers in flight still count
    """

    now: float
    task: str
    died: bool = False


#: Events that agents report about their tasks.
TaskEvent = Arrived | Reached | Finished | Ended | Gone
Event = TaskEvent | Tick


@slotted
class Begin:
    """Start a critical request.  The budget of each phase is set before its kernels; after the last
    phase all workers may stay.

    settle_us: the longest time for which the kernels of a phase with a lower budget wait for
        workers to leave; 0: they do not wait
    concurrent: normal tasks at once; each may keep as many workers as the budget
    """

    request: int
    task: str
    budgets: tuple[int, ...]
    settle_us: float = 0.0
    concurrent: int = 0


@slotted
class Proceed:
    """Start the next kernel of a critical request; for policies that decide by kernels."""

    request: int
    kernel: int


@slotted
class Enqueue:
    """Start a normal kernel, or continue it, after the earlier launches of the task.

    workers: the most;  tiles: the most that this launch takes; 0: all remaining ones
    fold: logical threads that one thread computes
    plain: use the form that no worker leaves;  begins: it begins a new inference
    """

    task: str
    kernel: int
    workers: int
    tiles: int = 0
    fold: int = 1
    plain: bool = False
    begins: bool = False


@slotted
class Allow:
    """Set the budget now, by the host."""

    workers: int


@slotted
class Recount:
    """No normal worker is alive: set their count to 0 before the next action."""


@slotted
class Refuse:
    """A request is rejected."""

    request: int
    error: TilewrightError


@slotted
class Noticed:
    """A curve was corrected: requests under these budgets exceeded their bound more often than it
    says.

    requests: the number that showed it;  over: those over the bound
    predicted, found: the slowdown by the old curve, and the slowdown that covers the same share now
    attainable: True if some budget still keeps the bound
    """

    task: str
    budgets: tuple[int, ...]
    requests: int
    over: int
    predicted: float
    found: float
    attainable: bool


@slotted
class Recalibrated:
    """The time alone of a critical model has changed, for example with the device's clock.  From
    now on its bound is a multiple of the new time."""

    task: str
    was_us: float
    now_us: float


@slotted
class Withdraw:
    """A normal task must stop; its launches in flight end."""

    task: str
    error: TilewrightError


@slotted
class Overdue:
    """A critical request held normal work back for longer than its lease."""

    request: int
    task: str


Action = (
    Begin | Proceed | Enqueue | Allow | Recount | Refuse | Noticed | Recalibrated | Withdraw
    | Overdue
)  # fmt: skip
