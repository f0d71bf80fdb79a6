"""Events that a coordinator is told of, and actions that it decides on.

Events carry `now` in microseconds of any clock that does not go back.  The executor (agents.py) or
the simulator carries out the actions, in their order.
"""

from __future__ import annotations

from tilewright.base.errors import TilewrightError
from tilewright.base.record import slotted


@slotted
class Arrived:
    """A request for one inference; `request` numbers it.

    came: when, if that was before the event; its deadline counts from then
    """

    now: float
    task: str
    request: int
    came: float | None = None


@slotted
class Reached:
    """A critical request begins its kernel of this number, where the design goes by kernels."""

    now: float
    request: int
    kernel: int


@slotted
class Finished:
    """A critical request has ended.

    took_us: from its begin, without waiting; None: it failed or was given up, so its time says
             nothing
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

    died: its process has ended, so its workers in flight are still counted
    """

    now: float
    task: str
    died: bool = False


#: What agents say of their tasks.
TaskEvent = Arrived | Reached | Finished | Ended | Gone
Event = TaskEvent | Tick


@slotted
class Begin:
    """Start a critical request: the budget of each phase is set before its kernels, and after the
    last one all workers may stay.

    settle_us: where a budget falls, the longest time for which the kernels of the phase wait until
               the workers beyond it have left; 0: they do not wait
    concurrent: normal tasks at once; each may keep as many workers as the budget
    """

    request: int
    task: str
    budgets: tuple[int, ...]
    settle_us: float = 0.0
    concurrent: int = 0


@slotted
class Proceed:
    """Start the next kernel of a critical request, where the design goes by kernels."""

    request: int
    kernel: int


@slotted
class Enqueue:
    """Start a normal kernel, or go on with it, after the earlier launches of the task.

    workers: at most;  tiles: the most that this launch takes; 0: all that are left
    fold: logical threads whose work a thread does
    plain: in the form that no worker leaves;  begins: a new inference
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
    """A request is not taken."""

    request: int
    error: TilewrightError


@slotted
class Noticed:
    """Requests under these budgets exceeded their bound more often than the curves say, so the
    curves have been corrected.

    requests: that showed it, since the first of them;  over: those over the bound
    predicted, found: their slowdown by the curve before, and the one that really covers as many
    attainable: whether some budget is left that keeps the bound
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
    """The time alone of a critical model has changed, such as with the device's clock.  From now on
    its bound is on the new time."""

    task: str
    was_us: float
    now_us: float


@slotted
class Withdraw:
    """A normal task may not go on; its launches in flight end."""

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
