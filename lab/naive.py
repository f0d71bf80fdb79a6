"""Deliberately simple kernels: one thread for each output, nothing staged, nothing shared out.

Input: a target for GPUs.  Output: what `Options.schedule` takes.  Miriam's premise needs such
kernels: its baselines and its gains come from kernels like Tango's, which leave a GPU idle.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.kernel.spec import Kernel
from tilewright.targets import Target
from tilewright.targets.schedule import Schedule


def naive(target: Target) -> Callable[[Kernel, object], Schedule]:
    """The same simple schedule for every kernel.  Raises InputError: the target has none."""
    schedule: Schedule = target.schedule({"form": "single"})
    return lambda kernel, variant: schedule
