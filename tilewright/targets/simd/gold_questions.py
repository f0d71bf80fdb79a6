"""Gold questions (control samples): a schedule that is many times slower than the default.

Input: a kernel and its default schedule. Output: a schedule outside of the space, or None. Nothing
is measured here: the schedule must be slower on devices that were never tested, too.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.kernel.form import Contraction, form_as
from tilewright.kernel.spec import Kernel
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.contraction import ContractionSchedule

#: The least steps of a sum for which products, not the epilogue, take most of the time.
DEEP = 64
#: The least rows and columns for which operands are reused often enough to hide memory latency.
MANY = 16


def slow_schedule(kernel: Kernel, default: Schedule) -> Schedule | None:
    """A schedule with one number per instruction and a single row of four: scalar code, few
    registers.

    A vector instruction multiplies four numbers, and a register tile of 6x8 loads 14 numbers for 48
    products; this schedule loads five for four.  So it needs about ten times as many instructions
    of every kind on any processor.  No two candidates of a space differ as much.

    None where the order is not certain before a measurement: where the device, or loading the
    weights of a product with few rows or columns, can hide the cost of a schedule.
    """
    if not isinstance(default, ContractionSchedule) or default.lanes == 1:
        return None
    roles = form_as(kernel, Contraction).operands
    if roles.steps < DEEP or min(roles.m.extent, roles.n.extent) < MANY:
        return None
    return replace(default, x0=1, y0=4, r0=1, r1=0, lanes=1, stage=False)
