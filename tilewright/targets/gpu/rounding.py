"""Copies of f32 as halves: a thread for eight numbers, which are four whole words.

Input: a kernel whose output lies as halves (fusion/rounding.py).  Output: its loop nest; two
threads never write to one word.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Join, Load
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import EIGHT, Kernel
from tilewright.targets.gpu.staging import LANES


def lower_rounding(kernel: Kernel) -> TileFn | None:
    """None for kernels that store no halves."""
    if not kernel.buffers[0].halves:
        return None
    (axis,), value = kernel.axes, kernel.value
    assert isinstance(value, Load), f"{kernel.name} is no copy"
    b = Builder({}, axis.extent // EIGHT, kernel)
    first = b.tile * EIGHT
    places = (value.index.substitute({axis: first + i}) for i in range(0, EIGHT, LANES))
    b.store(0, first, Join(tuple(replace(value, index=at, lanes=LANES) for at in places)))
    return b.finish(kernel)
