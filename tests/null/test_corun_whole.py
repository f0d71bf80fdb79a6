"""A normal inference that is started by one call goes on where workers left it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_corun_agents import bundles as bundles

from tilewright.base.budget import EVERYBODY
from tilewright.elastic import models
from tilewright.elastic.models import WholeElastic
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice
from tilewright.hosts.cuda_elastic import Budget, ElasticPlan


@pytest.mark.parametrize("every", [1, 8])
def test_what_is_left_is_done_by_the_next_call(
    bundles: tuple[Path, Path], every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "EVERY", every)
    host = CudaHost(bundles[1], CpuDevice(1))
    given = {i.name: np.ones(i.shape, np.float32) for i in host.bundle.manifest.inputs}
    want = host.run(given).outputs
    budget = Budget(host.device)
    elastic = ElasticPlan(host, budget)
    plan = WholeElastic(elastic)
    for looks in (1, 3, 8, 40, 1000):
        plan.begin()
        calls = 0
        while True:
            # after some looks at the budget nobody may stay; with one nobody begins
            budget.set(EVERYBODY, looks + calls)
            plan.start(0, EVERYBODY)
            calls += 1
            if plan.complete_after(0):
                break
            assert calls < 1000
        got = host.take(given).outputs
        for name, value in want.items():
            np.testing.assert_array_equal(got[name], value)
        assert calls > 1 if looks == 1 else calls == 1 or looks < 1000
