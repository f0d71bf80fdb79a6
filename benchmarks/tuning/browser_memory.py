"""The memory of the browsers that were started here, sampled while something runs.

Output: megabytes (10^6 bytes) of all their processes together, shared pages by their share.  Linux
only.
"""

from __future__ import annotations

import statistics
import threading
import time

from benchmarks.processes import shared_bytes, started_browsers

#: Seconds between two samples.
EVERY = 0.2


def megabytes() -> float:
    return sum(map(shared_bytes, started_browsers())) / 1e6


class Sampled:
    """`with Sampled() as found: …`; afterwards `found.usual` and `found.most` are known."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Sampled:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            self._values.append(megabytes())
            if self._over.wait(EVERY):
                return

    @property
    def usual(self) -> float:
        return round(statistics.median(self._values), 1)

    @property
    def most(self) -> float:
        return round(max(self._values), 1)


def resting(seconds: float) -> Sampled:
    """While this process does nothing."""
    with Sampled() as found:
        time.sleep(seconds)
    return found
