"""The memory of the browsers that were started here, sampled while something runs.

Input: none; browsers are the processes that descend from this one in sessions of their own.
Output: megabytes (10^6 bytes) of all their processes together, shared pages by their share (PSS).
Linux only.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
#: Seconds between two samples.
EVERY = 0.2


def browsers() -> list[int]:
    """Processes that descend from this one, in other sessions."""
    parents, sessions = {}, {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                # the name in brackets may have blanks
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)] = int(fields[1])
                sessions[int(folder.name)] = int(fields[3])
    mine, own = {os.getpid()}, os.getsid(0)
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return [pid for pid in mine if sessions.get(pid, own) != own]


def megabytes() -> float:
    total = 0
    for pid in browsers():
        with suppress(OSError):
            for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total * 1024 / 1e6


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
