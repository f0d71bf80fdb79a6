"""How many normal models run at once, and whose turn it is, with launches that end in any order."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import replace

import pytest
from helpers.policy_run import GPU, KERNEL

from tilewright.base.budget import UNLIMITED
from tilewright.elastic.policy import (
    Action,
    Arrived,
    Begin,
    Critical,
    Curve,
    Ended,
    Enqueue,
    Event,
    Finished,
    Normal,
    Phase,
    Scheduler,
    SchedulerState,
    policy_named,
)

KERNELS = 3
NORMAL = Normal("", (KERNEL,) * KERNELS)
CURVE = Curve(((0, 1.0), (UNLIMITED, 3.0)))


class Device:
    """Launches in flight, and what they have computed; which of them ends next is drawn."""

    def __init__(
        self, names: str, together: int, seed: int, *, quiet: bool = False,
        max_slowdown: float = 1.2, policy: str = "tilewright", kernels: int = KERNELS,
        **priorities: int,
    ) -> None:  # fmt: skip
        """quiet: no request can come any more, so nobody leaves"""
        self.scheduler = Scheduler(policy_named(policy), GPU, max_concurrent=together)
        self.state, self.now, self.draw, self.kernels = (
            SchedulerState(),
            0.0,
            random.Random(seed),
            kernels,
        )
        self.flying: dict[str, deque[Enqueue]] = {name: deque() for name in names}
        self.complete = dict.fromkeys(names, 0)
        self.inferences = Counter[str]()
        #: Tasks whose inferences had begun and not ended, after each event.
        self.running = list[set[str]]()
        #: By task, who waited when it began and still waits; and who began again all the same.
        self.passed: dict[str, set[str]] = {name: set() for name in names}
        self.unfair = list[str]()
        critical = Critical(
            "critical", (Phase(1, 100.0, CURVE),), (),
            max_slowdown=max_slowdown, gap_us=1e9 if quiet else 0.0,
        )  # fmt: skip
        self.state = self.scheduler.with_task(self.state, critical)
        self.step(Arrived(self.now, critical.name, 0))
        self.step(Finished(self.now, 0, 100.0))
        for name in names:
            cost = NORMAL.kernels[:1] * kernels
            task = replace(NORMAL, name=name, kernels=cost, priority=priorities.get(name, 0))
            self.state = self.scheduler.with_task(self.state, task)

    def ask(self, name: str, inferences: int) -> None:
        for _ in range(inferences):
            self.step(Arrived(self.now, name, 0))

    def step(self, event: Event) -> list[Action]:
        self.now += 1.0
        self.state, actions = self.scheduler.step(self.state, event)
        started = [action for action in actions if isinstance(action, Enqueue)]
        for action in started:
            self.flying[action.task].append(action)
        self._began([action.task for action in started if action.begins])
        begun = [n for n, flights in self.flying.items() if flights or self.complete[n]]
        self.running.append({*begun, *(p.task.name for p in self.state.normal if p.elastic)})
        return list(actions)

    def _began(self, names: list[str]) -> None:
        for others in self.passed.values():
            others.difference_update(names)
        waiting = {p.task.name for p in self.state.normal if p.backlog and not p.busy}
        for name in names:
            self.unfair += self.passed[name]
            self.passed[name] = waiting - {name}

    def end_one(self, left: float = 0.0) -> bool:
        """The oldest launch of some task ends.  left: how likely its workers had to leave"""
        found = [name for name, flights in self.flying.items() if flights]
        if not found:
            return False
        name = self.draw.choice(found)
        launch = self.flying[name].popleft()
        goes = launch.kernel == self.complete[name] and self.draw.random() >= left
        self.complete[name] += launch.plain or goes
        told = self.complete[name]
        if told == self.kernels:
            self.inferences[name] += 1
            self.complete[name] = 0
        self.step(Ended(self.now, name, told))
        return True


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("together", [1, 2, 3])
@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("kernels", [1, 3])
def test_places_are_taken_by_turns(kernels: int, quiet: bool, together: int, seed: int) -> None:
    device = Device("abcd", together, seed, quiet=quiet, kernels=kernels)
    for name in "abcd":
        device.ask(name, 5)
    while device.end_one(left=0.3):
        pass
    assert not device.unfair
    assert max(map(len, device.running)) == together
    assert device.inferences == dict.fromkeys("abcd", 5)


@pytest.mark.parametrize("together", [0, 4, 9])
def test_where_all_have_a_place_nobody_waits(together: int) -> None:
    device = Device("abcd", together, 0)
    for name in "abcd":
        device.ask(name, 2)
    assert all(len(flights) == 2 for flights in device.flying.values())


def test_where_everybody_may_stay_all_run_at_once() -> None:
    """Nothing is started in vain then."""
    device = Device("abcd", 2, 0, max_slowdown=1e3)
    for name in "abcd":
        device.ask(name, 2)
    assert all(flights[0].plain for flights in device.flying.values())


def test_a_place_is_free_at_once_where_a_task_has_no_more_work() -> None:
    device = Device("abc", 2, 0)
    device.ask("a", 1)
    device.ask("b", 9)
    device.ask("c", 9)
    assert not device.flying["c"]
    while not device.inferences["a"]:
        device.end_one()
    assert device.flying["c"]


def beside_two_that_were_left(names: str, inferences: int, **priorities: int) -> Device:
    """`a` and `b` were left in their first kernels, for a request; at its end `c` has work, too."""
    device = Device(names, 2, 0, **priorities)
    device.ask("a", 1)
    device.ask("b", 1)
    device.step(Arrived(device.now, "critical", 1))
    while device.end_one(left=1.0):
        pass
    device.ask("c", inferences)
    device.step(Finished(device.now, 1, 100.0))
    return device


def test_who_was_left_in_the_first_kernel_holds_a_place() -> None:
    device = beside_two_that_were_left("cab", 1)
    assert [len(device.flying[name]) for name in "abc"] == [2, 2, 0]


@pytest.mark.parametrize("together", [0, 1, 2])
def test_where_tasks_take_turns_the_turn_decides(together: int) -> None:
    device = Device("abc", together, 0, policy="sequential")
    for name, count in zip("abc", (2, 3, 1), strict=True):
        device.ask(name, count)
    while device.end_one():
        pass
    assert device.inferences == {"a": 2, "b": 3, "c": 1}


def test_tasks_of_a_lower_priority_hold_no_places() -> None:
    """Both places are theirs, and they cannot go on."""
    device = beside_two_that_were_left("abc", 2, c=1)
    assert device.flying["c"]
    while device.end_one():
        pass
    assert device.inferences == {"a": 1, "b": 1, "c": 2}


@pytest.mark.parametrize(("together", "beside"), [(0, 3), (2, 2), (5, 3)])
def test_a_request_waits_for_as_many_as_run_at_once(together: int, beside: int) -> None:
    device = Device("abc", together, 0)
    (begin,) = device.step(Arrived(device.now, "critical", 1))
    assert isinstance(begin, Begin)
    assert begin.concurrent == beside
