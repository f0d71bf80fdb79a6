"""Gates: runs of normal kernels wait on the device while nobody may stay, and stop nobody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.corun_until import all_answered, run_until
from helpers.waiting import PATIENCE, a_while, until
from test_corun_agents import bundles as bundles
from test_corun_session import SETTINGS, curves_of

from tilewright.base.budget import UNLIMITED
from tilewright.base.errors import HostError
from tilewright.elastic import gates
from tilewright.elastic.arrivals import Poisson
from tilewright.elastic.background import NormalWork
from tilewright.elastic.concurrency import Concurrency, choices
from tilewright.elastic.corun import Corun
from tilewright.elastic.gates import GATE_US, gates_of, pass_gates
from tilewright.elastic.measure_curves import Measured
from tilewright.elastic.plans import ElasticRuns
from tilewright.elastic.policy import Curve, Phase
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice, CudaDevice, NvidiaDevice
from tilewright.hosts.cuda_driver import Driver
from tilewright.hosts.cuda_elastic import Budget, ElasticPlan
from tilewright.hosts.cuda_tasks import Gate, SetWord, Task

DEVICES = [lambda: CpuDevice(1), pytest.param(NvidiaDevice, marks=pytest.mark.gpu)]


def test_a_gate_is_before_each_run_and_behind_so_many_microseconds() -> None:
    part = 0.6 * GATE_US
    assert gates_of([part] * 9, [4, 9]) == {0, 2, 4, 6, 8}
    assert gates_of([3 * GATE_US, 1.0, 1.0], [1, 3]) == {0, 1}
    assert gates_of([1.0], [1]) == {0}


def test_choices_with_gates_come_before_fewer_models() -> None:
    def never() -> bool:
        raise AssertionError("the first choice did")

    assert next(choices(5, None, True, never)) == Concurrency(5)
    assert list(choices(5, None, True, lambda: True)) == [(5, 0), (5, 1), (2, 1), (1, 1)]
    assert list(choices(5, None, True, lambda: False)) == [(5, 0), (2, 0), (1, 0)]
    assert list(choices(2, None, True, lambda: True)) == [(2, 0), (2, 1), (1, 1)]
    assert list(choices(5, 2, True, lambda: True)) == [(2, 0), (2, 1)]
    assert list(choices(5, None, False, never)) == [(5, 0)]


@pytest.mark.seldom(4)
@pytest.mark.parametrize("device", DEVICES)
def test_runs_wait_at_gates_until_somebody_may_stay(
    bundles: tuple[Path, Path], device: Callable[[], CudaDevice]
) -> None:
    host, control = CudaHost(bundles[1], device()), device()
    given = {i.name: np.ones(i.shape, np.float32) for i in host.bundle.manifest.inputs}
    want = host.run(given).outputs
    budget = Budget(host.device)
    host.device.wait()
    elastic = ElasticPlan(host, budget)
    plan = ElasticRuns(elastic, (1, 2), {0, 1})

    def run() -> None:
        host.device.use()
        plan.begin()
        for number in (0, 1):
            plan.start(number, UNLIMITED)
        host.device.wait()

    for workers in (1, UNLIMITED):
        control.start(SetWord(budget.address, 0))
        control.wait()
        thread = threading.Thread(target=run)
        thread.start()
        a_while()
        assert thread.is_alive()
        assert plan.complete_after(1) == 0
        control.start(SetWord(budget.address, workers))
        thread.join(PATIENCE)
        assert not thread.is_alive()
        # one worker is enough: the others leave
        assert plan.complete_after(1) == 2
        for name, value in want.items():
            np.testing.assert_array_equal(host.take(given).outputs[name], value)


class Queued(CpuDevice):
    """Streams that share a queue: what one starts waits for what the others have started.

    late: seconds until a thread may use it;  wrong: what recording raises
    """

    returns = True

    def __init__(
        self, queue: ThreadPoolExecutor, late: float = 0.0, wrong: Exception | None = None
    ) -> None:
        super().__init__(1)
        self._queue, self._late, self._wrong = queue, late, wrong

    def use(self) -> None:
        time.sleep(self._late)

    def record(self, tasks: Sequence[Task]) -> Callable[[], None]:
        if self._wrong is not None:
            raise self._wrong
        run = super().record(tasks)
        return lambda: void(self._queue.submit(run))

    def wait(self) -> None:
        self._queue.submit(lambda: None).result(PATIENCE)


def void(_: object) -> None: ...


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Whoever goes on is waited for, however busy the machine is."""
    for name in ("STOPPED_S", "STARTED_S"):
        monkeypatch.setattr(gates, name, PATIENCE)
    return monkeypatch


def test_streams_of_one_queue_may_not_wait(patient: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        assert pass_gates([Queued(one), Queued(one)], [Queued(other)])
        # on a host that is busy the gate stands late
        assert pass_gates([Queued(one, late=0.05)], [Queued(other)])
        patient.setattr(gates, "STOPPED_S", 0.1)
        assert not pass_gates([Queued(one)], [Queued(other), Queued(one)])
        assert not pass_gates([Queued(one, late=0.05)], [Queued(one)])


@pytest.mark.usefixtures("patient")
def test_streams_that_cannot_wait_do_not() -> None:
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        refused = Queued(one, wrong=HostError("no such node", hint="None"))
        assert not pass_gates([Queued(one), refused], [Queued(other)])
        # that is an answer of the device's; all else is a fault
        with pytest.raises(ZeroDivisionError):
            pass_gates([Queued(one, wrong=ZeroDivisionError())], [Queued(other)])
        broken = Queued(one)
        broken.record = lambda tasks: lambda: 1 // 0  # type: ignore[method-assign,assignment]
        with pytest.raises(ZeroDivisionError):
            pass_gates([Queued(one), broken], [Queued(other)])
        # gates are open again
        one.submit(void, None).result(PATIENCE)


@pytest.mark.gpu
@pytest.mark.parametrize("sms", [None, 8])
def test_streams_of_a_few_models_do_not_stop_each_other(sms: int | None) -> None:
    driver = Driver(0, sms)
    streams = [NvidiaDevice(driver) for _ in range(6)]
    assert pass_gates(streams, [NvidiaDevice(driver, urgent=True) for _ in range(3)])


@pytest.mark.seldom(4)
def test_a_session_takes_gates_where_the_bound_needs_them(
    bundles: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(model: Any, models: Any, work: NormalWork, _: Any) -> Measured:
        choice = Concurrency(work.scheduler.max_concurrent, work.gated)
        phase = Phase(2, 1e4, Curve(((0, 1.0 if choice.gated else 3e7), (UNLIMITED, 9e7))))
        return curves_of(models, phases=(phase,), concurrency=choice)

    def counted(device: CpuDevice, task: Task) -> None:
        passed.append(isinstance(task, Gate))
        start(device, task)

    passed, start = list[bool](), CpuDevice.start
    monkeypatch.setattr("tilewright.elastic.calibration.measure", measured)
    critical, normal = bundles
    with Corun.prepare(critical, [normal] * 2, replace(SETTINGS, max_slowdown=1e7)) as session:
        assert session.concurrency == Concurrency(2, True)
        monkeypatch.setattr(CpuDevice, "start", counted)
        with session.background(0) as busy:
            until(lambda: all(agent.inferences for agent in busy.agents))
            assert any(passed)
        result = run_until(lambda r: all_answered(r) and any(r.inferences), session.run, Poisson(5))
    assert result.critical[0].answered
    assert sum(result.inferences)
