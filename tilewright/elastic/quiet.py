"""When threads of normal models may have Python's interpreter: not while a request needs it.

Input: a mark of a request's end, what it takes.  Output: the wait for it, with turns for others
between.  It decides nothing about the GPU.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tilewright.elastic.models import REST_S, SPIN_S
from tilewright.hosts.cuda_devices import Mark


class Quiet:
    """Threads of normal models stay out of the interpreter while it is entered.

    Threads of Python run by turns, and each turn costs the other one more than a kernel takes.  So
    nobody else takes turns while a critical request is started, or runs alone.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._entered = self._waiting = self._ended = 0
        self._given = False

    def __enter__(self) -> None:
        with self._changed:
            self._entered += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._entered -= 1
            self._ended += 1
            self._given = False
            self._changed.notify_all()

    def wait(self) -> None:
        """Until somebody leaves it, or gives a turn.  The next request may have begun before the
        thread wakes up."""
        if not self._entered:
            return
        with self._changed:
            ended = self._ended
            self._waiting += 1
            self._changed.wait_for(lambda: not self._entered or self._given or self._ended > ended)
            self._waiting -= 1
            if self._ended == ended:
                self._given = False

    def turn(self) -> None:
        """Lets one of those who wait go on, while the caller stays in.  One: five threads held the
        interpreter for 300 us."""
        if self._waiting and not self._given:
            with self._changed:
                self._given = True
                self._changed.notify()
        time.sleep(0)


#: Of this process, as the interpreter is.
QUIET = Quiet()


#: Microseconds before and after its expected end in which nobody else has a turn in a request.
#: Before that threads of normal models see what was left, so that they go on at once afterwards.
LAST_US, LATER_US = 200.0, 400.0


def watch(
    mark: Mark, look: Callable[[], None], turns: Callable[[float], bool] = lambda spent_us: False
) -> None:
    """Waits for a mark, at first without rest.

    look: called again and again; what it raises ends the wait
    turns: whether threads of normal models have turns now, so many microseconds after the begin
    """
    begun = time.perf_counter()
    while not mark.passed():
        look()
        spent = time.perf_counter() - begun
        if turns(1e6 * spent):
            QUIET.turn()
        if spent > SPIN_S:
            time.sleep(REST_S)


def in_quiet(
    start: Callable[[], Mark],
    expected_us: float | None = None,
    look: Callable[[], None] = lambda: None,
) -> None:
    """Starts a critical request and waits for its end.

    expected_us: what it takes, about; None: nobody else has a turn meanwhile
    look: as of `watch`
    """

    def turns(spent_us: float) -> bool:
        return expected_us is not None and not (
            expected_us - LAST_US <= spent_us <= expected_us + LATER_US
        )

    with QUIET:
        watch(start(), look, turns)
