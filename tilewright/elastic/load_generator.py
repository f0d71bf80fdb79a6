"""Sends requests to critical models by an arrival process, and to normal models at given times.

Input: an agent, an arrival (arrivals.py), seconds.  Output: the times of each request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from tilewright.base.errors import AdmissionRefused, TaskOverdue
from tilewright.elastic.agents import CriticalAgent, NormalAgent, RequestTimes
from tilewright.elastic.arrivals import Arrival
from tilewright.elastic.coordination import now_us
from tilewright.elastic.policy import Noticed, Recalibrated

#: Seconds by which a sleep may end late.
EARLY_S = 2e-4


class MayFail(Protocol):
    """An object with threads that may fail."""

    def check(self) -> None:
        """Raises the error of a thread."""


def check_all(*every: Sequence[MayFail]) -> None:
    for group in every:
        for each in group:
            each.check()


class CriticalLoad:
    """Sends requests in threads of its own from `start` on, and sets `over` at the end.

    stop: ends all requests early when it is set;  answered, refused, overdue: the requests so far

    A request that is due while another one runs counts as arrived at its due time, so its latency
    includes the wait.
    """

    def __init__(
        self,
        agent: CriticalAgent,
        arrival: Arrival,
        seconds: float,
        seed: int,
        stop: threading.Event,
    ) -> None:
        self.answered: list[RequestTimes] = []
        self.refused = self.overdue = 0
        self.over = threading.Event()
        self._agent, self._stop = agent, stop
        self._failed: BaseException | None = None
        self._seconds, self._begun = seconds, 0.0
        times = arrival.times(seconds, seed)
        run = self._by_clock if not arrival.clients else self._closed_loop
        self._threads = [
            threading.Thread(target=self._guarded, args=(run, times), daemon=True)
            for _ in range(max(1, arrival.clients))
        ]
        self._left = len(self._threads)
        self._lock = threading.Lock()

    def start(self) -> None:
        self._begun = time.perf_counter()
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Ends early; running requests finish first, unless they are stuck."""
        self._stop.set()
        for thread in (each for each in self._threads if each.ident is not None):
            thread.join(timeout=self._agent.task.effective_lease_us / 1e6 + 5)

    @property
    def noticed(self) -> tuple[Noticed, ...]:
        """Corrections of the model's curves so far."""
        return tuple(self._agent.noticed)

    @property
    def recalibrated(self) -> tuple[Recalibrated, ...]:
        """Corrections of the model's time alone so far."""
        return tuple(self._agent.recalibrated)

    def check(self) -> None:
        """Raises the error of a thread."""
        if self._failed is not None:
            raise self._failed

    def _guarded(self, run: Callable[[tuple[float, ...]], None], times: tuple[float, ...]) -> None:
        try:
            run(times)
        except BaseException as error:
            self._failed = error
            self._stop.set()
        with self._lock:
            self._left -= 1
            if not self._left:
                self.over.set()

    def _by_clock(self, times: tuple[float, ...]) -> None:
        for at in times:
            if self._stop.is_set():  # checked here, too: requests may take longer than the gaps
                return
            due = self._begun + at
            late = time.perf_counter() > due
            while (left := due - time.perf_counter()) > 0:
                if self._stop.wait(max(0.0, left - EARLY_S)):
                    return
            self._request(now_us() - 1e6 * (time.perf_counter() - due) if late else None)
        self._stop.wait(max(0.0, self._begun + self._seconds - time.perf_counter()))

    def _closed_loop(self, times: tuple[float, ...]) -> None:
        until = self._begun + self._seconds
        while time.perf_counter() < until and not self._stop.is_set():
            self._request(None)

    def _request(self, arrived: float | None) -> None:
        try:
            self.answered.append(self._agent.request(arrived=arrived))
        except AdmissionRefused:
            self.refused += 1
        except TaskOverdue:
            self.overdue += 1


class NormalLoad(threading.Thread):
    """Asks a normal model for inferences at these times, in seconds from its start, and waits for
    none of them."""

    def __init__(self, agent: NormalAgent, times: Sequence[float], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._failed: BaseException | None = None
        self._agent, self._times, self._stop_asking = agent, times, stop

    def check(self) -> None:
        """Raises the error of a request, if there is one."""
        if self._failed is not None:
            raise self._failed

    def run(self) -> None:
        begun = time.perf_counter()
        try:
            for at in self._times:
                if self._stop_asking.wait(max(0.0, begun + at - time.perf_counter())):
                    return
                self._agent.ask()
        except BaseException as error:
            self._failed = error
