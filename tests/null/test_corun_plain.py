"""Normal kernels run in plain form while nobody would have to leave."""

from __future__ import annotations

from dataclasses import replace

from test_corun_policy import CRITICAL, KERNEL, NORMAL, Run, begin

from tilewright.base.budget import EVERYBODY
from tilewright.elastic.policy import Arrived, Curve, Ended, Enqueue, Finished, Gone, Normal, Phase
from tilewright.elastic.policy.budgets import bounded

#: A request that everybody may stay beside, within 5 %.
FREE = replace(CRITICAL, phases=(Phase(1, 100.0, Curve(((0, 1.0), (EVERYBODY, 1.04)))),))


def test_kernels_are_plain_while_every_request_lets_everybody_stay() -> None:
    run = Run("tilewright", FREE, Normal("normal", (KERNEL,) * 6))
    assert run(Arrived(0, "normal", 0)) == [
        Enqueue("normal", 0, EVERYBODY, plain=True), Enqueue("normal", 1, EVERYBODY, plain=True)
    ]  # fmt: skip
    assert run(Arrived(1, "critical", 7)) == [begin(7, (EVERYBODY,))]
    assert run(Ended(2, "normal", 1)) == [Enqueue("normal", 2, EVERYBODY, plain=True)]
    # it exceeds its bound: from now on normal kernels must leave
    assert run(Finished(3, 7, 1e6)) == []
    assert run(Ended(4, "normal", 2)) == [Enqueue("normal", 3, EVERYBODY)]
    # behind a launch that may be left none is plain, for it would not look whether that is complete
    run.state = replace(run.state, margins=(1.0,))
    assert run(Ended(5, "normal", 3)) == [Enqueue("normal", 4, EVERYBODY)]
    assert run(Ended(6, "normal", 4)) == [Enqueue("normal", 5, EVERYBODY)]
    assert run(Ended(7, "normal", 5)) == run(Ended(8, "normal", 6)) == []
    assert run(Arrived(9, "normal", 8))[0] == Enqueue("normal", 0, EVERYBODY, plain=True)


def test_no_kernel_is_plain_where_a_request_lets_fewer_stay() -> None:
    run = Run("tilewright", FREE, replace(CRITICAL, name="other"), NORMAL)
    assert run(Arrived(0, "normal", 0))[0] == Enqueue("normal", 0, EVERYBODY)


def test_what_was_left_goes_on_in_the_form_that_knows_what_is_done() -> None:
    nobody = replace(CRITICAL, phases=CRITICAL.phases[:1])
    run = Run("tilewright", nobody, NORMAL)
    run(Arrived(0, "normal", 0))
    assert run(Arrived(1, "critical", 7)) == [begin(7, (0,))]
    # both launches are left, the first after some of its work, which a plain one would do again
    assert run(Ended(2, "normal", 0)) == run(Ended(3, "normal", 0)) == []
    started = [a for a in run(Gone(4, "critical")) if isinstance(a, Enqueue)]
    assert started == [Enqueue("normal", 0, EVERYBODY), Enqueue("normal", 1, EVERYBODY)]
    assert run(Ended(5, "normal", 1)) == [Enqueue("normal", 2, EVERYBODY)]
    run(Ended(6, "normal", 2))
    run(Ended(7, "normal", 3))
    # the next inference has nothing behind it
    assert run(Arrived(8, "normal", 8))[0] == Enqueue("normal", 0, EVERYBODY, plain=True)


def test_so_it_does_where_the_margin_lets_everybody_stay_again() -> None:
    margin = next(m / 1000 for m in range(1000, 3000) if bounded(FREE, m / 1000) == (0,))
    run = Run("tilewright", FREE, NORMAL)
    run.state = replace(run.state, margins=(margin,))
    run(Arrived(0, "normal", 0))
    assert run(Arrived(1, "critical", 7)) == [begin(7, (0,))]
    run(Ended(2, "normal", 0))
    run(Ended(3, "normal", 0))
    run.state = replace(run.state, margins=(1.0,))
    started = [a for a in run(Finished(4, 7, 100.0)) if isinstance(a, Enqueue)]
    assert [(a.kernel, a.plain) for a in started] == [(0, False), (1, False)]
