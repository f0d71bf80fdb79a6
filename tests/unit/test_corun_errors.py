"""An error belongs to the agent whose action failed: no other agent is told of it, or stops for it.

Coordinators with lists instead of devices, and a broker in this process.  Nothing here is timed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.waiting import PATIENCE, until
from test_corun_agents import COST, Pair
from test_corun_agents import bundles as bundles
from test_corun_agents import pair as pair
from test_corun_broker import CRITICAL, NORMAL, Served, Told
from test_corun_broker import served as served

from tilewright.base.errors import AdmissionRefused, HostError, InputError, TilewrightError
from tilewright.elastic.agents import CriticalAgent, RequestTimes
from tilewright.elastic.broker import RemoteCoordinator
from tilewright.elastic.broker.messages import decoded, encoded, refused
from tilewright.elastic.coordination import now_us
from tilewright.elastic.coordinator import Coordinator
from tilewright.elastic.critical import critical_task
from tilewright.elastic.load_generator import CriticalLoad, NormalLoad
from tilewright.elastic.policy import (
    Action,
    Arrived,
    Begin,
    Ended,
    Enqueue,
    Event,
    Finished,
    Gone,
    Gpu,
    Normal,
    Phase,
    Reached,
    Refuse,
    Scheduler,
    Withdraw,
    policy_named,
)

SCHEDULER = Scheduler(policy_named("tilewright"), Gpu(2))


def broken(_: object) -> None:
    raise HostError("this one is broken", hint="Report this")


class Several:
    """Two critical tasks and a normal one, with what each was told.

    sinks: instead of these lists;  allow, recount: of the coordinator
    """

    def __init__(
        self,
        allow: Callable[[int], None] = lambda _: None,
        recount: Callable[[], None] = lambda: None,
        **sinks: Callable[[Action], None],
    ) -> None:
        self.told = {name: Told() for name in ("one", "two", "normal")}
        self.coordinator = Coordinator(SCHEDULER, allow, recount)
        for name in ("one", "two"):
            task = critical_task(name, (Phase(2, 10.0),), lease_ms=6e4)
            self.coordinator.join(task, sinks.get(name, self.told[name].append))
        normal = Normal("normal", (COST,))
        self.coordinator.join(normal, sinks.get("normal", self.told["normal"].append))

    def arrive(self, task: str, number: int) -> None:
        self.coordinator.post(Arrived(now_us(), task, number))

    def answer(self, number: int) -> None:
        self.coordinator.post(Finished(now_us(), number, 1.0))

    def answered(self, task: str, number: int) -> None:
        """A whole request that nothing disturbs."""
        self.arrive(task, number)
        assert isinstance(self.told[task].pop(), Begin)
        self.answer(number)


@pytest.fixture
def failing_policy(monkeypatch: pytest.MonkeyPatch) -> set[tuple[type, object]]:
    """Kinds of events and their tasks or requests at which the policy fails."""
    fails, step = set[tuple[type, object]](), Scheduler.step

    def patched(self: Scheduler, state: Any, event: Event) -> Any:
        of = getattr(event, "task", getattr(event, "request", None))
        if (type(event), of) in fails:
            raise ZeroDivisionError("the policy fails")
        return step(self, state, event)

    monkeypatch.setattr(Scheduler, "step", patched)
    return fails


def test_a_sink_that_fails_is_told_to_its_own_task() -> None:
    several = Several(normal=broken)
    with pytest.raises(HostError, match="this one"):
        several.arrive("normal", 0)
    several.answered("one", 1)  # though a normal launch that follows from the answer fails
    with pytest.raises(HostError, match="this one"):
        several.coordinator.post(Ended(now_us(), "normal", 0))
    several.coordinator.close()


def test_a_budget_that_cannot_be_set_for_an_overdue_request_is_told_to_its_task() -> None:
    several = Several(allow=broken)
    several.arrive("one", 1)
    until(lambda: several.coordinator.state.running)
    for _ in range(1000):  # a clock that jumps counts in steps
        several.coordinator.post(Ended(several.coordinator.state.now + 1e6, "normal", 0))
    until(lambda: several.coordinator.state.overdue)  # by a tick of the watchdog
    several.answered("two", 2)
    several.arrive("normal", 3)
    several.answer(1)
    assert several.coordinator.begin_immediately("one", 4) is None
    with pytest.raises(HostError, match="this one"):
        several.arrive("one", 4)
    several.answer(4)
    several.told["one"].clear()
    several.answered("one", 5)
    several.coordinator.close()


def test_what_fails_for_no_task_is_told_by_check_and_at_the_end() -> None:
    several = Several(allow=broken)
    several.arrive("one", 1)
    several.coordinator.post(Gone(now_us(), "one"))  # with the budget that its request held
    several.answered("two", 2)
    several.arrive("normal", 3)
    with pytest.raises(HostError, match="this one"):
        several.coordinator.check()
    several.coordinator.check()
    several.coordinator.close()
    again = Several(recount=lambda: broken(None))
    again.arrive("normal", 0)
    again.coordinator.post(Gone(now_us(), "normal", died=True))
    recounts = again.coordinator.state.recount
    assert recounts is not None
    again.coordinator.post(Ended(recounts, "normal", 0))
    again.answered("one", 1)
    with pytest.raises(HostError, match="this one"):
        again.coordinator.close()


def test_the_end_of_a_coordinator_hides_no_other_error() -> None:
    several = Several(allow=broken)
    several.arrive("one", 1)
    several.coordinator.post(Gone(now_us(), "one"))
    with pytest.raises(InputError, match="mine"), several.coordinator:
        raise InputError("mine", hint="None")


def test_a_policy_that_fails_is_told_to_the_task_of_the_event(
    failing_policy: set[tuple[type, object]],
) -> None:
    several = Several()
    failing_policy |= {(Arrived, "one"), (Finished, 2)}
    with pytest.raises(ZeroDivisionError):
        several.arrive("one", 1)
    several.answer(1)
    several.answered("two", 2)  # it has its answer
    failing_policy.clear()
    several.answer(2)
    several.arrive("normal", 3)
    with pytest.raises(ZeroDivisionError):
        several.arrive("two", 4)
    several.coordinator.close()


@pytest.mark.parametrize("cause", ["policy", "earlier", "sink"])
def test_an_arrival_that_waits_for_another_request_is_refused_with_its_own_error(
    failing_policy: set[tuple[type, object]], cause: str
) -> None:
    """The request that began first is answered, and nobody waits for ever."""
    heard, fails = list[Action](), cause != "policy"

    def sink(action: Action) -> None:
        heard.append(action)
        if fails and isinstance(action, Begin):
            broken(action)

    several = Several(two=sink)
    if cause == "earlier":  # its turn came with the answer of another one
        several.arrive("one", 5)
        several.arrive("two", 6)
        several.answer(5)
        several.answer(6)
        fails = False
        heard.clear()
    assert several.coordinator.begin_immediately("one", 1) is not None
    several.arrive("two", 2)
    if cause == "policy":
        failing_policy.add((Arrived, "two"))
    several.arrive("one", 1)
    several.answer(1)
    if cause == "sink":  # its turn comes with the answer of the other one
        with pytest.raises(HostError, match="this one"):
            several.arrive("two", 3)
    else:
        (refusal,) = heard
        assert isinstance(refusal, Refuse)
        assert refusal.request == 2
        assert isinstance(refusal.error, HostError)
    failing_policy.clear()
    several.answer(2)
    several.answer(3)
    several.answered("one", 4)
    several.coordinator.close()


def test_an_action_of_another_kind_is_an_error_of_the_agent_that_hears_it(pair: Pair) -> None:
    sinks = pair.coordinator.sinks
    with pytest.raises(HostError, match="Enqueue is not an action for critical"):
        sinks["critical"](Enqueue("critical", 0, 1))
    with pytest.raises(HostError, match="Begin is not an action for normal"):
        sinks["normal"](Begin(1, "normal", (0,)))
    assert pair.agent.request().took_us > 0
    pair.normal.ask()
    until(lambda: pair.normal.inferences)


def test_a_request_is_answered_whatever_fails_of_others(pair: Pair) -> None:
    """Requests that begin at once, and requests that wait for the policy."""
    pair.allow, pair.recount = broken, lambda: broken(None)
    pair.coordinator.join(Normal("another", (COST,)), broken)
    pair.coordinator.join(critical_task("second", (Phase(2, 1e6),)), broken)
    with pytest.raises(HostError, match="this one"):
        pair.coordinator.post(Arrived(now_us(), "another", pair.coordinator.request()))
    with pytest.raises(HostError, match="this one"):
        pair.coordinator.post(Arrived(now_us(), "second", pair.coordinator.request()))
    pair.coordinator.post(Gone(now_us(), "second"))
    pair.coordinator.post(Gone(now_us(), "another", died=True))
    for before in (None, lambda: None):
        assert pair.agent.request(before).took_us > 0
    with pytest.raises(HostError, match="this one"):
        pair.coordinator.check()


def test_a_source_of_normal_work_that_fails_is_told() -> None:
    agent: Any = SimpleNamespace(ask=lambda: broken(None))
    asking = NormalLoad(agent, [0.0, 0.0], threading.Event())
    asking.start()
    asking.join(PATIENCE)
    with pytest.raises(HostError, match="this one"):
        asking.check()


def test_requests_that_are_late_end_when_they_are_told_to() -> None:
    """However many of them are due."""
    stop = threading.Event()

    def request(arrived: float | None) -> RequestTimes:
        stop.set()
        return RequestTimes(1.0, 1.0, 1.0)

    late: Any = SimpleNamespace(clients=0, times=lambda seconds, seed: (0.0,) * 1000)
    agent: Any = SimpleNamespace(request=request)
    load = CriticalLoad(agent, late, PATIENCE, 0, stop)
    load.start()
    assert load.over.wait(PATIENCE)
    load.check()
    assert len(load.answered) == 1


@pytest.fixture
def remote(served: Served) -> Iterator[RemoteCoordinator]:
    with RemoteCoordinator(served.path) as made:
        yield made


def test_a_sink_of_a_client_that_fails_stops_no_other_task(remote: RemoteCoordinator) -> None:
    told, posted = Told(), threading.Event()

    def breaks(action: object) -> None:
        # or the post itself would tell it, if the answer came soon enough
        assert posted.wait(PATIENCE)
        broken(action)

    remote.join(NORMAL, breaks)
    remote.join(CRITICAL, told.append)
    remote.post(Arrived(now_us(), "normal", remote.request()))
    posted.set()
    number = remote.request()
    remote.post(Arrived(now_us(), "critical", number))
    assert isinstance(told.next(), Begin)
    remote.post(Finished(now_us(), number, 100.0))
    with pytest.raises(HostError, match="this one"):
        remote.post(Arrived(now_us(), "normal", remote.request()))


def test_an_error_at_the_broker_refuses_the_request_and_keeps_the_client(
    served: Served, remote: RemoteCoordinator, failing_policy: set[tuple[type, object]]
) -> None:
    told, other = Told(), Told()
    remote.join(CRITICAL, told.append)
    remote.join(NORMAL, other.append)
    failing_policy.add((Arrived, "critical"))
    number = remote.request()
    remote.post(Arrived(now_us(), "critical", number))
    refusal = told.next()
    assert isinstance(refusal, Refuse)
    assert refusal.request == number
    with pytest.raises(HostError, match="the policy fails"):
        raise refusal.error
    failing_policy.clear()
    remote.post(Finished(now_us(), number, None))
    remote.post(Arrived(now_us(), "normal", remote.request()))
    assert isinstance(other.next(), Enqueue)
    served.broker.check()


def test_a_normal_task_that_fails_at_the_broker_is_withdrawn_and_keeps_the_client(
    served: Served, remote: RemoteCoordinator, failing_policy: set[tuple[type, object]]
) -> None:
    told, other = Told(), Told()
    remote.join(CRITICAL, told.append)
    remote.join(NORMAL, other.append)
    for event in (Arrived(now_us(), "normal", remote.request()), Ended(now_us(), "normal", 0)):
        failing_policy.add((type(event), "normal"))
        remote.post(event)
        withdrawn = other.next()
        assert isinstance(withdrawn, Withdraw)
        assert "the policy fails" in withdrawn.error.message
    number = remote.request()
    remote.post(Arrived(now_us(), "critical", number))
    assert isinstance(told.next(), Begin)
    failing_policy.add((Reached, number))
    remote.post(Reached(now_us(), number, 1))
    refusal = told.next()
    assert isinstance(refusal, Refuse)
    assert "the policy fails" in refusal.error.message
    served.broker.check()


def test_a_client_is_not_cut_off_for_what_failed_of_another(served: Served) -> None:
    served.word.allow = broken
    with RemoteCoordinator(served.path) as one, RemoteCoordinator(served.path) as other:
        told, more = Told(), Told()
        one.join(CRITICAL, told.append)
        one.post(Arrived(now_us(), "critical", one.request()))
        assert isinstance(told.next(), Begin)
        other.join(NORMAL, more.append)
        one.close()
        until(lambda: not served.broker.coordinator.state.critical)
        other.post(Arrived(now_us(), "normal", other.request()))
        assert isinstance(more.next(), Enqueue)
        with pytest.raises(HostError, match="this one"):
            served.broker.check()


def test_errors_of_a_client_that_is_gone_end_with_it(
    served: Served,
    failing_policy: set[tuple[type, object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crashed, before = list[object](), threading.active_count()
    monkeypatch.setattr(threading, "excepthook", crashed.append)
    with RemoteCoordinator(served.path) as remote:
        told = Told()
        remote.join(CRITICAL, told.append)
        number = remote.request()
        remote.post(Arrived(now_us(), "critical", number))
        assert isinstance(told.next(), Begin)
        failing_policy.add((Finished, number))  # the request has its answer: nobody is told
        remote.post(Finished(now_us(), number, 100.0))
    until(lambda: threading.active_count() <= before)
    assert not served.broker.coordinator.state.critical
    assert not crashed
    served.broker.check()


@pytest.mark.parametrize("kind", [AdmissionRefused, HostError, InputError])
def test_errors_keep_their_kind_on_the_way_to_a_client(kind: type[TilewrightError]) -> None:
    error = kind("no", hint="Do not", task="critical", most=3)
    found = decoded(encoded(refused(7, error))[4:])
    assert found.error.to_json() == error.to_json()  # type: ignore[union-attr]


def test_requests_of_one_agent_are_answered_while_another_one_fails(
    bundles: tuple[Path, Path], pair: Pair
) -> None:
    """The other one gives no inputs."""
    second = CriticalAgent(
        pair.coordinator, critical_task("second", (Phase(2, 1e6),)), pair.model, False
    )
    answers, failed = list[object](), list[BaseException]()

    def fails() -> None:
        raise InputError("no input", hint="Give one")

    def asks(agent: CriticalAgent, before: Callable[[], None] | None) -> None:
        for _ in range(3):
            try:
                answers.append(agent.request(before))
            except InputError as error:
                failed.append(error)

    pair.normal.ask()
    threads = [
        threading.Thread(target=asks, args=each, daemon=True)
        for each in ((pair.agent, None), (second, fails))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert (len(answers), len(failed)) == (3, 3)
