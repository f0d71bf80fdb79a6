"""A policy that decides on events, one after the other, and small tasks for it.

Input: the name of a policy, tasks, events.  Output: its state and actions.
"""

from __future__ import annotations

from lab.policies import POLICIES
from tilewright.elastic.policy import (
    Action,
    Begin,
    Critical,
    Curve,
    Ended,
    Event,
    Gpu,
    KernelCost,
    Normal,
    Phase,
    Scheduler,
    SchedulerState,
)
from tilewright.elastic.policy.policies import SETTLE_US

GPU = Gpu(8)
KERNEL = KernelCost(40, 256, 60.0, 2.0)
#: Nothing fits beside the first phase within 5 %; beside the second four workers do.
STEEP, FLAT = Curve(((0, 1.0), (4, 1.5), (8, 2.0))), Curve(((0, 1.0), (4, 1.02), (8, 1.4)))
CRITICAL = Critical("critical", (Phase(1, 100.0, STEEP), Phase(1, 100.0, FLAT)), (KERNEL,) * 2)
NORMAL = Normal("normal", (KERNEL,) * 3)


class Run:
    """A scheduler, its state, and all that it decided."""

    def __init__(self, name: str, *tasks: Critical | Normal, ahead: int = 2) -> None:
        self.scheduler = Scheduler(POLICIES[name], GPU, ahead)
        self.state, self.actions = SchedulerState(), list[Action]()
        for task in tasks:
            self.state = self.scheduler.with_task(self.state, task)

    def __call__(self, event: Event) -> list[Action]:
        self.state, actions = self.scheduler.step(self.state, event)
        self.actions += actions
        return list(actions)

    def leave(self, now: float) -> None:
        """Launches in flight end, with nothing done."""
        for progress in self.state.normal:
            for _ in progress.flying:
                self(Ended(now, progress.task.name, 0))


def begin(request: int, budgets: tuple[int, ...]) -> Begin:
    """What ours decides beside one normal task."""
    return Begin(request, "critical", budgets, SETTLE_US, 1)
