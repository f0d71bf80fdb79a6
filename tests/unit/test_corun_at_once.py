"""Critical requests that begin before they are decided, whose turn it is, and what is counted.

On the CPU device; nothing here is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.waiting import PATIENCE, a_while
from test_corun_agents import COST, Pair, task
from test_corun_agents import bundles as bundles
from test_corun_agents import pair as pair

from lab.policies import POLICIES
from tilewright.base.budget import UNLIMITED
from tilewright.base.errors import HostError
from tilewright.elastic.coordination import now_us
from tilewright.elastic.coordinator import Coordinator
from tilewright.elastic.critical import critical_task
from tilewright.elastic.interpreter_priority import LAST_US, InterpreterPriority
from tilewright.elastic.policy import (
    Action,
    Arrived,
    Begin,
    Curve,
    Event,
    Finished,
    Gpu,
    Normal,
    Phase,
    Scheduler,
    SchedulerState,
    policy_named,
)
from tilewright.elastic.policy.policies import SETTLE_US


class Counted:
    """A mark that is passed at the third look."""

    def __init__(self, interpreter: InterpreterPriority) -> None:
        self.looks: list[bool] = []
        self._interpreter = interpreter

    def passed(self) -> bool:
        self.looks.append(self._interpreter.entered)
        return len(self.looks) >= 3

    def wait(self) -> None: ...


@pytest.mark.seldom(4)
@pytest.mark.parametrize(
    ("curve", "solo_us", "turns"),
    [
        pytest.param(((0, 1.0), (4, 3.0)), 1e6, 2, id="nobody may stay"),
        pytest.param(((0, 1.0), (4, 1.0)), 1e6, 2, id="some may stay"),
        pytest.param(((0, 1.0), (4, 1.0)), LAST_US / 2, 0, id="it ends soon"),
    ],
)
def test_others_have_turns_in_a_request_until_it_ends_soon(
    bundles: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch,
    curve: tuple[tuple[int, float], ...], solo_us: float, turns: int,
) -> None:  # fmt: skip
    pair = Pair(bundles, critical_task("critical", (Phase(2, solo_us, Curve(curve)),)))
    given = list[bool]()
    try:
        mark = Counted(pair.coordinator.interpreter)
        monkeypatch.setattr(pair.model, "start", lambda *_: mark)
        let_go = "let_one_go_on"
        monkeypatch.setattr(InterpreterPriority, let_go, lambda _, starts: given.append(starts))
        pair.agent.request()
        assert mark.looks == [True] * 3
        assert len(given) == turns
        # kernels are started in these only if somebody may stay
        assert set(given) <= {pair.agent.task.max_slowdown > curve[-1][1]}
    finally:
        pair.close()


def test_a_request_that_begins_at_once_is_followed_by_those_that_came_meanwhile() -> None:
    told: list[Action] = []
    both = (critical_task("one", (Phase(2, 10.0),)), critical_task("two", (Phase(2, 10.0),)))
    with Coordinator(Scheduler(policy_named("tilewright"), Gpu(2)), lambda _: None) as coordinator:
        for each in both:
            coordinator.join(each, told.append)
        begin = coordinator.begin_immediately("one", 1)
        assert begin == Begin(1, "one", (0,), SETTLE_US, 0)
        # one at a time
        assert coordinator.begin_immediately("two", 2) is None
        coordinator.post(Arrived(now_us(), "two", 2))
        assert not told
        coordinator.post(Arrived(now_us(), "one", 1))
        assert told == [begin]
        coordinator.post(Finished(now_us(), 1, 1.0))
        assert [action.request for action in told if isinstance(action, Begin)] == [1, 2]
        assert coordinator.begin_immediately("one", 3) is None
        coordinator.post(Finished(now_us(), 2, 1.0))
        # one that comes to nothing
        assert coordinator.begin_immediately("one", 4) is not None
        coordinator.post(Arrived(now_us(), "two", 5))
        coordinator.post(Finished(now_us(), 4, 0.0))
        assert told[-1] == Begin(5, "two", (0,), SETTLE_US, 0)


def test_a_request_that_is_given_up_before_its_turn_does_not_come_later() -> None:
    told: list[Action] = []
    both = (critical_task("one", (Phase(2, 10.0),)), critical_task("two", (Phase(2, 10.0),)))
    with Coordinator(Scheduler(policy_named("tilewright"), Gpu(2)), lambda _: None) as coordinator:
        for each in both:
            coordinator.join(each, told.append)
        assert coordinator.begin_immediately("one", 1) is not None
        coordinator.post(Arrived(now_us(), "two", 2))
        coordinator.post(Finished(now_us(), 2, 0.0))
        coordinator.post(Arrived(now_us(), "one", 1))
        coordinator.post(Finished(now_us(), 1, 1.0))
        assert coordinator.state.running is None
        assert not coordinator.state.waiting


def test_an_error_of_its_own_task_ends_a_request_after_its_kernels(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = Counted(pair.coordinator.interpreter)
    post = pair.coordinator.post

    def fails(event: Event) -> None:
        post(event)
        if isinstance(event, Arrived):
            raise HostError("its own sink failed", hint="Look there")

    with monkeypatch.context() as patched:
        patched.setattr(pair.model, "start", lambda *_: mark)
        patched.setattr(pair.coordinator, "post", fails)
        with pytest.raises(HostError, match="its own"):
            pair.agent.request()
        assert len(mark.looks) == 3
    assert pair.agent.request().took_us > 0


def test_each_inference_is_counted_once_however_late_the_host_looks(pair: Pair) -> None:
    """On this device both launches have ended before the first one is looked at."""
    pair.after = lambda count: None
    begun: list[None] = []
    begin = pair.plan.begin
    pair.plan.begin = lambda: begun.append(None) or begin()  # type: ignore[method-assign, func-returns-value]
    asked = 0
    for more in (1, 3, 2):
        asked += more
        pair.normal.ask(more)
        while pair.normal.inferences < asked:
            pair.normal.check()
        a_while()
        assert pair.normal.inferences == len(begun) == asked


class Until:
    """A mark that is passed once something is so, or after minutes."""

    def __init__(self, so: Callable[[], bool]) -> None:
        self._so, self._last = so, time.monotonic() + PATIENCE

    def passed(self) -> bool:
        return self._so() or time.monotonic() > self._last

    def wait(self) -> None: ...


def test_normal_work_goes_on_beside_a_long_request_that_everybody_may_stay_beside(
    bundles: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = Phase(2, 5e3, Curve(((0, 1.0), (UNLIMITED, 1.01))))
    pair = Pair(bundles, critical_task("critical", (free,), lease_ms=9e6))
    try:
        pair.normal.ask(50)
        enough = pair.normal.inferences + 3
        mark = Until(lambda: pair.normal.inferences >= enough)
        monkeypatch.setattr(pair.model, "start", lambda *_: mark)
        pair.agent.request()
        assert pair.normal.inferences >= enough
    finally:
        pair.close()


def test_what_begins_at_once_is_what_the_event_leads_to() -> None:
    for each_policy in POLICIES.values():
        scheduler, state = Scheduler(each_policy, Gpu(2)), SchedulerState()
        for each in (task(max_slowdown=1.5), Normal("normal", (COST,))):
            state = scheduler.with_task(state, each)
        begin = scheduler.begin_immediately(state, "critical", 3)
        _, actions = scheduler.step(state, Arrived(0, "critical", 3))
        assert begin in (None, *actions)
        assert begin is not None or each_policy.exclusive or each_policy.by_kernels
    late = scheduler.with_task(SchedulerState(), task(deadline_ms=1e6))
    assert scheduler.begin_immediately(late, "critical", 3) is None
