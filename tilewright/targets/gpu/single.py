"""The schedule of kernels as simple CUDA is written by hand: a thread for each tile, on purpose.

It suits every kernel, however long its reductions are; the loops are those of targets/plain.py.
It is no default and no candidate: with it kernels leave most of a GPU idle, for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.targets.schedule import Schedule


@dataclass(frozen=True)
class SingleSchedule(Schedule):
    """Nothing is shared out, nothing is staged."""

    form = "single"
