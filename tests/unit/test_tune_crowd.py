"""Many devices at once; servers that are killed: no report is lost, none is counted twice.

The same functions as benchmarks/sockets.py, smaller, over SQLite and PostgreSQL (fixture `url`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tuning_site import VARIANT, bundle, digest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    from benchmarks import sockets

    monkeypatch.setattr(sockets, "WORKERS", 0)  # a thread: processes take seconds to start
    return sockets


@pytest.fixture
def task(sockets: Any) -> Any:
    return sockets.Task("m", digest(), VARIANT, (0, 1, 2, 3), rounds=4, think=0.5)


def complete(found: Any, clients: int, kernels: int = 4) -> None:
    assert found["reports"] == found["acked"] == found["stored"] == kernels * clients
    assert found["lost"] == found["twice"] == 0


@pytest.mark.seldom(4)
def test_many_devices_on_one_process(sockets: Any, task: Any, url: str) -> None:
    found = sockets.many(bundle(), url, task, 60)
    complete(found, 60)
    assert found["connections"] == 60
    assert found["server_count"] == found["kernels"] == 4 * 60


def test_two_processes_that_are_killed_in_turn(sockets: Any, task: Any, url: str) -> None:
    """Each device connects to the other one and sends again what was not acknowledged."""
    # The first kill comes before a device's four trials of half a second are over.
    found = sockets.killed(bundle(), url, task, 12, kills=2, pause=1.0)
    complete(found, 12)
    assert found["kills"] >= 1
    assert found["connections"] > 12
