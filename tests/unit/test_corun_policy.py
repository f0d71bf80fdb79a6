"""The policy that shares a GPU: pure functions, so events are all that a test needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import log

import pytest
from helpers.policy_run import CRITICAL, FLAT, KERNEL, NORMAL, STEEP, Run, begin
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.policies import POLICIES
from tilewright.base.budget import UNLIMITED
from tilewright.base.errors import AdmissionRefused, UsageError
from tilewright.elastic.policy import (
    Allow,
    Arrived,
    Begin,
    Curve,
    Ended,
    Enqueue,
    Event,
    Finished,
    Gone,
    KernelCost,
    Normal,
    Overdue,
    Phase,
    Proceed,
    Reached,
    Refuse,
    Tick,
    policy_named,
)
from tilewright.elastic.policy.budgets import (
    MOST_MARGIN,
    OVER,
    STEP,
    budgets,
    budgets_for,
    next_margin,
    predicted,
)


def test_idle_time_goes_to_normal_tasks_at_once() -> None:
    run = Run("tilewright", CRITICAL, NORMAL)
    assert run(Arrived(0, "normal", 0)) == [
        Enqueue("normal", 0, UNLIMITED, begins=True), Enqueue("normal", 1, UNLIMITED)
    ]  # fmt: skip
    assert run(Ended(1, "normal", 1)) == [Enqueue("normal", 2, UNLIMITED)]


def test_normal_launches_are_held_back_where_the_budget_is_0() -> None:
    task = replace(CRITICAL, phases=(Phase(1, 100.0, STEEP),))
    run = Run("tilewright", task, NORMAL)
    run(Arrived(0, "normal", 0))
    assert run(Arrived(1, "critical", 7)) == [begin(7, (0,))]
    # both launches leave; nothing is launched before the answer
    assert run(Ended(2, "normal", 0)) == run(Ended(3, "normal", 0)) == []
    assert [a.kernel for a in run(Finished(4, 7, 100.0)) if isinstance(a, Enqueue)] == [0, 1]


def test_normal_work_goes_on_within_the_budget() -> None:
    run = Run("tilewright", CRITICAL, NORMAL)
    assert run(Arrived(0, "critical", 1)) == [begin(1, (0, 4))]
    first = Enqueue("normal", 0, 4, begins=True)
    assert run(Arrived(1, "normal", 2)) == [first, Enqueue("normal", 1, 4)]


def test_a_kernel_that_was_left_is_launched_before_the_one_behind_it() -> None:
    run = Run("tilewright", CRITICAL, NORMAL)
    run(Arrived(0, "normal", 0))
    # the first was left; the second, in flight, will find that its turn has not come
    assert run(Ended(1, "normal", 0)) == [Enqueue("normal", 0, UNLIMITED)]
    assert run(Ended(2, "normal", 0)) == [Enqueue("normal", 1, UNLIMITED)]


def test_earliest_deadline_first_within_a_priority() -> None:
    soon, late, urgent = (
        replace(CRITICAL, name=name, deadline_us=deadline, priority=priority)
        for name, deadline, priority in (("soon", 900.0, 0), ("late", 5e3, 0), ("urgent", 9e3, 1))
    )
    run = Run("tilewright", soon, late, urgent)
    for number, task in enumerate(("late", "late", "soon", "urgent")):
        run(Arrived(number, task, number))
    for number in (0, 3, 2, 1):
        assert run.state.running is not None
        assert run.state.running.request.number == number
        run(Finished(10, number, 1.0))


def test_a_request_that_would_miss_or_make_another_miss_is_refused() -> None:
    soon = replace(CRITICAL, name="soon", deadline_us=500.0)
    late = replace(CRITICAL, name="late", deadline_us=600.0)
    run = Run("tilewright", soon, late)
    run(Arrived(0, "soon", 0))
    run(Arrived(0, "late", 1))
    (refusal,) = run(Arrived(1, "soon", 2))
    assert isinstance(refusal, Refuse)
    assert isinstance(refusal.error, AdmissionRefused)
    assert refusal.error.facts["late_us"] > 0
    assert [r.number for r in run.state.waiting] == [1]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"max_slowdown": 1.2, "phases": (Phase(1, 9.0, Curve(((0, 1.3),))),)}, "cannot be kept"),
        ({"deadline_us": 205.0}, "deadline"),
        ({"rate_hz": 6000.0}, "more time than there is"),
    ],
)
def test_a_task_whose_bound_cannot_be_kept_is_refused(
    changed: dict[str, object], words: str
) -> None:
    with pytest.raises(AdmissionRefused, match=words):
        Run("tilewright", replace(CRITICAL, **changed))  # type: ignore[arg-type]


def test_names_of_tasks_are_their_own() -> None:
    with pytest.raises(AdmissionRefused, match="already"):
        Run("tilewright", CRITICAL, replace(NORMAL, name="critical"))


def test_a_lease_ends() -> None:
    steep = replace(CRITICAL, phases=(Phase(1, 100.0, STEEP),), lease_us=1000.0)
    run = Run("tilewright", steep, NORMAL)
    run(Arrived(0, "normal", 0))
    run(Arrived(0, "critical", 1))
    run(Ended(1, "normal", 0))
    run(Ended(1, "normal", 0))
    assert not any(isinstance(a, Overdue) for a in run(Tick(999)))
    after = run(Tick(1001))
    assert after[:2] == [Overdue(1, "critical"), Allow(UNLIMITED)]
    assert isinstance(after[2], Enqueue)
    # the next request may run; the late answer changes nothing
    assert isinstance(run(Arrived(1002, "critical", 2))[0], Begin)
    run(Finished(1003, 1, 1003.0))
    assert run.state.running is not None
    assert run.state.running.request.number == 2


def test_a_clock_that_jumps_ends_no_lease() -> None:
    run = Run("tilewright", replace(CRITICAL, lease_us=500_000.0))
    run(Arrived(0, "critical", 1))
    assert run(Tick(1e12)) == []
    assert run(Tick(5.0)) == []
    assert run.state.now == 1e12


def test_a_client_that_dies_frees_what_it_held() -> None:
    run = Run("tilewright", CRITICAL, replace(CRITICAL, name="other"), NORMAL)
    run(Arrived(0, "critical", 1))
    run(Arrived(0, "critical", 2))
    run(Arrived(0, "other", 3))
    run(Arrived(0, "normal", 4))
    actions = run(Gone(1, "critical"))
    assert actions[0] == Allow(UNLIMITED)
    assert isinstance(actions[1], Begin)
    assert actions[1].request == 3
    run(Gone(2, "normal"))
    assert run(Ended(3, "normal", 1)) == []
    assert run(Finished(4, 2, 1.0)) == []


def test_higher_normal_priority_goes_first() -> None:
    run = Run("tilewright", NORMAL, replace(NORMAL, name="better", priority=1))
    run(Arrived(0, "better", 0))
    assert run(Arrived(0, "normal", 1)) == []
    for complete in (1, 2):
        assert {a.task for a in run(Ended(1, "better", complete)) if isinstance(a, Enqueue)} <= {
            "better"
        }
    assert [a.task for a in run(Ended(1, "better", 3)) if isinstance(a, Enqueue)] == ["normal"] * 2


def test_sequential_takes_turns() -> None:
    run = Run("sequential", CRITICAL, NORMAL)
    run(Arrived(0, "normal", 0))
    run(Arrived(0, "normal", 1))
    assert run(Arrived(0, "critical", 2)) == []
    for complete in (1, 2):
        assert not any(isinstance(a, Begin) for a in run(Ended(1, "normal", complete)))
    assert isinstance(run(Ended(1, "normal", 3))[0], Begin)
    assert [type(a) for a in run(Finished(2, 2, 1.0))] == [Enqueue, Enqueue]


def test_sequential_keeps_the_turn_when_tasks_come_and_go() -> None:
    run = Run("sequential", NORMAL)
    run(Arrived(0, "normal", 0))
    # in the middle of the inference
    run.state = run.scheduler.with_task(run.state, CRITICAL)
    run.state = run.scheduler.with_task(run.state, replace(CRITICAL, name="other"))
    run(Arrived(0, "critical", 1))
    assert run(Ended(1, "normal", 1)) == [Enqueue("normal", 2, UNLIMITED)]
    run(Gone(1, "other"))
    run(Ended(2, "normal", 2))
    assert isinstance(run(Ended(3, "normal", 3))[0], Begin)
    run(Gone(4, "normal"))
    assert run(Finished(5, 1, 1.0)) == []
    assert isinstance(run(Arrived(6, "critical", 2))[0], Begin)


def test_sequential_goes_on_when_another_task_leaves() -> None:
    run = Run("sequential", CRITICAL, NORMAL)
    run(Arrived(0, "normal", 0))
    run(Gone(0, "of nobody"))
    assert run(Ended(1, "normal", 1)) == [Enqueue("normal", 2, UNLIMITED)]


@pytest.mark.parametrize(
    "change",
    [
        lambda: replace(KERNEL, threads=0),
        lambda: replace(KERNEL, tiles=0),
        lambda: replace(KERNEL, tile_us=float("nan")),
        lambda: replace(KERNEL, chunk_us=0.0),
        lambda: replace(KERNEL, memory=float("inf")),
        lambda: Phase(0, 1.0),
        lambda: Phase(1, 0.0),
        lambda: Curve(((0, 1.0), (4, float("nan")))),
        lambda: Curve(tuple((n, 1.0) for n in range(100))),
        lambda: replace(CRITICAL, phases=()),
        lambda: replace(CRITICAL, phases=(Phase(1, 1.0),) * 65),
        lambda: replace(CRITICAL, max_slowdown=float("inf")),
        lambda: replace(CRITICAL, deadline_us=float("nan")),
        lambda: replace(CRITICAL, lease_us=-1.0),
    ],
)
def test_numbers_that_no_model_has_are_refused(change: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        change()


def test_barriers_hold_the_next_critical_kernel_until_normal_ones_end() -> None:
    run = Run("barriers", CRITICAL, NORMAL)
    assert run(Arrived(0, "critical", 1)) == [
        Begin(1, "critical", (UNLIMITED,) * 2, 0.0, 1),
        Proceed(1, 0),
    ]
    assert run(Arrived(0, "normal", 2)) == [Enqueue("normal", 0, UNLIMITED, begins=True)]
    assert run(Reached(1, 1, 1)) == []
    assert run(Ended(2, "normal", 1)) == [Proceed(1, 1), Enqueue("normal", 1, UNLIMITED)]


def test_a_kernel_that_does_not_fit_waits_for_the_boundary() -> None:
    small = KernelCost(4, 256, 1.0, 1.0, compute=0.1, memory=0.5)
    run = Run("boundary", CRITICAL, Normal("large", (KERNEL,)), Normal("small", (small,)))
    run(Arrived(0, "critical", 1))
    assert run(Arrived(0, "large", 2)) == []
    assert run(Arrived(0, "small", 3)) == [Enqueue("small", 0, UNLIMITED, begins=True)]


def test_policies_by_name() -> None:
    with pytest.raises(UsageError, match="Choose one of tilewright"):
        policy_named("fifo")


def test_a_curve_begins_at_0_and_rises() -> None:
    assert Curve(((0, 1.0), (4, 1.5), (8, 1.4))).levels == ((0, 1.0), (4, 1.5), (8, 1.5))
    assert STEEP.at(2) == 1.25
    assert STEEP.at(100) == 2.0
    for points in ((), ((1, 1.0),), ((0, 1.0), (0, 1.1))):
        with pytest.raises(UsageError):
            Curve(points)


curves = st.lists(st.floats(1.0, 4.0), min_size=1, max_size=5).map(
    lambda ups: Curve(tuple((4 * n, up) for n, up in enumerate(ups)))
)
phases = st.lists(
    st.builds(Phase, st.just(1), st.floats(1.0, 1000.0), curves), min_size=1, max_size=4
).map(tuple)


@given(phases, st.floats(1.0, 3.0))
@settings(max_examples=200, deadline=None)
def test_the_predicted_slowdown_stays_under_the_bound(
    found: tuple[Phase, ...], bound: float
) -> None:
    chosen = budgets(found, bound)
    chosen_levels = [
        [w for w, _ in phase.curve.levels].index(budget)
        for phase, budget in zip(found, chosen, strict=True)
    ]
    least = predicted(found, [0] * len(found))
    assert predicted(found, chosen_levels) <= max(bound, least) + 1e-9
    # one phase: no other level would give more
    if len(found) == 1:
        fits = [s * w for w, s in found[0].curve.levels if s <= bound + 1e-12]
        (budget,) = chosen
        assert found[0].curve.at(budget) * budget >= max(fits, default=0) - 1e-6


def test_budgets_of_two_phases_are_near_the_best_of_all() -> None:
    found = (Phase(1, 60.0, STEEP), Phase(1, 40.0, FLAT))
    for bound in (1.0, 1.05, 1.2, 1.5, 2.0):
        room = [
            (levels, predicted(found, levels))
            for levels in product(range(3), repeat=2)
            if predicted(found, levels) <= bound
        ]
        gains = [
            sum(p.solo_us * p.curve.levels[n][1] * p.curve.levels[n][0]
                for p, n in zip(found, levels, strict=True))
            for levels, _ in room
        ]  # fmt: skip
        chosen = budgets(found, bound)
        gain = sum(p.solo_us * p.curve.at(b) * b for p, b in zip(found, chosen, strict=True))
        assert gain >= 0.7 * max(gains)


@given(st.lists(st.booleans(), max_size=2000))
@settings(max_examples=100, deadline=None)
def test_whatever_happens_few_requests_exceed_their_bound(overs: list[bool]) -> None:
    """Those at the largest margin are not counted: nobody runs beside them then."""
    margin, exceeded = 1.0, 0
    for over in overs:
        exceeded += over and margin < MOST_MARGIN
        margin = next_margin(margin, over)
    assert exceeded <= OVER * len(overs) + log(MOST_MARGIN) / STEP + 1


def test_a_larger_margin_never_allows_more() -> None:
    wide = replace(CRITICAL, max_slowdown=1.6)
    sums = [sum(budgets_for(wide, margin)) for margin in (1.0, 2.0, 5.0, 50.0, MOST_MARGIN)]
    assert sums == sorted(sums, reverse=True)
    assert sums[0] > sums[-1] == 0


names = st.sampled_from(["critical", "normal", "nobody"])
events = st.one_of(
    st.builds(Arrived, st.floats(0, 1e6), names, st.integers(0, 9)),
    st.builds(Reached, st.floats(0, 1e6), st.integers(0, 9), st.integers(0, 1)),
    st.builds(Finished, st.floats(0, 1e6), st.integers(0, 9), st.floats(0, 1e4)),
    st.builds(Ended, st.floats(0, 1e6), names, st.integers(0, 3)),
    st.builds(Tick, st.floats(0, 1e6)),
)


@given(st.sampled_from(sorted(POLICIES)), st.lists(events, max_size=60))
@settings(max_examples=150, deadline=None)
def test_no_order_of_events_confuses_it(name: str, given_events: list[Event]) -> None:
    """One critical request at a time; launches in flight are few; nothing is run that nobody
    asked for, and nothing from its begin that was begun in the form that is left in part."""
    run, left = Run(name, CRITICAL, NORMAL), set[int]()
    asked = {e.request for e in given_events if isinstance(e, Arrived)}
    for event in given_events:
        before = run.state.running
        if isinstance(event, Ended) and event.complete >= len(NORMAL.kernels):
            left.clear()
        for action in run(event):
            if isinstance(action, Begin):
                assert action.request in asked
                assert before is None or run.state.running is not before
            if isinstance(action, Enqueue):
                assert action.workers > 0
                assert 0 <= action.kernel < len(NORMAL.kernels)
                assert not (action.plain and action.kernel in left)
                left |= set() if action.plain else {action.kernel}
        for progress in run.state.normal:
            assert len(progress.flying) <= run.scheduler.ahead
            assert progress.backlog >= 0
            assert 0 <= progress.complete < len(NORMAL.kernels)
