"""Normal kernels that are started by one call go on where workers left them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_corun_agents import bundles as bundles

from tilewright.base.budget import UNLIMITED
from tilewright.elastic.plans import ElasticKernels, ElasticRuns, run_ends
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice, CudaDevice, NvidiaDevice
from tilewright.hosts.cuda_elastic import Budget, ElasticPlan


@pytest.mark.parametrize("ends", [(1, 2), (2,)])
def test_what_is_left_is_done_by_the_next_call(
    bundles: tuple[Path, Path], ends: tuple[int, ...]
) -> None:
    host = CudaHost(bundles[1], CpuDevice(1))
    given = {i.name: np.ones(i.shape, np.float32) for i in host.bundle.manifest.inputs}
    want = host.run(given).outputs
    budget = Budget(host.device)
    elastic = ElasticPlan(host, budget)
    assert len(elastic.steps) == ends[-1]
    plan = ElasticRuns(elastic, ends)
    for looks in (1, 3, 8, 40, 1000):
        plan.begin()
        calls = complete = 0
        while True:
            # after some looks at the budget nobody may stay; with one nobody begins
            budget.set(UNLIMITED, looks + calls)
            plan.start(complete, UNLIMITED)
            calls, complete = calls + 1, plan.complete_after(complete)
            if complete == len(ends):
                break
            assert calls < 1000
        got = host.take(given).outputs
        for name, value in want.items():
            np.testing.assert_array_equal(got[name], value)
        assert calls > len(ends) if looks == 1 else calls == len(ends) or looks < 1000


@pytest.mark.seldom(4)
@pytest.mark.parametrize("form", ["runs", "kernels"])
@pytest.mark.parametrize(
    "device", [lambda: CpuDevice(1), pytest.param(NvidiaDevice, marks=pytest.mark.gpu)]
)
def test_calls_that_nobody_leaves_and_others_follow_each_other(
    bundles: tuple[Path, Path], device: Callable[[], CudaDevice], form: str
) -> None:
    host = CudaHost(bundles[1], device())
    given = {i.name: np.ones(i.shape, np.float32) for i in host.bundle.manifest.inputs}
    want = host.run(given).outputs
    budget = Budget(host.device)
    elastic = ElasticPlan(host, budget)
    plan = ElasticRuns(elastic, (1, 2)) if form == "runs" else ElasticKernels(elastic)
    for plain in ((True, True), (True, False), (False, True)):
        plan.begin()
        for number in (0, 1):
            # nobody may stay at first: a call that nobody leaves does not ask
            budget.set(UNLIMITED if number else 0)
            plan.start(number, UNLIMITED, plain[number])
            host.device.wait()
            if plan.complete_after(number) == number:
                assert not plain[number]
                budget.set(UNLIMITED)
                plan.start(number, UNLIMITED)
                host.device.wait()
            assert plan.complete_after(number) == number + 1
        got = host.take(given).outputs
        for name, value in want.items():
            np.testing.assert_array_equal(got[name], value)


def test_runs_take_long_enough() -> None:
    assert run_ends([100, 60, 200, 1, 2], least=150) == [2, 3, 5]
    assert run_ends([1], least=150) == [1]
