"""What happens to a coordinator, and what it decides: events and actions.

Events carry `now` in microseconds of any clock that does not go back.  Actions are carried out by
the executor or the simulator, in their order.
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
    """A critical request has ended; took_us: from its begin, without waiting; None: it was given up
    or failed, and tells nothing."""

    now: float
    request: int
    took_us: float | None


@slotted
class Ended:
    """A launch of a normal kernel has ended; complete: kernels of the inference that are done."""

    now: float
    task: str
    complete: int


@slotted
class Tick:
    """Time has passed."""

    now: float


@slotted
class Gone:
    """A task's client left or died, with all its requests.

    died: its process has ended, so workers in flight did not count themselves out
    """

    now: float
    task: str
    died: bool = False


Event = Arrived | Reached | Finished | Ended | Tick | Gone


@slotted
class Begin:
    """Start a critical request: before the kernels of each phase its budget is set, after the last
    one everybody may stay.

    settle_us: where a budget falls, the kernels of its phase wait until those who must leave have
               left, at most so long; 0: not at all
    beside: normal tasks at once; each may keep as many workers as the budget
    """

    request: int
    task: str
    budgets: tuple[int, ...]
    settle_us: float = 0.0
    beside: int = 0


@slotted
class Proceed:
    """Start the next kernel of a critical request, where the design goes by kernels."""

    request: int
    kernel: int


@slotted
class Enqueue:
    """Start a normal kernel, or go on with it, after what the task has started before.

    workers: at most;  tiles: that this launch takes at most; 0: all that are left
    fold: logical threads whose work a thread does
    plain: in the form that nobody leaves;  begins: a new inference
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
    """No normal worker is alive: set the count of them to 0, and then go on."""


@slotted
class Refuse:
    """A request is not taken."""

    request: int
    error: TilewrightError


@slotted
class Noticed:
    """Requests under these budgets exceeded their bound more often than the curves say, so the
    curves have been corrected.

    requests: that tell so, since the first of them;  over: those over the bound
    predicted, found: their slowdown by the curve before, and what really covers as many
    kept: whether some budget is left that keeps the bound
    """

    task: str
    budgets: tuple[int, ...]
    requests: int
    over: int
    predicted: float
    found: float
    kept: bool


@slotted
class Recalibrated:
    """A critical model takes another time alone than was known, as on a device whose clock has
    changed.  Its bound is on that time from now on."""

    task: str
    was_us: float
    now_us: float


@slotted
class Withdraw:
    """A normal task is not admitted any longer; what it has in flight ends."""

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
