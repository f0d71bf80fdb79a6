"""Python's collector of cyclic garbage, stopped for a while.

A compilation makes millions of small objects that live to its end and hardly any cycles.  The
collector would walk all of them again and again, which takes as long as compiling does.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """No collection inside, unless another thread that paused it first ends earlier."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
