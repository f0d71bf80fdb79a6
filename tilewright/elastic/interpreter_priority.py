"""Priority for Python's interpreter: a critical request keeps threads of normal models waiting.

Input: the mark of a request's end, and how long the request takes.  Output: a wait for that mark.
Meanwhile other threads run one at a time, where that is harmless.  This concerns only threads, not
the GPU.  On a Python without a global interpreter lock it changes no result, and gains nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tilewright.hosts.cuda_devices import DeviceEvent

#: Seconds for which a critical thread polls for its request's end without sleeping.
SPIN_S = 0.02
#: Seconds between two polls after that.
REST_S = 1e-4
#: Microseconds before and after the expected end of a request in which no other thread runs.  In
#: the time before `LAST_US`, threads of normal models see which launches are left, so that they can
#: continue at once afterwards.
LAST_US, LATER_US = 200.0, 400.0


class WaitQueue:
    """Threads that wait for the same."""

    def __init__(self, lock: threading.Lock) -> None:
        self.changed, self.waiting = threading.Condition(lock), 0


class InterpreterPriority:
    """Makes threads of normal models wait while a critical request has entered it.

    Threads of Python run one at a time, and a switch of threads takes longer than a kernel.  So no
    other thread runs while a critical request is started or executed.

    The agents of a coordinator share one of these.  Give all coordinators of a process the same
    one, since a process has one interpreter.
    """

    def __init__(self) -> None:
        lock = threading.Lock()
        self._entered = self._ended = 0
        #: Threads that wait to start kernels, and threads that wait to poll started ones.
        self._starting, self._polling = WaitQueue(lock), WaitQueue(lock)
        self._lock = lock
        #: The queue from which one thread may continue but has not yet; whether that thread may
        #: start kernels.
        self._granted: WaitQueue | None = None
        self._starts = False

    @property
    def entered(self) -> bool:
        """True if a critical request has the interpreter."""
        return bool(self._entered)

    @property
    def waiting(self) -> int:
        """Threads that wait, to start kernels or to poll."""
        return self._starting.waiting + self._polling.waiting

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
        """Waits until no request has the interpreter, or a request lets this thread continue.

        Returns whether kernels may be started.  If not, a decision made before the request is
        obsolete: the request lets no worker stay, so the kernel would run in vain.

        to_start: True if the thread can do nothing but start kernels

        A thread that waits at the end of a request continues even if the next request begins before
        the thread wakes up.  Otherwise requests without pauses would block normal work forever.
        """
        # Without the lock: a request that enters right after this read finds the thread running,
        # as it would have a moment before.
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
                    self._granted = None  # the queue is empty
                return True
            self._granted = None
            return self._starts

    def let_one_go_on(self, starts: bool = False) -> None:
        """Lets one waiting thread continue while the request keeps the interpreter.  Only one,
        because five threads once held the interpreter for 300 us.

        starts: True if it may start kernels
        """
        queues = (self._starting, self._polling) if starts else (self._polling,)
        # Read without the lock, which costs more than the rest of a poll.  Both reads may be stale:
        # a grant that is seen too late, or a thread that has just begun to wait, is found by the
        # next poll.  Under the lock the queue is looked at again.
        if self._granted is None and any(queue.waiting for queue in queues):
            with self._lock:
                queue = next((queue for queue in queues if queue.waiting), None)
                if queue is not None:
                    self._granted, self._starts = queue, starts
                    queue.changed.notify()
        time.sleep(0)

    def run(
        self,
        start: Callable[[], DeviceEvent],
        expected_us: float | None = None,
        poll: Callable[[], None] = lambda: None,
        starts: bool = False,
    ) -> None:
        """Starts a critical request and waits for its end.

        expected_us: about how long it takes; None: no other thread runs meanwhile
        poll, starts: as in `watch`
        """

        def shares(spent_us: float) -> bool:
            return expected_us is not None and not (
                expected_us - LAST_US <= spent_us <= expected_us + LATER_US
            )

        with self:
            self.watch(start(), poll, shares, starts)

    def watch(
        self,
        mark: DeviceEvent,
        poll: Callable[[], None],
        shares: Callable[[float], bool] = lambda spent_us: False,
        starts: bool = False,
    ) -> None:
        """Waits for a mark, at first without sleeping.

        poll: called repeatedly; an error that it raises ends the wait
        shares: given the microseconds since the start, whether another thread may run now
        starts: True if that thread may start kernels
        """
        begun = time.perf_counter()
        while not mark.passed():
            poll()
            spent = time.perf_counter() - begun
            if shares(1e6 * spent):
                self.let_one_go_on(starts)
            if spent > SPIN_S:
                time.sleep(REST_S)
