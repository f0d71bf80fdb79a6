"""The designs that are compared, as a table: ours, Miriam's, and what others do.

Input: what runs now.  Output: what a normal kernel may have beside a critical request, and the
budgets of the request.  `scheduler.py` has what all designs share: queues, admission, leases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tilewright.base.budget import EVERYBODY
from tilewright.base.errors import UsageError
from tilewright.elastic.policy import miriam
from tilewright.elastic.policy.budgets import bounded
from tilewright.elastic.policy.state import Progress, pending_us
from tilewright.elastic.policy.tasks import Critical, Gpu, KernelCost

#: Where workers of a normal kernel leave that must: at the next chunk, after their tile, or before
#: they begin; a block that has begun then ends, and the kernel begins anew.
Leave = Literal["chunk", "tile", "entry", "never"]


@dataclass(frozen=True)
class Beside:
    """A normal kernel that could start while a critical request runs.

    critical: the critical kernel that runs; None if nobody knows
    budget: the largest that the request still has;  solo_us: what the request takes alone
    normal: all normal tasks
    """

    gpu: Gpu
    kernel: KernelCost
    critical: KernelCost | None
    budget: int
    solo_us: float
    normal: tuple[Progress, ...]

    @property
    def used(self) -> int:
        """Workers of normal launches in flight."""
        flights = ((p.task.kernels[f.kernel], f) for p in self.normal for f in p.flying)
        return sum(min(f.workers, k.residents(self.gpu), k.tiles) for k, f in flights)

    @property
    def pending_us(self) -> float:
        return pending_us(self.gpu, self.normal)


@dataclass(frozen=True)
class Allotment:
    """What a launch may have: so many workers, so many tiles (0: all), threads that do the work of
    `fold`."""

    workers: int
    tiles: int = 0
    fold: int = 1


ALL = Allotment(EVERYBODY)


@dataclass(frozen=True)
class Design:
    """One way to share a GPU.

    budgets: of a request's phases, by its task and margin
    beside:  what a normal kernel may have while a critical request runs; None: it waits
    promises: a bound and deadlines, so it refuses what it cannot keep
    urgent:  the critical model's blocks are placed first
    by_kernels: the host starts critical kernels one by one;  barriers: each of them only when the
                normal kernels in flight have ended
    turns:   one inference at a time
    split:   the share of the SMs that is the critical model's alone; 0: it has no SMs of its own
    settle_us: the longest that critical kernels wait for workers that must leave
    runs:    a device starts several kernels of a normal inference by one call: nothing is decided
             between these
    plain:   while all budgets let everybody stay, normal kernels run in the form that nobody leaves
             (decision 55)
    """

    name: str
    leave: Leave
    budgets: Callable[[Critical, float], tuple[int, ...]]
    beside: Callable[[Beside], Allotment | None]
    promises: bool = False
    urgent: bool = True
    by_kernels: bool = False
    barriers: bool = False
    turns: bool = False
    split: float = 0.0
    settle_us: float = 0.0
    runs: bool = False
    plain: bool = False


def _nobody(task: Critical, margin: float) -> tuple[int, ...]:
    return (0,) * len(task.phases)


def _everybody(task: Critical, margin: float) -> tuple[int, ...]:
    return (EVERYBODY,) * len(task.phases)


def _within_budget(now: Beside) -> Allotment | None:
    return Allotment(now.budget) if now.budget else None


#: Kernel-boundary scheduling after Orion: most time in flight, as a share of the request's.
MOST_PENDING = 0.025


def _opposite(now: Beside) -> Allotment | None:
    """A kernel that leaves SMs free, uses what the critical kernel does not, and ends soon."""
    kernel, critical = now.kernel, now.critical
    each = kernel.residents(now.gpu) // now.gpu.sms
    small = -(-kernel.tiles // each) < now.gpu.sms
    differs = critical is None or (kernel.memory > kernel.compute) != (
        critical.memory > critical.compute
    )
    soon = now.pending_us + kernel.tile_us <= MOST_PENDING * now.solo_us
    return ALL if small and differs and soon else None


def _shard(now: Beside) -> Allotment | None:
    if now.critical is None:
        return None
    found = miriam.shard(now.kernel, now.critical, now.gpu, now.used)
    return None if found is None else Allotment(found.blocks, found.blocks, found.fold)


#: Several chunks, and little beside a request: longer waits were worth nothing (decision 35).
SETTLE_US = 10.0

DESIGNS = {
    design.name: design
    for design in (
        Design(
            "tilewright", "chunk", bounded, _within_budget, promises=True, settle_us=SETTLE_US,
            runs=True, plain=True,
        ),
        Design("miriam", "tile", _everybody, _shard, by_kernels=True),
        Design("sequential", "never", _everybody, lambda _: None, turns=True, runs=True),
        Design("streams", "never", _everybody, lambda _: ALL, urgent=False, runs=True),
        Design("priority", "never", _everybody, lambda _: ALL, runs=True),
        Design("barriers", "never", _everybody, lambda _: ALL, by_kernels=True, barriers=True),
        Design("split", "never", _everybody, lambda _: ALL, split=0.5, runs=True),
        Design("entry", "entry", _nobody, _within_budget),
        Design("boundary", "never", _everybody, _opposite, by_kernels=True),
    )
}  # fmt: skip


def design(name: str) -> Design:
    """Raises UsageError."""
    if name not in DESIGNS:
        raise UsageError(f"Unknown policy: {name}", hint=f"Known are {', '.join(DESIGNS)}")
    return DESIGNS[name]
