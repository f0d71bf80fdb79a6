"""Which thread has the interpreter while a critical request runs.  Nothing here is timed."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest
from helpers.waiting import PATIENCE, until
from test_corun_agents import Pair
from test_corun_agents import bundles as bundles
from test_corun_agents import pair as pair

from tilewright.elastic.gil_priority import InterpreterPriority


def look_again(priority: InterpreterPriority) -> None:
    """Wakes all who wait; returns once each of them has looked, and waits again."""
    for line in (priority._starting, priority._polling):
        changed, again = line.changed, threading.Semaphore(0)

        def wait(
            timeout: float | None = None,
            changed: threading.Condition = changed,
            again: threading.Semaphore = again,
        ) -> bool:
            again.release()
            return threading.Condition.wait(changed, timeout)

        with changed:
            waiting = line.waiting
            changed.wait = wait  # type: ignore[method-assign]
            changed.notify_all()
        for _ in range(waiting):
            assert again.acquire(timeout=PATIENCE), "one of them went on"
        del changed.wait


class Waiting:
    """Threads that wait once, and what they were told."""

    def __init__(self, priority: InterpreterPriority) -> None:
        self.priority, self.told = priority, list[tuple[bool, bool]]()
        self._threads = list[threading.Thread]()

    def more(self, to_start: bool = False) -> None:
        queue = self.priority._starting if to_start else self.priority._polling
        before = queue.waiting

        def waits() -> None:
            self.told.append((to_start, self.priority.wait(to_start)))

        self._threads.append(threading.Thread(target=waits, daemon=True))
        self._threads[-1].start()
        until(lambda: queue.waiting > before)

    def all(self) -> list[tuple[bool, bool]]:
        for thread in self._threads:
            thread.join(PATIENCE)
        return self.told


def test_a_turn_lets_one_go_on_who_waits() -> None:
    waiting = Waiting(priority := InterpreterPriority())
    with priority:
        for _ in range(3):
            waiting.more()
        for count in (1, 2):
            priority.let_one_go_on()
            until(lambda count=count: len(waiting.told) == count)  # type: ignore[misc]
            look_again(priority)
            assert len(waiting.told) == count
        # who comes later waits for the next turn, or for the end
        waiting.more()
        look_again(priority)
        assert len(waiting.told) == 2
    assert waiting.all() == [(False, False)] * 2 + [(False, True)] * 2


def test_kernels_are_started_in_turns_for_that_and_at_the_end() -> None:
    waiting = Waiting(priority := InterpreterPriority())
    with priority:
        waiting.more(to_start=True)
        waiting.more()
        priority.let_one_go_on()
        until(lambda: waiting.told == [(False, False)])
        priority.let_one_go_on()
        look_again(priority)
        assert len(waiting.told) == 1
        priority.let_one_go_on(starts=True)
        until(lambda: len(waiting.told) == 2)
        waiting.more()
        priority.let_one_go_on(starts=True)
        until(lambda: len(waiting.told) == 3)
        waiting.more(to_start=True)
    assert waiting.all() == [(False, False), (True, True), (False, True), (True, True)]


def test_who_waits_goes_on_at_the_end_although_the_next_request_has_begun() -> None:
    """Else requests that follow each other without a pause keep normal work out for good."""
    waiting = Waiting(priority := InterpreterPriority())
    with priority:
        waiting.more()
        waiting.more(to_start=True)
        priority.__exit__()
        priority.__enter__()
        until(lambda: len(waiting.told) == 2)
    assert {may for _, may in waiting.told} == {True}


def test_it_is_over_when_nobody_is_in_any_more() -> None:
    """Another critical model's request that only comes is no end."""
    waiting = Waiting(priority := InterpreterPriority())
    with priority:
        waiting.more(to_start=True)
        with priority:
            pass
        look_again(priority)
        assert not waiting.told
    assert waiting.all() == [(True, True)]


@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_kept_out_for_good(seed: int) -> None:
    """Turns and ends in any order, and threads that look and start by turns."""
    priority, ended, went = InterpreterPriority(), threading.Event(), Counter[tuple[int, bool]]()

    def works(number: int) -> None:
        draw = random.Random(number)
        while not ended.is_set():
            to_start = draw.random() < 0.5
            priority.wait(to_start)
            went[number, to_start] += 1

    threads = [threading.Thread(target=works, args=(n,), daemon=True) for n in range(4)]
    draw, last = random.Random(seed), time.monotonic() + PATIENCE
    with priority:
        for thread in threads:
            thread.start()
        while min(went[n, kind] for n in range(4) for kind in (False, True)) < 5:
            assert time.monotonic() < last
            if draw.random() < 0.01:
                priority.__exit__()
                priority.__enter__()
            else:
                priority.let_one_go_on(starts=draw.random() < 0.5)
        ended.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_nothing_is_started_in_vain_in_a_request_that_lets_nobody_stay(pair: Pair) -> None:
    with (priority := pair.coordinator.interpreter):
        pair.normal.ask()
        until(lambda: priority.waiting_to_start > 0)
        for _ in range(20):
            priority.let_one_go_on()
            look_again(priority)
        assert not pair.normal.launches
        priority.let_one_go_on(starts=True)
        until(lambda: pair.normal.launches > 0)
    until(lambda: pair.normal.inferences > 0)


def test_what_was_wanted_of_a_task_that_leaves_is_not_started(pair: Pair) -> None:
    with (priority := pair.coordinator.interpreter):
        pair.normal.ask()
        until(lambda: priority.waiting_to_start > 0)
        leaving = threading.Thread(target=pair.normal.close, daemon=True)
        leaving.start()
        until(lambda: pair.normal._closing)
    leaving.join(PATIENCE)
    assert not leaving.is_alive()
    assert not pair.normal.launches
