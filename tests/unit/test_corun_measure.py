"""Slowdown curves on a host whose pace changes while they are measured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.elastic import measure_curves as module
from tilewright.elastic.background import NormalWork
from tilewright.elastic.measure_curves import CurveSettings, measure
from tilewright.elastic.policy import Gpu, Scheduler, policy_named


class Host:
    """Requests take 100 µs, 120 beside normal work, and half as long again at the end.

    budgets: tried so far
    """

    def __init__(self) -> None:
        self.budgets = list[int]()

    def background(self, work: NormalWork, budget: int) -> Any:
        self.budgets.append(budget)
        return nullcontext(SimpleNamespace(warmed=lambda: None, beside=self.beside))

    def requests(self, *_: Any, **__: Any) -> Callable[[], float]:
        return lambda: self.took(100.0)

    def beside(self, *_: Any) -> Callable[[], float]:
        return lambda: self.took(120.0)

    def took(self, microseconds: float) -> float:
        return microseconds * (1.5 if len(self.budgets) >= 5 else 1.0)


def test_alone_and_beside_are_measured_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()
    model: Any = SimpleNamespace(launches=[0], device=SimpleNamespace(name="a device"))
    monkeypatch.setattr(module, "kernel_times", lambda *_: [90.0])
    monkeypatch.setattr(module, "requests", host.requests)
    monkeypatch.setattr(module, "Background", host.background)
    scheduler = Scheduler(policy_named("tilewright"), Gpu(8))
    work = NormalWork([], lambda _: None, scheduler, workers=64)
    found = measure(model, ("a", "b"), work, CurveSettings(seconds=0.1))
    assert len(host.budgets) == 7
    assert found.solo_us == 100.0
    (phase,) = found.phases
    assert (phase.solo_us, phase.curve.points[0]) == (100.0, (0, 1.2))
