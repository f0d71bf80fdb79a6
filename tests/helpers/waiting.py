"""For tests that wait for what other threads or processes do.  Nothing here is timed."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds after which something will not happen any more.
PATIENCE = 300.0


def until(condition: Callable[[], object]) -> None:
    """Waits for something to be so."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def a_while() -> None:
    """Time for what must not happen.  No test fails for want of it: where it is too short, a fault
    is missed.  Waiting for a look of whoever might act is better, where there is one."""
    time.sleep(0.1)
