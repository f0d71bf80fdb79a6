"""Kernels that the simulated GPU runs, and their launches in streams.

Input: costs of kernels.  Output: records that change when tiles begin and end. simulated_gpu.py
decides when that happens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.base.budget import UNLIMITED
from tilewright.elastic.policy import KernelCost
from tilewright.elastic.policy.policies import Leave


@dataclass(eq=False)
class KernelRun:
    """One kernel of one inference: the number of tiles not yet begun, and the remaining work of
    tiles that workers left.

    again: tiles that were computed in vain, since the kernel was restarted
    """

    cost: KernelCost
    fresh: int = 0
    done: int = 0
    saved: deque[float] = field(default_factory=deque)
    again: int = 0

    def __post_init__(self) -> None:
        self.fresh = self.cost.tiles

    @property
    def complete(self) -> bool:
        return self.done == self.cost.tiles

    def take(self) -> float | None:
        """Takes the next tile, left ones first, and returns its work in microseconds; None if there
        is none."""
        if self.saved:
            return self.saved.popleft()
        if not self.fresh:
            return None
        self.fresh -= 1
        return self.cost.tile_us

    def restart(self) -> None:
        self.again += self.done
        self.fresh, self.done = self.cost.tiles, 0


@dataclass(eq=False)
class KernelLaunch:
    """A kernel in a stream.

    leave: None for plain kernels, whose blocks compute one tile each and cannot leave early
    ready: tells whether it may start; called when it is the first of its stream
    tiles: the tiles that it may take;  ended: called at its end
    """

    name: str
    run: KernelRun
    workers: int
    ended: Callable[[], None]
    critical: bool = False
    leave: Leave | None = None
    ready: Callable[[], bool] = lambda: True
    tiles: int = UNLIMITED
    fold: int = 1
    unplaced: int = 0
    live: int = 0
    dropped: bool = False
    next_worker: int = 0

    @property
    def threads(self) -> int:
        return self.run.cost.threads // self.fold
