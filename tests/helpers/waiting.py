"""For tests that wait for what other threads or processes do.  Nothing here is timed."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds after which something will not happen any more.
PATIENCE = 60.0


def until(condition: Callable[[], object]) -> None:
    """Waits for something to be so."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)
