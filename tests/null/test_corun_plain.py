"""Normal kernels run in plain form while nobody would have to leave."""

from __future__ import annotations

from dataclasses import replace

from test_corun_policy import CRITICAL, KERNEL, NORMAL, Run, begin

from tilewright.base.budget import EVERYBODY
from tilewright.elastic.policy import Arrived, Curve, Ended, Enqueue, Finished, Normal, Phase

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
