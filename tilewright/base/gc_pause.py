"""Pauses Python's cyclic garbage collector.

A compilation makes millions of small objects that live to its end, and hardly any cycles.  Without
a pause the collector takes as long as compiling does.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """No collection inside, unless another thread that paused it earlier resumes it."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
