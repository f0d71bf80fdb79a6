"""No critical request waits for a recording: whoever comes and goes, whatever budgets it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from test_corun_agents import COST
from test_corun_agents import bundles as bundles

from tilewright.base.abi import WORD_BYTES
from tilewright.base.budget import UNLIMITED
from tilewright.elastic.agents import CriticalAgent
from tilewright.elastic.coordination import now_us
from tilewright.elastic.coordinator import Coordinator
from tilewright.elastic.critical import CriticalModel, critical_task
from tilewright.elastic.policy import Curve, Gone, Gpu, Normal, Phase, Scheduler, policy_named
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice
from tilewright.hosts.cuda_elastic import Budget
from tilewright.hosts.cuda_tasks import TOLD, Settle, Task

CURVE = Curve(((0, 1.0), (2, 1.02), (4, 1.04), (UNLIMITED, 2.0)))


class Noting(CpuDevice):
    """Counts what is recorded, and keeps the tasks that ran."""

    def __init__(self) -> None:
        super().__init__(1)
        self.recorded = 0
        self.ran: list[Task] = []

    def record(self, tasks: Sequence[Task]) -> Callable[[], None]:
        self.recorded += 1
        return super().record(tasks)

    def start(self, task: Task) -> None:
        self.ran.append(task)
        super().start(task)


@pytest.mark.seldom(4)
@pytest.mark.parametrize("name", ["tilewright", "barriers"])
def test_requests_record_nothing(bundles: tuple[Path, Path], name: str) -> None:
    device, chosen = Noting(), policy_named(name)
    host = CudaHost(bundles[0], device)
    model = CriticalModel(host, Budget(device))
    phases = (Phase(1, 1e6, CURVE), Phase(1, 1e6, CURVE))
    with Coordinator(Scheduler(chosen, Gpu(2)), lambda _: None) as coordinator:
        task = critical_task("critical", phases, (COST, COST))
        agent = CriticalAgent(coordinator, task, model, chosen.by_kernels)
        before = device.recorded
        for number in range(3):
            coordinator.join(Normal(f"normal {number}", (COST,)), lambda _: None)
            agent.request()
        coordinator.post(Gone(now_us(), "normal 0"))
        agent.request()
        if not chosen.by_kernels:
            # budgets that nobody chose of these curves
            model.start(task.phases, (3, 1), settle_us=1.0, concurrent=2)
        assert device.recorded == before


def test_who_is_waited_for_is_read_when_kernels_run(bundles: tuple[Path, Path]) -> None:
    device = Noting()
    model = CriticalModel(CudaHost(bundles[0], device), Budget(device))
    seen = []
    for concurrent in (2, 1):
        device.ran.clear()
        model.start((Phase(2, 1.0),), (1,), settle_us=3.0, concurrent=concurrent)
        (wait,) = (task for task in device.ran if isinstance(task, Settle))
        seen.append(np.frombuffer(device.read(wait.told, WORD_BYTES * TOLD), np.uint32).tolist())
    assert seen == [[1, 2, 3000, 1], [1, 1, 3000, 2]]


class Late(CpuDevice):
    """Runs what is recorded when the test says so."""

    def __init__(self) -> None:
        super().__init__(1)
        self.pending: list[Callable[[], None]] = []

    def record_after(self, address: int, tasks: Sequence[Task]) -> Callable[[int], None]:
        run = super().record_after(address, tasks)
        return lambda value: self.pending.append(lambda: run(value))


def test_a_request_that_nobody_waits_for_does_not_answer_the_next_one(
    bundles: tuple[Path, Path],
) -> None:
    device = Late()
    model = CriticalModel(CudaHost(bundles[0], device), Budget(device))
    phases = (Phase(2, 1.0),)
    model.prepare(phases)
    for _ in range(2):
        first = model.start(phases, (0,))
        second = model.start(phases, (0,))
        assert not first.passed()
        device.pending.pop(0)()
        assert first.passed()
        assert not second.passed()
        device.pending.pop(0)()
        assert second.passed()
