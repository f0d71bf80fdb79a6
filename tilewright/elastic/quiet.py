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


class _Line:
    """Threads that wait for the same."""

    def __init__(self, lock: threading.Lock) -> None:
        self.changed, self.waiting = threading.Condition(lock), 0


class Quiet:
    """Threads of normal models stay out of the interpreter while it is entered.

    Threads of Python run by turns, and each turn costs the other one more than a kernel takes.  So
    nobody else takes turns while a critical request is started, or runs alone.
    """

    def __init__(self) -> None:
        lock = threading.Lock()
        self._entered = self._ended = 0
        #: Who waits to start kernels, and who waits to look at what was started.
        self._starting, self._looking = _Line(lock), _Line(lock)
        self._lock = lock
        #: Whose turn was given and not taken, and whether kernels may be started in it.
        self._given: _Line | None = None
        self._starts = False

    def __enter__(self) -> None:
        with self._lock:
            self._entered += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._entered -= 1
            if self._entered:
                return
            self._ended += 1
            self._given = None
            self._starting.changed.notify_all()
            self._looking.changed.notify_all()

    def wait(self, to_start: bool = False) -> bool:
        """Until nobody is in it, or who is gives a turn.  Returns whether kernels may be started:
        what was decided before a request that lets nobody stay would run beside it in vain.

        to_start: turns without that are of no use
        At an end who waits goes on even if the next request has begun before the thread wakes up:
        else requests without a pause would keep normal work out for good.
        """
        if not self._entered:
            return True
        line = self._starting if to_start else self._looking
        with self._lock:
            ended = self._ended

            def over() -> bool:
                return not self._entered or self._ended > ended

            line.waiting += 1
            line.changed.wait_for(lambda: over() or self._given is line)
            line.waiting -= 1
            if over():
                if self._given is line and not line.waiting:
                    self._given = None  # nobody is there to take it
                return True
            self._given = None
            return self._starts

    def turn(self, starts: bool = False) -> None:
        """Lets one of those who wait go on, while the caller stays in.  One: five threads held the
        interpreter for 300 us.

        starts: it may start kernels
        """
        lines = (self._starting, self._looking) if starts else (self._looking,)
        if self._given is None and any(line.waiting for line in lines):
            with self._lock:
                line = next((line for line in lines if line.waiting), None)
                if line is not None:
                    self._given, self._starts = line, starts
                    line.changed.notify()
        time.sleep(0)


#: Of this process, as the interpreter is.
QUIET = Quiet()


#: Microseconds before and after its expected end in which nobody else has a turn in a request.
#: Before that threads of normal models see what was left, so that they go on at once afterwards.
LAST_US, LATER_US = 200.0, 400.0


def watch(
    mark: Mark,
    look: Callable[[], None],
    turns: Callable[[float], bool] = lambda spent_us: False,
    starts: bool = False,
) -> None:
    """Waits for a mark, at first without rest.

    look: called again and again; what it raises ends the wait
    turns: whether threads of normal models have turns now, so many microseconds after the begin
    starts: whether they may start kernels in these
    """
    begun = time.perf_counter()
    while not mark.passed():
        look()
        spent = time.perf_counter() - begun
        if turns(1e6 * spent):
            QUIET.turn(starts)
        if spent > SPIN_S:
            time.sleep(REST_S)


def in_quiet(
    start: Callable[[], Mark],
    expected_us: float | None = None,
    look: Callable[[], None] = lambda: None,
    starts: bool = False,
) -> None:
    """Starts a critical request and waits for its end.

    expected_us: what it takes, about; None: nobody else has a turn meanwhile
    look, starts: as of `watch`
    """

    def turns(spent_us: float) -> bool:
        return expected_us is not None and not (
            expected_us - LAST_US <= spent_us <= expected_us + LATER_US
        )

    with QUIET:
        watch(start(), look, turns, starts)
