"""Curves that promise too much: noticed, corrected, told; right ones are left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import log

import pytest
from helpers.policy_run import CRITICAL, FLAT, NORMAL, STEEP, Run
from hypothesis import given
from hypothesis import strategies as st
from test_corun_broker import Served, after_a_look, ask
from test_corun_broker import served as served

from lab.simulator import Outcome, levels, phases, simulate
from lab.workloads.metrics import above
from tilewright.base.errors import AdmissionRefused
from tilewright.elastic.arrivals import ClosedLoop, Poisson
from tilewright.elastic.broker import RemoteCoordinator
from tilewright.elastic.policy import (
    Action,
    Arrived,
    Begin,
    Critical,
    Curve,
    Ended,
    Enqueue,
    Finished,
    Gpu,
    KernelCost,
    Normal,
    Noticed,
    Phase,
    Recalibrated,
    Scheduler,
    Withdraw,
    policy_named,
)
from tilewright.elastic.policy.baseline import REQUESTS
from tilewright.elastic.policy.budgets import budgets_for
from tilewright.elastic.policy.sequential_test import (
    CLAIMED,
    ENOUGH,
    MORE,
    MOST_WATCHED,
    PROMISED,
    Evidence,
    expected,
    watched,
    with_found,
)

ONE = replace(CRITICAL, phases=(Phase(2, 200.0, FLAT),))
ALONE = replace(CRITICAL, phases=(Phase(2, 200.0, STEEP),))


def beside(task: Critical) -> Run:
    run = Run("tilewright", task, NORMAL)
    run(Arrived(0, "normal", 0))
    return run


def requests(
    run: Run, slowdowns: Callable[[int, tuple[int, ...]], float], count: int
) -> list[Action]:
    """Requests one after the other, each slowed down by its number and budgets if there is normal
    work beside it."""
    told = list[Action]()
    for number in range(1, 1 + count):
        run.leave(0)
        begin = run(Arrived(0, "critical", number))[0]
        assert isinstance(begin, Begin)
        assert run.state.running is not None
        slowdown = slowdowns(number, begin.budgets) if run.state.running.shared else 1.0
        told += run(Finished(0, number, 200.0 * slowdown))
    return told


def test_a_budget_under_which_requests_exceed_the_bound_is_not_chosen_again() -> None:
    run = beside(ONE)
    told = requests(run, lambda n, budgets: 1.2 if budgets == (4,) and n % 3 == 0 else 1.0, 1500)
    (notice,) = (a for a in told if isinstance(a, Noticed))
    assert notice.budgets == (4,)
    assert notice.predicted == pytest.approx(1.02)
    assert notice.found == pytest.approx(1.2)
    assert notice.attainable
    assert not any(isinstance(a, Withdraw) for a in told)
    assert budgets_for(run.state.critical[0].task, 1.0) == (0,)
    # who asks for a larger bound has the larger budget
    assert budgets_for(replace(run.state.critical[0].task, max_slowdown=1.25), 1.0) == (4,)


def test_where_no_budget_keeps_the_bound_normal_work_ends() -> None:
    run = beside(ALONE)
    run.state = run.scheduler.with_task(run.state, replace(NORMAL, name="other"))
    # the time alone is looked at first, and is what it was
    early = requests(run, lambda *_: 1.3, 4 + REQUESTS)
    assert not any(isinstance(a, Noticed | Withdraw | Recalibrated) for a in early)
    told = requests(run, lambda *_: 1.3, 4)
    notice, *ended = (a for a in told if isinstance(a, Noticed | Withdraw))
    assert isinstance(notice, Noticed)
    assert (notice.budgets, notice.requests, notice.over) == ((0,), 4, 4)
    assert not notice.attainable
    for action, name in zip(ended, ("normal", "other"), strict=True):
        assert isinstance(action, Withdraw)
        assert isinstance(action.error, AdmissionRefused)
        assert action.error.facts == {"task": name, "disturbs": "critical", "least": 1.3}
    assert not run.state.normal
    # nobody joins beside it, and what was in flight changes nothing
    with pytest.raises(AdmissionRefused, match=r"1\.300"):
        run.scheduler.with_task(run.state, NORMAL)
    assert run(Ended(0, "normal", 1)) == []
    assert isinstance(run(Arrived(0, "critical", 99))[0], Begin)


def test_requests_with_nothing_beside_them_tell_nothing() -> None:
    run = Run("tilewright", ALONE, NORMAL)
    assert not any(isinstance(a, Noticed) for a in requests(run, lambda *_: 1.3, 100))


def test_policies_without_a_bound_notice_nothing() -> None:
    run = Run("entry", ALONE, NORMAL)
    run(Arrived(0, "normal", 0))
    assert not any(isinstance(a, Noticed) for a in requests(run, lambda *_: 9.0, 20))


def test_only_phases_with_somebody_beside_them_are_to_blame() -> None:
    assert budgets_for(CRITICAL, 1.0) == (0, 4)
    better = with_found(CRITICAL, (0, 4), 1.3)
    first, second = better.phases
    assert first == CRITICAL.phases[0]
    assert second.curve.at(0) == 1.0
    assert second.curve.at(8) / second.curve.at(4) == pytest.approx(1.4 / 1.02)
    assert expected(better.phases, (0, 4)) == pytest.approx(1.3)
    both = with_found(CRITICAL, (0, 0), 1.3)
    assert expected(both.phases, (0, 0)) == pytest.approx(1.3)


found_phases = st.lists(
    st.tuples(st.floats(1.0, 1e3), st.lists(st.floats(1.0, 4.0), min_size=2, max_size=5)),
    min_size=1, max_size=4,
).map(lambda made: tuple(
    Phase(1, us, Curve(tuple((4 * n, s) for n, s in enumerate(ups)))) for us, ups in made
))  # fmt: skip


@given(found_phases, st.floats(1.01, 3.0), st.floats(1.001, 2.0))
def test_a_correction_says_what_was_found_and_raises_all_above_it(
    made: tuple[Phase, ...], bound: float, more: float
) -> None:
    task = Critical("critical", made, max_slowdown=bound)
    chosen = budgets_for(task, 1.0)
    found = more * max(bound, expected(made, chosen))
    better = with_found(task, chosen, found)
    assert expected(better.phases, chosen) == pytest.approx(found)
    for old, new in zip(made, better.phases, strict=True):
        for workers, slowdown in old.curve.levels:
            assert new.curve.at(workers) >= slowdown - 1e-9
    # it is chosen again only by who allows as much
    assert budgets_for(better, 1.0) != chosen or not any(chosen)


@given(st.sampled_from([(0, 0), (0, 4)]), st.lists(st.booleans(), max_size=300))
def test_evidence_is_the_largest_likelihood_ratio_of_any_end(
    budgets: tuple[int, ...], overs: list[bool]
) -> None:
    """Of the last requests, as many as make it largest, to each larger share."""
    evidence, share = Evidence(budgets), CLAIMED if any(budgets) else PROMISED
    for over in overs:
        evidence = evidence.after(2.0 if over else 1.0, over)
    for more, got in zip(MORE, evidence.logs, strict=True):
        want = total = 0.0
        for over in reversed(overs):
            other = more * share if over else 1 - more * share
            total += log(other / (share if over else 1 - share))
            want = max(want, total)
        assert got == pytest.approx(want, abs=1e-9)
    assert len(evidence.slowdowns) <= sum(overs)


def test_a_right_curve_is_not_doubted_within_the_requests_of_a_day() -> None:
    """As many exceed the bound as the curve says: one of 200, evenly or in pairs."""
    for pattern in ([*[False] * 199, True], [*[False] * 398, True, True]):
        evidence = Evidence((4,))
        for n in range(50_000):
            over = pattern[n % len(pattern)]
            evidence = evidence.after(1.1 if over else 1.0, over)
            assert not evidence.enough
    assert ENOUGH >= 1e5


def test_what_is_found_covers_as_many_as_a_curve_does() -> None:
    evidence = Evidence((4,), (1.0,) * len(MORE), 400, (1.1, 1.9, 1.3, 1.2))
    # two of 400 may exceed it
    assert evidence.found == 1.2


def test_few_choices_of_budgets_are_watched() -> None:
    every: tuple[Evidence, ...] = ()
    for n in range(2 * MOST_WATCHED):
        one, others = watched(every, (n,), 1.5, True)
        every = (*others, one)
    assert len(every) == MOST_WATCHED
    assert every[-1].budgets == (2 * MOST_WATCHED - 1,)


GPU = Gpu(4)
KERNELS = (KernelCost(4, 256, 20, 1, 0.5),) * 4
TILES = (KernelCost(24, 256, 30, 30, 0.3), KernelCost(40, 128, 50, 1, 0.4))


@cache
def measured() -> Phase:
    (found,) = phases(GPU, KERNELS, TILES, levels(GPU, TILES, 2))
    return found


def outcome(bound: float, known: float, seconds: float) -> Outcome:
    """known: how much the curve has of the slowdown beyond 1"""
    phase = measured()
    points = tuple((n, 1 + known * (slowdown - 1)) for n, slowdown in phase.curve.points)
    task = Critical("critical", (replace(phase, curve=Curve(points)),), KERNELS, bound)
    return simulate(
        Scheduler(policy_named("tilewright"), GPU),
        [(task, Poisson(3000)), (Normal("normal", TILES), ClosedLoop())],
        seconds,
    )


def test_halved_curves_break_no_bound_once_they_were_noticed() -> None:
    """With a budget of 0 some requests wait for tiles of 30 us, which a halved curve hides."""
    bound = 1.3
    found = outcome(bound, 0.5, 0.25)
    ((when, notice),) = found.noticed
    assert not notice.attainable
    assert notice.found > bound
    took = [s.took_us / measured().solo_us for s in found.served]
    assert above(took[:when], bound) > 0.01
    assert len(took) > when + 100
    assert above(took[when:], bound) == 0
    with pytest.raises(AdmissionRefused):
        outcome(bound, 1.0, 0.01)


@pytest.mark.seldom(4)
def test_nothing_is_noticed_of_right_curves() -> None:
    assert not outcome(1.6, 1.0, 0.1).noticed


def test_clients_of_a_broker_hear_of_it(served: Served) -> None:
    with RemoteCoordinator(served.path) as remote:
        critical, normal = after_a_look(remote, ALONE, 260.0, 200.0)
        ask(remote, critical, 4, 260.0)
        notice = critical.next()
        assert isinstance(notice, Noticed)
        assert notice.found == 1.3
        while not isinstance(action := normal.next(), Withdraw):
            assert isinstance(action, Enqueue)
        assert isinstance(action.error, AdmissionRefused)
        assert action.error.facts["disturbs"] == "critical"
