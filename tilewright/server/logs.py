"""A log of bounded size: repeated lines are left out and counted.

Input: records of all loggers.  Output: the same, without those of a kind that came too
often, and without answers that the server's end cut off.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.server.rate_limits import TokenBucket

#: Lines of one kind: at once, and per second afterwards.
BURST, RATE = 20, 0.1


class RepeatFilter(logging.Filter):
    """Lines are of one kind if one line of code logs them, whoever caused it: clients may have
    many addresses.  The next line of a kind says how many were left out."""

    def __init__(self, rate: float = RATE, burst: int = BURST) -> None:
        super().__init__()
        self._rate = rate
        self._burst = burst
        self._buckets: dict[tuple[str, int], TokenBucket] = {}
        self._left_out: Counter[tuple[str, int]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        # The server ended while a client still took its answer: nobody's fault.
        if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
            return False
        kind = record.pathname, record.lineno
        bucket = self._buckets.setdefault(kind, TokenBucket(self._rate, self._burst))
        if not bucket.take():
            self._left_out[kind] += 1
            return False
        if left_out := self._left_out.pop(kind, 0):
            record.msg = f"{record.getMessage()} ({left_out} lines like this were left out)"
            record.args = ()
        return True


@contextmanager
def deduplicated_log() -> Iterator[None]:
    """Writes the log to stderr, sparingly; a program that set up its own log keeps that."""
    root = logging.getLogger()
    if root.handlers:
        yield
        return
    handler = logging.StreamHandler()
    handler.addFilter(RepeatFilter())
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
