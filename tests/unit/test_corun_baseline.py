"""The time alone of critical models, found anew where a device has become slower or faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from helpers.policy_run import CRITICAL, NORMAL, STEEP, Run
from test_corun_broker import Served, after_a_look
from test_corun_broker import served as served

from lab.simulator import Outcome, levels, phases, simulate
from lab.workloads.metrics import above
from tilewright.elastic.arrivals import ClosedLoop, Poisson
from tilewright.elastic.broker import RemoteCoordinator
from tilewright.elastic.policy import (
    Action,
    Arrived,
    Critical,
    Enqueue,
    Finished,
    Gone,
    Gpu,
    KernelCost,
    Normal,
    Noticed,
    Phase,
    Recalibrated,
    Refuse,
    Scheduler,
    Tick,
    Withdraw,
    policy_named,
)
from tilewright.elastic.policy.baseline import (
    AGAIN_US,
    DIFFERENT,
    MOST_US,
    RECENT,
    REQUESTS,
    SOON_US,
    Baseline,
    probed,
    with_answer,
    with_probe,
)

TASK = replace(CRITICAL, phases=(Phase(1, 150.0, STEEP), Phase(1, 50.0, STEEP)), max_slowdown=1.1)


class Device:
    """Requests one after the other, a millisecond apart; launches that must leave have left."""

    def __init__(self, *tasks: Critical | Normal) -> None:
        self.run, self.now, self.requests = Run("tilewright", *tasks), 0.0, 0
        for task in tasks:
            if isinstance(task, Normal):
                self.run(Arrived(0, task.name, 0))

    def ask(self, took_us: float | None, times: int = 1, wait_us: float = 1e3) -> list[Action]:
        told = list[Action]()
        for _ in range(times):
            self.now += wait_us
            self.requests += 1
            self.run.leave(self.now)
            self.run(Arrived(self.now, "critical", self.requests))
            told += self.run(Finished(self.now, self.requests, took_us))
        return [a for a in told if isinstance(a, Noticed | Recalibrated | Withdraw)]

    @property
    def looks(self) -> bool:
        return self.run.state.critical[0].baseline.probing

    @property
    def solo_us(self) -> float:
        return self.run.state.critical[0].task.solo_us


def test_a_slower_device_ends_no_normal_work() -> None:
    """Requests exceed the bound, and do so alone as well: the bound is on the new time then."""
    device = Device(TASK, NORMAL)
    assert device.ask(226.0, 3) == []
    assert not device.looks
    assert device.ask(226.0) == []
    assert device.looks
    told = device.ask(226.0, REQUESTS)
    assert told == [Recalibrated("critical", 200.0, pytest.approx(226.0))]
    assert not device.looks
    assert [phase.solo_us for phase in device.run.state.critical[0].task.phases] == pytest.approx(
        [1.13 * 150, 1.13 * 50]
    )
    assert device.run.state.critical[0].margin == 1.0
    assert device.run.state.critical[0].evidence == ()
    assert device.run.state.normal[0].flying
    # what was over the bound is within it
    assert device.ask(1.05 * 226, 900) == []
    # and what exceeds the new one is noticed, once the time alone was found to be the same
    assert device.ask(1.2 * 226, 8) == []
    device.ask(226.0, REQUESTS)
    found = device.ask(1.2 * 226, 8)
    assert isinstance(found[0], Noticed)


def test_evidence_against_the_old_time_alone_does_not_count_against_the_new_one() -> None:
    device = Device(TASK, NORMAL)
    device.ask(200.0)
    device.ask(226.0, 2)
    assert device.run.state.critical[0].evidence != ()
    device.ask(226.0, wait_us=AGAIN_US)
    assert device.looks
    assert [type(a) for a in device.ask(226.0, REQUESTS)] == [Recalibrated]
    assert device.run.state.critical[0].evidence == ()


def test_normal_work_waits_for_a_look() -> None:
    device = Device(TASK, NORMAL)
    device.ask(226.0, 4)
    assert device.looks
    for _ in range(REQUESTS - 1):
        device.ask(200.0)
        assert not device.run.state.normal[0].flying
    device.ask(200.0)
    assert device.run.state.normal[0].flying
    assert device.solo_us == 200.0
    # a task that joins meanwhile waits, too
    device = Device(TASK, NORMAL)
    device.ask(226.0, 4)
    device.run.state = device.run.scheduler.with_task(
        device.run.state, replace(NORMAL, name="more")
    )
    assert device.run(Arrived(device.now, "more", 99)) == []


def test_only_requests_with_nothing_beside_them_count() -> None:
    baseline = with_probe(Baseline(), 10.0)
    assert with_answer(baseline, 900.0, shared=True, now=0.0) == baseline
    assert with_answer(baseline, 300.0, shared=False, now=0.0).alone == (300.0,)


@pytest.mark.seldom(4)
def test_a_bad_moment_of_the_host_ends_no_normal_work() -> None:
    """Some requests in a row take long, and it is over before the look is."""
    device = Device(TASK, NORMAL)
    for _ in range(20):
        assert device.ask(900.0, 4) == []
        assert device.looks
        assert device.ask(200.0, REQUESTS) == []
        assert device.ask(200.0, RECENT) == []
    assert device.run.state.normal
    # soon after one such moment the next is believed
    device.ask(900.0, 4)
    device.ask(200.0, REQUESTS)
    assert any(isinstance(a, Noticed) for a in device.ask(900.0, 4))


def test_a_clock_that_goes_to_and_fro_is_followed() -> None:
    device, told = Device(TASK, NORMAL), list[Action]()
    for _ in range(10):
        told += device.ask(226.0, 4 + REQUESTS)
        assert device.solo_us == pytest.approx(226.0)
        # it is probed again soon, also if nothing is over the bound
        told += device.ask(200.0, wait_us=1.01 * SOON_US)
        assert device.looks
        told += device.ask(200.0, REQUESTS)
        assert device.solo_us == pytest.approx(200.0)
    assert all(isinstance(a, Recalibrated) for a in told)
    assert len(told) == 20


@pytest.mark.seldom(4)
@pytest.mark.parametrize(("hz", "share"), [(1000, 0.001), (100, 0.0035), (20, 0.0035)])
def test_looks_are_seldom(hz: int, share: float) -> None:
    """Without a doubt normal work loses a third of a percent of its time."""
    device, waited, count = Device(TASK, NORMAL), 0, 16_000
    for _ in range(count):
        device.ask(203.0, wait_us=1e6 / hz)
        waited += device.looks
    assert 0 < waited < share * count


def test_looks_are_not_many_while_the_clock_changes() -> None:
    device, waited = Device(TASK, NORMAL), 0
    for number in range(4_000):
        device.ask(200.0 if number // 300 % 2 else 210.0, wait_us=5e4)
        waited += device.looks
    assert 0.01 < waited / 4_000 < 0.05


@pytest.mark.parametrize("phase", range(20))
def test_a_clock_that_falls_after_a_look_that_was_due_ends_no_normal_work(phase: int) -> None:
    device = Device(TASK, NORMAL)
    device.ask(200.0, 600 + 150 * phase, wait_us=2e4)
    told = device.ask(226.0, 40, wait_us=2e4)
    assert [type(a) for a in told] == [Recalibrated]


def test_a_look_takes_the_middle() -> None:
    probe = with_probe(Baseline(), 0.0)
    for took in (100.0, 900.0, *[226.0] * (REQUESTS - 2)):
        probe = with_answer(probe, took, shared=False, now=0.0)
    assert probed(probe, TASK, 1e3)[1].solo_us == pytest.approx(226.0)


def test_failed_requests_tell_nothing() -> None:
    device = Device(TASK, NORMAL)
    device.ask(226.0, 4)
    (before,) = device.run.state.critical
    assert device.ask(None, 2 * REQUESTS) == []
    assert device.looks
    (after,) = device.run.state.critical
    assert after == replace(before, due=after.due)
    device.ask(200.0, REQUESTS)
    assert not device.looks


def test_of_requests_and_tasks_that_are_gone_nobody_knows_what_still_runs() -> None:
    device = Device(TASK, NORMAL)
    device.ask(226.0, 4)
    device.run(Arrived(device.now, "critical", 999))
    device.now += 1e6  # in steps: a clock that jumps has jumped
    for n in range(10):
        device.run(Tick(device.now - 1e6 + 1e5 * n))
    assert device.run.state.overdue
    device.ask(900.0, 3)
    assert device.run.state.critical[0].baseline.alone == ()
    device.run(Finished(device.now, 999, 900.0))
    device.ask(200.0, 3)
    assert device.run.state.critical[0].baseline.alone == (200.0,) * 3
    device.run(Gone(device.now, "normal", died=True))


def test_a_client_that_was_killed_takes_its_overdue_requests_along() -> None:
    """Nobody else could tell when they finish, and no time alone would be found any more."""
    device = Device(TASK, replace(TASK, name="killed"), NORMAL)
    device.run(Arrived(device.now, "killed", 999))
    for n in range(10):
        device.run(Tick(device.now + 1e5 * n))
    device.now += 1e6
    assert [r.task for r in device.run.state.overdue] == ["killed"]
    device.run(Gone(device.now, "killed", died=True))
    assert device.run.state.overdue == ()
    found = list[Action]()
    for _ in range(2):  # looks
        device.ask(226.0, 4)
        assert device.looks
        found += device.ask(226.0, REQUESTS)
        assert not device.looks
        if found:
            break
    assert found == [Recalibrated("critical", 200.0, pytest.approx(226.0))]


def test_the_first_look_is_not_due_at_once() -> None:
    """Clocks begin anywhere."""
    device = Device(TASK, NORMAL)
    device.now = 1e12
    device.ask(200.0, int(AGAIN_US / 1e3))
    assert not device.looks
    device.ask(200.0, 2)
    assert device.looks


def test_each_critical_model_has_a_time_of_its_own() -> None:
    other = replace(TASK, name="other")
    device = Device(TASK, other, NORMAL)
    told = device.ask(226.0, 4 + REQUESTS)
    assert told == [Recalibrated("critical", 200.0, pytest.approx(226.0))]
    assert [task.solo_us for task in device.run.state.critical_tasks] == pytest.approx(
        [226.0, 200.0]
    )
    # a look at one does not count requests of the other
    device.ask(1.2 * 226.0, 4)
    assert device.looks
    device.run(Arrived(device.now, "other", 999))
    device.run(Finished(device.now, 999, 500.0))
    assert (
        device.run.state.critical[0].baseline.alone
        == device.run.state.critical[1].baseline.alone
        == ()
    )


def test_without_normal_work_there_is_no_look() -> None:
    device = Device(TASK)
    device.ask(300.0, 100, wait_us=1e6)
    assert not device.looks


def test_a_deadline_refuses_nobody_for_ever() -> None:
    """A time alone that would miss it is probed again, by requests that run all the same."""
    device = Device(replace(TASK, deadline_us=400.0), NORMAL)
    device.ask(420.0, 4 + REQUESTS)
    assert device.solo_us == pytest.approx(420.0)
    assert isinstance(device.run(Arrived(device.now, "critical", 999))[0], Refuse)
    device.now += SOON_US
    device.ask(200.0, 1 + REQUESTS)
    assert device.solo_us == pytest.approx(200.0)
    # a second one that would wait is refused as ever
    device = Device(replace(TASK, deadline_us=400.0), NORMAL)
    device.ask(226.0, 4)
    assert device.looks
    device.run.leave(device.now)
    device.run(Arrived(device.now, "critical", 998))
    assert isinstance(device.run(Arrived(device.now, "critical", 999))[0], Refuse)


def test_a_look_ends_where_no_more_requests_come_and_goes_on_later() -> None:
    """At one request in a second a look gets one or two."""
    device = Device(TASK, NORMAL)
    device.ask(226.0, 4)
    device.run.leave(device.now)
    assert device.looks
    told = device.run(Tick(device.now + MOST_US))
    assert not device.looks
    assert any(isinstance(a, Enqueue) for a in told)
    found = list[Action]()
    for _ in range(60):
        found += device.ask(226.0, wait_us=1e6)
        device.run(Tick(device.now + 0.99e6))
    assert found == [Recalibrated("critical", 200.0, pytest.approx(226.0))]
    assert device.run.state.normal


def test_what_another_time_alone_does_not_explain_is_believed_the_next_time() -> None:
    baseline = Baseline()
    for doubt, believed in ((1.2, False), (1.3, True)):
        probe = with_probe(baseline, 0.0, doubt)
        for _ in range(REQUESTS):
            probe = with_answer(probe, 226.0, shared=False, now=0.0)
        found, task = probed(probe, TASK, 1e3)
        assert task.solo_us == pytest.approx(226.0)
        assert found.believed == believed


def test_times_that_differ_little_are_the_same() -> None:
    probe = with_probe(Baseline(), 0.0)
    for _ in range(REQUESTS):
        probe = with_answer(probe, 200.0 * (1 + 0.9 * DIFFERENT), shared=False, now=0.0)
    found, task = probed(probe, TASK, 1e3)
    assert task is TASK
    assert found.due == 1e3 + AGAIN_US


def test_a_task_that_goes_takes_its_look_along() -> None:
    device = Device(TASK, NORMAL)
    device.ask(226.0, 4)
    device.run.leave(device.now)
    assert device.looks
    told = device.run(Gone(device.now, "critical"))
    assert device.run.state.critical == ()
    assert any(isinstance(a, Enqueue) for a in told)


def test_other_policies_do_not_probe() -> None:
    run = Run("priority", TASK, NORMAL)
    run(Arrived(0, "normal", 0))
    for number in range(1, 40):
        run(Arrived(3e7 * number, "critical", number))
        run(Finished(3e7 * number, number, 900.0))
    assert not run.state.critical[0].baseline.probing


GPU = Gpu(4)
KERNELS = (KernelCost(4, 256, 20, 1, 0.5),) * 4
TILES = (KernelCost(24, 256, 30, 1, 0.3), KernelCost(40, 128, 50, 1, 0.4))


@cache
def measured() -> tuple[Phase, ...]:
    return tuple(phases(GPU, KERNELS, TILES, levels(GPU, TILES, 2)))


def outcome(slowed: Callable[[float], float], bound: float = 1.25) -> Outcome:
    task = Critical("critical", measured(), KERNELS, bound)
    return simulate(
        Scheduler(policy_named("tilewright"), GPU),
        [(task, Poisson(2000)), (Normal("normal", TILES), ClosedLoop())],
        0.3,
        slowed=slowed,
    )


def test_in_the_simulator_a_slower_clock_costs_what_it_must() -> None:
    """At three quarters of the clock normal work goes on, and the bound is kept over the new time
    alone."""
    full = outcome(lambda now: 1.0)
    slower = outcome(lambda now: 1.0 if now < 6e4 else 4 / 3)
    assert not full.recalibrated
    ((when, found),) = slower.recalibrated
    assert found.now_us / found.was_us == pytest.approx(4 / 3, rel=0.02)
    assert not slower.noticed
    solo = sum(phase.solo_us for phase in measured())
    took = [served.took_us / solo for served in slower.served]
    assert above(took[when:], 1.25) > 0.01
    assert above([each / (4 / 3) for each in took[when:]], 1.25) <= 0.01
    # less time is left, and all takes longer
    assert 0.6 < slower.inferences["normal"] / full.inferences["normal"] < 0.9


def test_clients_of_a_broker_hear_of_it(served: Served) -> None:
    with RemoteCoordinator(served.path) as remote:
        critical, _ = after_a_look(remote, TASK, 226.0, 226.0)
        found = critical.next()
        assert isinstance(found, Recalibrated)
        assert (found.was_us, found.now_us) == (200.0, pytest.approx(226.0))
