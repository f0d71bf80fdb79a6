"""Workers of a process that died are counted no longer, so that nobody waits for them."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from helpers.policy_run import CRITICAL as TASK
from helpers.policy_run import NORMAL as OTHER
from helpers.policy_run import Run
from helpers.waiting import until
from test_corun_broker import CRITICAL, NORMAL, Served, Told, word_at
from test_corun_broker import served as served

from tilewright.base.abi import WORD_BYTES
from tilewright.base.budget import ALIVE, UNLIMITED
from tilewright.elastic.broker import RemoteCoordinator, file_of
from tilewright.elastic.coordination import now_us
from tilewright.elastic.policy import Arrived, Ended, Enqueue, Gone, Recount, Tick, feedback
from tilewright.elastic.policy.feedback import DEAD_US, PAUSE_US


def two() -> Run:
    """Two normal tasks with launches in flight."""
    run = Run("tilewright", TASK, OTHER, replace(OTHER, name="dead"))
    run(Arrived(0, "normal", 0))
    run(Arrived(0, "dead", 1))
    return run


def test_launches_pause_until_all_have_ended_and_go_on_behind_the_count() -> None:
    run = two()
    assert run(Gone(0, "dead", died=True)) == []
    assert run(Ended(1, "normal", 1)) == [Enqueue("normal", 2, UNLIMITED)]
    # kernels of the dead process may run for a while: nobody counts before that is over
    assert run(Ended(DEAD_US, "normal", 2)) == []
    assert run(Ended(DEAD_US + 1, "normal", 2)) == [Recount(), Enqueue("normal", 2, UNLIMITED)]
    assert run(Tick(3 * DEAD_US)) == []


def test_a_launch_that_does_not_end_holds_the_others_for_a_while_only() -> None:
    run = two()
    run(Gone(0, "dead", died=True))
    assert run(Ended(DEAD_US, "normal", 1)) == []
    (again,) = run(Tick(DEAD_US + PAUSE_US))
    assert isinstance(again, Enqueue)
    # tried again later
    assert run(Ended(2 * DEAD_US + PAUSE_US, "normal", 1)) == []


def test_a_count_that_is_due_waits_for_a_task_that_left_with_kernels_in_flight() -> None:
    run = Run("tilewright", TASK, *(replace(OTHER, name=name) for name in ("dead", "leaving")))
    run(Arrived(0, "dead", 0))
    run(Arrived(0, "leaving", 1))
    run(Gone(0, "dead", died=True))
    # its workers are alive, and will count themselves out of what is there then
    run(Gone(DEAD_US - 1, "leaving"))
    assert run(Tick(DEAD_US)) == []
    assert run(Tick(2 * DEAD_US)) == [Recount()]


@pytest.mark.parametrize("gone", [Gone(0, "dead"), Gone(0, "critical", died=True)])
def test_nobody_is_counted_anew_who_left_or_ran_no_workers(gone: Gone) -> None:
    run = two()
    run(gone)
    run(Tick(2 * DEAD_US))
    run(Ended(3 * DEAD_US, "normal", 0))
    run(Ended(3 * DEAD_US, "normal", 0))
    assert run.state.recount is None
    assert Recount() not in run.actions


def test_a_broker_counts_anew_when_a_client_has_died(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feedback, "DEAD_US", 1e4)
    with RemoteCoordinator(served.path) as one:
        one.join(CRITICAL, lambda action: None)
        with RemoteCoordinator(served.path) as other:
            told = Told()
            other.join(NORMAL, told.append)
            other.post(Arrived(now_us(), "normal", other.request()))
            assert isinstance(told.next(), Enqueue)
            # five workers have counted themselves in
            with file_of(served.path).open("r+b") as file:
                os.pwrite(file.fileno(), (5).to_bytes(4, "little"), WORD_BYTES * ALIVE)
            assert word_at(served.path, ALIVE) == 5
        until(lambda: word_at(served.path, ALIVE) == 0)
        begun = Told()
        one.join(NORMAL, begun.append)
        one.post(Arrived(now_us(), "normal", one.request()))
        assert isinstance(begun.next(), Enqueue)
