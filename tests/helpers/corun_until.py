"""Models run beside each other until enough has happened, not for a time.

Input: `Corun.run` and its arrivals, and what is enough.  Output: its result.  Where nothing
comes of it, it ends after minutes, and the test's assertions say what is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from helpers.waiting import PATIENCE
from tilewright.elastic.arrivals import Arrival, ClosedLoop
from tilewright.elastic.corun import Corun
from tilewright.elastic.result import CorunResult


def run_until(
    enough: Callable[[CorunResult], object],
    run: Callable[..., CorunResult],
    arrival: Arrival | Sequence[Arrival],
    seed: int = 0,
    normal: Sequence[Arrival] = (ClosedLoop(),),
) -> CorunResult:
    stop = threading.Event()

    def look(result: CorunResult) -> None:
        if enough(result):
            stop.set()

    return run(arrival, PATIENCE, seed, normal, look, stop)


def all_answered(result: CorunResult) -> bool:
    """Each critical model did; on a device that is never idle normal ones may not run."""
    return all(one.answered for one in result.critical)


def all_ran(result: CorunResult) -> bool:
    """Each critical model answered, and each normal one ended an inference."""
    return all_answered(result) and all(result.inferences)


def command_until(monkeypatch: pytest.MonkeyPatch, enough: Callable[[CorunResult], object]) -> None:
    """`tilewright corun` runs so, whatever its --seconds."""
    run = Corun.run

    def patched(
        self: Corun, arrival: Any, _: float, seed: int, normal: Any, *__: Any
    ) -> CorunResult:
        return run_until(enough, run.__get__(self), arrival, seed, normal)

    monkeypatch.setattr(Corun, "run", patched)
