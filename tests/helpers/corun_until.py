"""Models run beside each other until enough has happened, not for a time.

Input: `CorunSession.run` and its arrivals, and what is enough.  Output: its result.  Where nothing
comes of it, it ends after a minute, and the test's assertions say what is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from helpers.waiting import PATIENCE
from tilewright.elastic.result import CorunResult
from tilewright.elastic.session import CorunSession
from tilewright.elastic.workloads.arrivals import Arrival, ClosedLoop


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
    run = CorunSession.run

    def patched(
        self: CorunSession, arrival: Any, _: float, seed: int, normal: Any, *__: Any
    ) -> CorunResult:
        return run_until(enough, run.__get__(self), arrival, seed, normal)

    monkeypatch.setattr(CorunSession, "run", patched)
