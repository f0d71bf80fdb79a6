"""Which thread has the interpreter while a critical request runs.  Nothing here is timed."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest
from helpers.waiting import PATIENCE, a_while, until
from test_corun_agents import Pair
from test_corun_agents import bundles as bundles
from test_corun_agents import pair as pair

from tilewright.base.errors import AdmissionRefused
from tilewright.elastic.interpreter_priority import InterpreterPriority
from tilewright.elastic.policy import Withdraw


class Waiting:
    """Threads that wait once, and what they were told."""

    def __init__(self, priority: InterpreterPriority) -> None:
        self.priority, self.told = priority, list[tuple[bool, bool]]()
        self._threads = list[threading.Thread]()

    def more(self, to_start: bool = False) -> None:
        before = self.priority.waiting

        def waits() -> None:
            self.told.append((to_start, self.priority.wait(to_start)))

        self._threads.append(threading.Thread(target=waits, daemon=True))
        self._threads[-1].start()
        until(lambda: self.priority.waiting > before)

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
            a_while()
            assert len(waiting.told) == count
        # who comes later waits for the next turn, or for the end
        waiting.more()
        a_while()
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
        a_while()
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
        a_while()
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
        until(lambda: priority.waiting > 0)
        for _ in range(20):
            priority.let_one_go_on()
        a_while()
        assert not pair.normal.launches
        priority.let_one_go_on(starts=True)
        until(lambda: pair.normal.launches > 0)
    until(lambda: pair.normal.inferences > 0)


def test_what_was_wanted_of_a_task_that_leaves_is_not_started(pair: Pair) -> None:
    with (priority := pair.coordinator.interpreter):
        pair.normal.ask()
        until(lambda: priority.waiting > 0)
        leave = Withdraw("normal", AdmissionRefused("it may not run", hint="Leave it out"))
        pair.coordinator.sinks["normal"](leave)
    pair.normal.close()
    assert not pair.normal.launches
