"""The policies to choose from, as a table: our own, and the usual ones for comparison.

Input: the running kernels.  Output: the workers that a normal kernel gets beside a critical
request, the budgets of the request, and the normal tasks that continue or begin an inference (by
priority, then in turn).  `scheduler.py` has what all policies share: queues, admission, leases.
lab/policies.py has policies from papers, which can be passed in place of these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from tilewright.base.budget import UNLIMITED
from tilewright.base.errors import unknown_name
from tilewright.base.fast_records import changed
from tilewright.elastic.policy.budgets import budgets_for
from tilewright.elastic.policy.state import Progress, SchedulerState
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


ALL = Allotment(UNLIMITED)


@dataclass(frozen=True)
class Policy:
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
    return (UNLIMITED,) * len(task.phases)


def _within_budget(now: LaunchContext) -> Allotment | None:
    return Allotment(now.budget) if now.budget else None


#: Several chunks, but short compared with a request; longer waits gained nothing (decision 35).
SETTLE_US = 10.0

POLICIES = {
    policy.name: policy
    for policy in (
        Policy(
            "tilewright", "chunk", budgets_for, _within_budget, promises=True, settle_us=SETTLE_US,
            runs=True, plain=True,
        ),
        Policy("sequential", "never", all_workers, lambda _: None, exclusive=True, runs=True),
        Policy("streams", "never", all_workers, lambda _: ALL, urgent=False, runs=True),
        Policy("priority", "never", all_workers, lambda _: ALL, runs=True),
        Policy("barriers", "never", all_workers, lambda _: ALL, by_kernels=True, barriers=True),
        Policy("split", "never", all_workers, lambda _: ALL, split=0.5, runs=True),
        Policy("entry", "entry", _no_workers, _within_budget),
    )
}  # fmt: skip


def policy_named(chosen: str | Policy) -> Policy:
    """The policy of this name; a `Policy` is returned as it is.  Raises UsageError."""
    if isinstance(chosen, Policy):
        return chosen
    if chosen not in POLICIES:
        raise unknown_name("policy", chosen, POLICIES)
    return POLICIES[chosen]


def most_concurrent(max_concurrent: int, state: SchedulerState) -> int:
    """The most normal tasks beside a critical request."""
    return min(max_concurrent or len(state.normal), len(state.normal))


def eligible(policy: Policy, state: SchedulerState) -> list[int]:
    """Numbers of the tasks with work that come first, by priority or rotation."""
    wanting = [n for n, p in enumerate(state.normal) if p.backlog]
    if policy.exclusive:
        return [n for n in wanting if state.normal[n].task.name == state.holder]
    first = max((state.normal[n].task.priority for n in wanting), default=0)
    return [n for n in wanting if state.normal[n].task.priority == first]


def may_begin(max_concurrent: int, state: SchedulerState, tasks: Sequence[int]) -> Collection[int]:
    """Numbers of the tasks that may begin an inference.

    If more tasks have work than may run at once, the one that has waited longest is next.
    max_concurrent: how many may run at once; 0: all
    tasks: from `eligible`; tasks of a lower priority cannot continue and do not count
    """
    if not max_concurrent or len(tasks) <= max_concurrent:
        return tasks
    waiting = [n for n in tasks if not state.normal[n].busy]
    free = max(0, max_concurrent - (len(tasks) - len(waiting)))
    return sorted(waiting, key=lambda n: state.normal[n].began)[:free]


def pass_device_on(state: SchedulerState) -> SchedulerState:
    """Passes the device to the next task with work.  For policies that run one inference at a time,
    whose task keeps the device until the inference ends."""
    if state.running is not None or any(p.busy for p in state.normal):
        return state
    asked = {request.task for request in state.waiting}
    wanting = {task.name: task.name in asked for task in state.critical_tasks}
    wanting |= {p.task.name: p.backlog > 0 for p in state.normal}
    names = list(wanting)
    first = names.index(state.holder) + 1 if state.holder in wanting else 0
    following = (name for name in names[first:] + names[:first] if wanting[name])
    return changed(state, holder=next(following, state.holder))
