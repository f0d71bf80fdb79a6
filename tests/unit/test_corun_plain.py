"""Normal kernels run in plain form while nobody would have to leave."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from random import Random

import pytest
from helpers.policy_run import CRITICAL, KERNEL, NORMAL, Run, begin

from tilewright.base.budget import UNLIMITED
from tilewright.elastic.policy import (
    Action,
    Arrived,
    Curve,
    Ended,
    Enqueue,
    Event,
    Finished,
    Gone,
    Normal,
    Phase,
)
from tilewright.elastic.policy.budgets import budgets_for

#: A request that everybody may stay beside, within 5 %.
FREE = replace(CRITICAL, phases=(Phase(1, 100.0, Curve(((0, 1.0), (UNLIMITED, 1.04)))),))


def test_kernels_are_plain_while_every_request_lets_everybody_stay() -> None:
    run = Run("tilewright", FREE, Normal("normal", (KERNEL,) * 6))
    assert run(Arrived(0, "normal", 0)) == [
        Enqueue("normal", 0, UNLIMITED, plain=True, begins=True),
        Enqueue("normal", 1, UNLIMITED, plain=True),
    ]
    assert run(Arrived(1, "critical", 7)) == [begin(7, (UNLIMITED,))]
    assert run(Ended(2, "normal", 1)) == [Enqueue("normal", 2, UNLIMITED, plain=True)]
    # it exceeds its bound: from now on normal kernels must leave
    assert run(Finished(3, 7, 1e6)) == []
    assert run(Ended(4, "normal", 2)) == [Enqueue("normal", 3, UNLIMITED)]
    # behind a launch that may be left none is plain, for it would not look whether that is complete
    run.state = replace(run.state, critical=(replace(run.state.critical[0], margin=1.0),))
    assert run(Ended(5, "normal", 3)) == [Enqueue("normal", 4, UNLIMITED)]
    assert run(Ended(6, "normal", 4)) == [Enqueue("normal", 5, UNLIMITED)]
    assert run(Ended(7, "normal", 5)) == run(Ended(8, "normal", 6)) == []
    assert run(Arrived(9, "normal", 8))[0] == Enqueue(
        "normal", 0, UNLIMITED, plain=True, begins=True
    )


def test_no_kernel_is_plain_where_a_request_lets_fewer_stay() -> None:
    run = Run("tilewright", FREE, replace(CRITICAL, name="other"), NORMAL)
    assert run(Arrived(0, "normal", 0))[0] == Enqueue("normal", 0, UNLIMITED, begins=True)


def test_what_was_left_goes_on_in_the_form_that_knows_what_is_done() -> None:
    nobody = replace(CRITICAL, phases=CRITICAL.phases[:1])
    run = Run("tilewright", nobody, NORMAL)
    run(Arrived(0, "normal", 0))
    assert run(Arrived(1, "critical", 7)) == [begin(7, (0,))]
    # both launches are left, the first after some of its work, which a plain one would do again
    assert run(Ended(2, "normal", 0)) == run(Ended(3, "normal", 0)) == []
    started = [a for a in run(Gone(4, "critical")) if isinstance(a, Enqueue)]
    assert started == [Enqueue("normal", 0, UNLIMITED), Enqueue("normal", 1, UNLIMITED)]
    assert run(Ended(5, "normal", 1)) == [Enqueue("normal", 2, UNLIMITED)]
    run(Ended(6, "normal", 2))
    run(Ended(7, "normal", 3))
    # the next inference has nothing behind it
    assert run(Arrived(8, "normal", 8))[0] == Enqueue(
        "normal", 0, UNLIMITED, plain=True, begins=True
    )


def test_so_it_does_where_the_margin_lets_everybody_stay_again() -> None:
    margin = next(m / 1000 for m in range(1000, 3000) if budgets_for(FREE, m / 1000) == (0,))
    run = Run("tilewright", FREE, NORMAL)
    run.state = replace(run.state, critical=(replace(run.state.critical[0], margin=margin),))
    run(Arrived(0, "normal", 0))
    assert run(Arrived(1, "critical", 7)) == [begin(7, (0,))]
    run(Ended(2, "normal", 0))
    run(Ended(3, "normal", 0))
    run.state = replace(run.state, critical=(replace(run.state.critical[0], margin=1.0),))
    started = [a for a in run(Finished(4, 7, 100.0)) if isinstance(a, Enqueue)]
    assert [(a.kernel, a.plain) for a in started] == [(0, False), (1, False)]


#: Nobody may stay beside it, and no two requests come within ten milliseconds.
RARE = replace(CRITICAL, phases=CRITICAL.phases[:1], gap_us=10_000.0)


def started(actions: list[Action]) -> list[tuple[int, bool, bool]]:
    return [(a.kernel, a.plain, a.begins) for a in actions if isinstance(a, Enqueue)]


def test_kernels_are_plain_while_no_request_can_come() -> None:
    run = Run("tilewright", RARE, NORMAL)
    # nothing is known yet of when the first one comes
    assert started(run(Arrived(0, "normal", 0))) == [(0, False, True), (1, False, False)]
    assert run(Arrived(100, "critical", 7)) == [begin(7, (0,))]
    run(Ended(110, "normal", 0))
    run(Ended(120, "normal", 0))
    # what may be done in part goes on as it was
    assert started(run(Finished(200, 7, 100.0))) == [(0, False, False), (1, False, False)]
    # the next would be plain, but behind one that may be left it would not look: it waits
    assert started(run(Ended(260, "normal", 1))) == []
    assert started(run(Ended(320, "normal", 2))) == [(2, True, False)]
    run(Ended(380, "normal", 3))
    assert started(run(Arrived(400, "normal", 1))) == [(0, True, True), (1, True, False)]
    # kernels of 60 us do not end for certain before one may come, 10 ms after the last
    run(Ended(500, "normal", 1))
    assert started(run(Ended(9500, "normal", 2))) == []
    assert started(run(Ended(9600, "normal", 3))) == []
    assert started(run(Arrived(9990, "normal", 2))) == [(0, False, True), (1, False, False)]


def test_a_request_that_comes_too_early_is_answered_all_the_same() -> None:
    run = Run("tilewright", RARE, NORMAL)
    run(Arrived(0, "critical", 1))
    run(Finished(100, 1, 100.0))
    assert started(run(Arrived(200, "normal", 2))) == [(0, True, True), (1, True, False)]
    assert run(Arrived(300, "critical", 3)) == [begin(3, (0,))]


def test_the_next_inference_follows_without_a_break_where_nobody_leaves() -> None:
    for name, plain in (("tilewright", True), ("priority", False)):
        run = Run(name, *([] if plain else [CRITICAL]), NORMAL)
        for request in range(2):
            run(Arrived(0, "normal", request))
        run(Ended(1, "normal", 1))
        assert started(run(Ended(2, "normal", 2))) == [(0, plain, True)]
        assert started(run(Ended(3, "normal", 3))) == [(1, plain, False)]
        # the third one is not asked for
        run(Ended(4, "normal", 1))
        assert started(run(Ended(5, "normal", 2))) == []
        assert started(run(Ended(6, "normal", 3))) == []


@pytest.mark.parametrize("seed", range(40))
def test_no_launch_runs_on_what_is_not_computed(seed: int) -> None:
    """Plays a GPU on which elastic launches end with or without their kernel complete while a
    request is in flight; requests also come when they should not."""
    random = Random(seed)
    run = Run("tilewright", RARE, NORMAL)
    kernels, now, numbers, backlog = len(NORMAL.kernels), 0.0, iter(range(10_000)), 0
    #: Of inferences that have begun: for each kernel whether it is untouched, partial, complete.
    begun: deque[list[str]] = deque()
    flying: deque[tuple[list[str], int, bool]] = deque()
    critical: int | None = None
    completed = plain = 0
    for _ in range(400):
        now += random.choice((1.0, 30.0, 400.0))
        wanted = random.random()
        if wanted < 0.2 and critical is None:
            event: Event = Arrived(now, "critical", critical := next(numbers))
        elif wanted < 0.4 and critical is not None:
            event, critical = Finished(now, critical, 100.0), None
        elif wanted < 0.6 or not flying:
            event, backlog = Arrived(now, "normal", next(numbers)), backlog + 1
        else:
            inference, kernel, is_plain = flying.popleft()
            assert not is_plain or inference[:kernel] == ["complete"] * kernel
            if is_plain:
                assert inference[kernel] == "untouched"
                inference[kernel], plain = "complete", plain + 1
            elif inference[:kernel] == ["complete"] * kernel and inference[kernel] != "complete":
                left = critical is not None and random.random() < 0.7
                inference[kernel] = "partial" if left else "complete"
            state = begun[0]
            complete = next((n for n in range(kernels) if state[n] != "complete"), kernels)
            if complete == kernels:
                begun.popleft()
                completed, backlog = completed + 1, backlog - 1
            event = Ended(now, "normal", complete)
        for action in run(event):
            if isinstance(action, Enqueue):
                if action.begins:
                    assert len(begun) < backlog
                    begun.append(["untouched"] * kernels)
                flying.append((begun[-1], action.kernel, action.plain))
    assert completed > 5
    assert plain > 5
