"""Many devices at once; servers that are killed: no report is lost, none is counted twice.

The functions of benchmarks/serving/sockets.py, smaller, over SQLite and PostgreSQL (fixture `url`).
"""

from __future__ import annotations

import pytest
from tuning_site import VARIANT, bundle, digest

from benchmarks.records import Row
from benchmarks.serving.sockets import killed, many
from benchmarks.serving.visitors import Task

#: A thread: processes take seconds to start.
WORKERS = 0


@pytest.fixture
def task() -> Task:
    return Task("m", digest(), VARIANT, (0, 1, 2, 3), rounds=4, think=0.5)


def complete(found: Row, clients: int, kernels: int = 4) -> None:
    assert found["reports"] == found["acked"] == found["stored"] == kernels * clients
    assert found["lost"] == found["twice"] == 0


@pytest.mark.seldom(4)
def test_many_devices_on_one_process(task: Task, url: str) -> None:
    found = many(bundle(), url, task, 60, WORKERS)
    complete(found, 60)
    assert found["connections"] == 60
    assert found["server_count"] == found["kernels"] == 4 * 60


def test_two_processes_that_are_killed_in_turn(task: Task, url: str) -> None:
    """Each device connects to the other one and sends again what was not acknowledged."""
    # The first kill comes before a device's four trials of half a second are over.
    found = killed(bundle(), url, task, 12, kills=2, pause=1.0, workers=WORKERS)
    complete(found, 12)
    assert found["kills"] >= 1
    assert found["connections"] > 12
