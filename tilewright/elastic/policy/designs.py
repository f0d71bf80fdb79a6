"""The designs to choose from, as a table: our own, and the usual ones for comparison.

Input: the running kernels.  Output: what a normal kernel gets beside a critical request, and the
budgets of the request.  `scheduler.py` has what all designs share: queues, admission, leases.
Designs from papers are in lab/designs.py and can be passed in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tilewright.base.budget import EVERYBODY
from tilewright.base.errors import UsageError
from tilewright.elastic.policy.budgets import bounded
from tilewright.elastic.policy.state import Progress
from tilewright.elastic.policy.tasks import Critical, Gpu, KernelCost

#: When workers of a normal kernel leave if they must: at the next chunk, after their tile, or only
#: when a block begins; then blocks that have begun go on to their end, and the kernel starts again.
Leave = Literal["chunk", "tile", "entry", "never"]


@dataclass(frozen=True)
class LaunchContext:
    """The running kernels when a normal kernel could start beside a critical request.

    critical: the critical kernel that runs; None if that is not known
    budget: the request's largest budget;  solo_us: the time of the request alone
    normal: all normal tasks
    """

    gpu: Gpu
    kernel: KernelCost
    critical: KernelCost | None
    budget: int
    solo_us: float
    normal: tuple[Progress, ...]


@dataclass(frozen=True)
class Allotment:
    """The part of a launch: workers, tiles (0: all), and the logical threads that one thread
    computes."""

    workers: int
    tiles: int = 0
    fold: int = 1


ALL = Allotment(EVERYBODY)


@dataclass(frozen=True)
class Design:
    """One way to share a GPU.

    budgets: of a request's phases, from its task and margin
    allotment: what a normal kernel gets while a critical request runs; None: it waits
    promises: it keeps bounds and deadlines, and refuses those that it cannot keep
    urgent:  the critical model's blocks are scheduled first
    by_kernels: the host starts critical kernels one by one
    barriers: each critical kernel starts only when the normal kernels in flight have ended
    exclusive: one inference at a time, of all tasks in rotation
    split:   the share of the SMs for the critical model alone; 0: it shares all of them
    settle_us: the longest time for which critical kernels wait for workers that must leave
    runs:    one call starts several kernels of a normal inference, with no decision between them
    plain:   while all budgets let all workers stay, normal kernels run in their plain form
             (decision 55)
    """

    name: str
    leave: Leave
    budgets: Callable[[Critical, float], tuple[int, ...]]
    allotment: Callable[[LaunchContext], Allotment | None]
    promises: bool = False
    urgent: bool = True
    by_kernels: bool = False
    barriers: bool = False
    exclusive: bool = False
    split: float = 0.0
    settle_us: float = 0.0
    runs: bool = False
    plain: bool = False


def _no_workers(task: Critical, margin: float) -> tuple[int, ...]:
    return (0,) * len(task.phases)


def all_workers(task: Critical, margin: float) -> tuple[int, ...]:
    """Budgets under which every normal worker may stay in each phase."""
    return (EVERYBODY,) * len(task.phases)


def _within_budget(now: LaunchContext) -> Allotment | None:
    return Allotment(now.budget) if now.budget else None


#: Several chunks, but short compared with a request; longer waits gained nothing (decision 35).
SETTLE_US = 10.0

DESIGNS = {
    design.name: design
    for design in (
        Design(
            "tilewright", "chunk", bounded, _within_budget, promises=True, settle_us=SETTLE_US,
            runs=True, plain=True,
        ),
        Design("sequential", "never", all_workers, lambda _: None, exclusive=True, runs=True),
        Design("streams", "never", all_workers, lambda _: ALL, urgent=False, runs=True),
        Design("priority", "never", all_workers, lambda _: ALL, runs=True),
        Design("barriers", "never", all_workers, lambda _: ALL, by_kernels=True, barriers=True),
        Design("split", "never", all_workers, lambda _: ALL, split=0.5, runs=True),
        Design("entry", "entry", _no_workers, _within_budget),
    )
}  # fmt: skip


def design(chosen: str | Design) -> Design:
    """The design of this name; a `Design` is returned as it is.  Raises UsageError."""
    if isinstance(chosen, Design):
        return chosen
    if chosen not in DESIGNS:
        raise UsageError(f"Unknown policy: {chosen}", hint=f"Known are {', '.join(DESIGNS)}")
    return DESIGNS[chosen]
