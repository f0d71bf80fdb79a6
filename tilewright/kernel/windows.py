"""The roles of a window kernel's axes: what its schedule and its lowering both ask.

Input: a kernel.  Output: `Windows`, or None for a kernel that vectors across the reduction do not
suit.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.kernel.expr import Load, dtype_of, walk
from tilewright.kernel.index import Var
from tilewright.kernel.spec import Kernel
from tilewright.kernel.vectorize import storable, stride


@dataclass(frozen=True)
class Windows:
    """`channel`: the axis of the vectors.  `pixel`: the axis whose neighbours share what they load
    (extent 1 if there is none).  `rows`: all other output axes.

    `pace`: elements of the window axis from pixel to pixel, and from tap to tap, in one unit;
    (0, 0) where neighbours share nothing.  `weighted`: whether each tap has a factor of its own.
    """

    channel: Var
    pixel: Var
    rows: tuple[Var, ...]
    taps: int
    pace: tuple[int, int]
    weighted: bool

    def in_order(self, pixels: int, taps: int) -> list[tuple[int, int]]:
        """(pixel, tap) pairs, those that read the same element side by side."""
        by_pixel, by_tap = self.pace
        pairs = [(i, t) for t in range(taps) for i in range(pixels)]
        return sorted(pairs, key=lambda p: p[0] * by_pixel + p[1] * by_tap)


def windows(kernel: Kernel) -> Windows | None:
    """The roles, or None: rows are reduced along memory, or vectors cannot hold the values."""
    if kernel.cols or not kernel.axes or len(kernel.stages) != 1:
        return None
    (stage,) = kernel.stages
    *outer, channel = kernel.axes
    inner = stage.axes[-1] if stage.axes else Var("one", 1)
    loads = [e for e in walk(stage.value) if isinstance(e, Load)]
    across = sum(stride(e.index, channel) == 1 for e in loads)
    along = sum(stride(e.index, inner) == 1 for e in loads)
    fits = all(map(storable, (kernel.dtype, dtype_of(stage.value))))
    if along > across or not fits or stride(kernel.store, channel) != 1:
        return None
    pixel = outer.pop() if outer else Var("one", 1)
    paces = [(stride(e.index, pixel) or 0, stride(e.index, inner) or 0) for e in loads]
    pace = next((p for p in paces if all(p)), (0, 0))
    weighted = any(not by_pixel and by_tap for by_pixel, by_tap in paces)
    return Windows(channel, pixel, tuple(outer), inner.extent, pace, weighted)
