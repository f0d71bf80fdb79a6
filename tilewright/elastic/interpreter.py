"""Priority for Python's interpreter: threads of normal models stay out while a request needs it.

Input: the mark of a request's end, how long the request takes.  Output: the wait for the mark, in
which the other threads go on one at a time where that is harmless.  It decides nothing about the
GPU.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tilewright.hosts.cuda_devices import Mark

#: Seconds for which a critical thread polls without rest whether its request has ended.
SPIN_S = 0.02
#: Seconds between two polls after that.
REST_S = 1e-4
#: Microseconds before and after the expected end of a request in which no other thread goes on.
#: Before that, threads of normal models see what was left, so that they go on at once afterwards.
LAST_US, LATER_US = 200.0, 400.0


class WaitQueue:
    """Threads that wait for the same."""

    def __init__(self, lock: threading.Lock) -> None:
        self.changed, self.waiting = threading.Condition(lock), 0


class InterpreterPriority:
    """Threads of normal models wait while a critical request has entered it.

    Threads of Python run one at a time, and each switch costs the other one more than a kernel
    takes.  So no other thread runs while a critical request is started, or runs alone.

    A coordinator has one of these for its agents.  Give the coordinators of one process the same
    one: the interpreter belongs to the process.
    """

    def __init__(self) -> None:
        lock = threading.Lock()
        self._entered = self._ended = 0
        #: Threads that wait to start kernels, and threads that wait to poll what was started.
        self._starting, self._polling = WaitQueue(lock), WaitQueue(lock)
        self._lock = lock
        #: The queue from which one thread may go on and has not yet, and whether it may start
        #: kernels.
        self._granted: WaitQueue | None = None
        self._starts = False

    @property
    def entered(self) -> bool:
        """Whether a critical request has the interpreter."""
        return bool(self._entered)

    @property
    def waiting_to_start(self) -> int:
        """Threads that wait to start kernels."""
        return self._starting.waiting

    def __enter__(self) -> None:
        with self._lock:
            self._entered += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._entered -= 1
            if self._entered:
                return
            self._ended += 1
            self._granted = None
            self._starting.changed.notify_all()
            self._polling.changed.notify_all()

    def wait(self, to_start: bool = False) -> bool:
        """Waits until no request has the interpreter, or one of them lets this thread go on.

        Returns whether kernels may be started: what was decided before a request that lets no
        worker stay would run beside it in vain.

        to_start: the thread can do nothing but start kernels
        At the end of a request a waiting thread goes on even if the next request has begun before
        the thread wakes up: else requests without a pause would keep normal work out for good.
        """
        if not self._entered:
            return True
        queue = self._starting if to_start else self._polling
        with self._lock:
            ended = self._ended

            def over() -> bool:
                return not self._entered or self._ended > ended

            queue.waiting += 1
            queue.changed.wait_for(lambda: over() or self._granted is queue)
            queue.waiting -= 1
            if over():
                if self._granted is queue and not queue.waiting:
                    self._granted = None  # no thread is left to take it
                return True
            self._granted = None
            return self._starts

    def let_one_go_on(self, starts: bool = False) -> None:
        """One waiting thread goes on while the request keeps the interpreter.  Only one: five
        threads held the interpreter for 300 us.

        starts: it may start kernels
        """
        queues = (self._starting, self._polling) if starts else (self._polling,)
        if self._granted is None and any(queue.waiting for queue in queues):
            with self._lock:
                queue = next((queue for queue in queues if queue.waiting), None)
                if queue is not None:
                    self._granted, self._starts = queue, starts
                    queue.changed.notify()
        time.sleep(0)

    def run(
        self,
        start: Callable[[], Mark],
        expected_us: float | None = None,
        poll: Callable[[], None] = lambda: None,
        starts: bool = False,
    ) -> None:
        """Starts a critical request and waits for its end.

        expected_us: about how long it takes; None: no other thread goes on meanwhile
        poll, starts: as of `watch`
        """

        def shares(spent_us: float) -> bool:
            return expected_us is not None and not (
                expected_us - LAST_US <= spent_us <= expected_us + LATER_US
            )

        with self:
            self.watch(start(), poll, shares, starts)

    def watch(
        self,
        mark: Mark,
        poll: Callable[[], None],
        shares: Callable[[float], bool] = lambda spent_us: False,
        starts: bool = False,
    ) -> None:
        """Waits for a mark, at first without rest.

        poll: called again and again; what it raises ends the wait
        shares: whether another thread may go on now, that many microseconds after the begin
        starts: whether it may start kernels then
        """
        begun = time.perf_counter()
        while not mark.passed():
            poll()
            spent = time.perf_counter() - begun
            if shares(1e6 * spent):
                self.let_one_go_on(starts)
            if spent > SPIN_S:
                time.sleep(REST_S)
