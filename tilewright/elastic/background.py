"""Normal models that run continuously under a fixed budget, and timed requests beside them.

Input: normal models, a budget.  Output: microseconds of a critical model's requests, which run as
an agent runs them.  For measurements only; agents.py serves real requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from tilewright.base.budget import UNLIMITED
from tilewright.elastic.agents import NormalAgent
from tilewright.elastic.coordination import now_us
from tilewright.elastic.coordinator import Coordinator
from tilewright.elastic.critical import CriticalModel
from tilewright.elastic.interpreter_priority import InterpreterPriority
from tilewright.elastic.plans import NormalPlan, PlacedPlan
from tilewright.elastic.policy import (
    Arrived,
    Critical,
    Finished,
    Hold,
    KernelCost,
    Normal,
    Scheduler,
)
from tilewright.elastic.policy.budgets import gaps
from tilewright.elastic.policy.policies import ALL, Policy, most_concurrent
from tilewright.hosts.cuda_devices import CudaDevice

#: Seconds between two requests, on average.
GAP_S = 3e-4
#: The most seconds that each normal model may take for a first inference before requests start.
WARM_S = 2.0

#: The first kernel of a part of a model, and the one after its last.
Part: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class NormalWork:
    """Normal models as they will run beside requests.

    plans: each model with its device;  allow: sets the budget at once
    scheduler: the one that will serve the requests
    workers: of the models' largest kernel alone;  gated: True if their runs have gates (gates.py)
    """

    plans: Sequence[PlacedPlan]
    allow: Callable[[int], None]
    scheduler: Scheduler
    workers: int
    gated: bool = False


class Background:
    """Runs normal models continuously, as far as the budget allows, in a `with` statement.

    agents: in the order of the models;  concurrent: as in the policy's `Begin`
    """

    def __init__(self, work: NormalWork, budget: int) -> None:
        scheduler, part = work.scheduler, ALL if budget else None
        self._budget, self._settle_us = budget, scheduler.policy.settle_us
        policy = Policy("measured", "chunk", lambda t, _: (budget,), lambda _: part, plain=True)
        self.coordinator = Coordinator(replace(scheduler, policy=policy), work.allow)
        self.coordinator.join(Critical.unbounded("critical"), lambda action: None)
        self.agents = [self._agent(n, plan, device) for n, (plan, device) in enumerate(work.plans)]
        self.concurrent = most_concurrent(scheduler.max_concurrent, self.coordinator.state)

    def _agent(self, number: int, plan: NormalPlan, device: CudaDevice) -> NormalAgent:
        task = Normal(f"normal {number}", (KernelCost(1, 32, 1.0, 1.0),) * len(plan.ends))
        return NormalAgent(
            self.coordinator, task, plan, device, lambda _: self.agents[number].ask()
        )

    def __enter__(self) -> Background:
        for agent in self.agents:
            agent.ask(2)
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as last:
            last.callback(self.coordinator.close)
            for agent in self.agents:
                last.callback(agent.close)

    def warmed(self) -> None:
        """Waits until each model has finished an inference, since kernels are loaded at their first
        run."""
        until = time.perf_counter() + WARM_S
        while any(not agent.inferences for agent in self.agents) and time.perf_counter() < until:
            for agent in self.agents:
                agent.check()
            time.sleep(1e-3)

    def beside(self, model: CriticalModel, part: Part, alone_us: float) -> Callable[[], float]:
        """Makes and times a request of a part of the model, beside the normal models."""
        waits = self._settle_us > 0 and self._budget < UNLIMITED
        return requests(
            model, Hold(self._budget, *part, waits=waits), self._settle_us, self, alone_us
        )

    def around(self, run: Callable[[], float]) -> float:
        """Runs a request with the policy's knowledge, so that normal work is launched as in use."""
        number = self.coordinator.request()
        self.coordinator.post(Arrived(now_us(), "critical", number))
        try:
            return run()
        finally:
            self.coordinator.post(Finished(now_us(), number, None))


def requests(
    model: CriticalModel,
    held: Hold,
    settle_us: float,
    busy: Background | None = None,
    expected_us: float | None = None,
    gap_s: float = GAP_S,
    before: Callable[[], None] = lambda: None,
) -> Callable[[], float]:
    """A function that makes a request of a part of the model, as an agent does, and returns its
    microseconds by the host's clock.

    expected_us: as in `InterpreterPriority.run`
    gap_s: the mean of the varying pauses before each request;  before: called before the pause
    """

    def once() -> float:
        begun = now_us()
        start = partial(model.start_parts, [held], settle_us, concurrent)
        interpreter.run(start, expected_us, starts=held.budget > 0)
        return now_us() - begun

    def timed() -> float:
        before()
        if gap_s:
            time.sleep(next(between))
        return once() if busy is None else busy.around(once)

    interpreter = busy.coordinator.interpreter if busy else InterpreterPriority()
    concurrent, between = busy.concurrent if busy else 0, gaps(gap_s)
    return timed
