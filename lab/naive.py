"""Deliberately simple kernels: one thread for each output, and no shared memory.

Input: a target for GPUs.  Output: a function for `Options.schedule`.  Comparisons with Miriam need
such kernels: its baselines and gains are of kernels like Tango's, which leave a GPU partly idle.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.kernel.spec import Kernel
from tilewright.targets import Target
from tilewright.targets.schedule import Schedule


def naive(target: Target) -> Callable[[Kernel, object], Schedule]:
    """A function that gives every kernel the same simple schedule.  Raises InputError if the target
    has none."""
    schedule: Schedule = target.schedule({"form": "single"})
    return lambda kernel, variant: schedule
