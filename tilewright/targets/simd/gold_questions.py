"""Gold questions: a schedule that is many times slower than the default on any device.

Input: a kernel and its default schedule. Output: a schedule outside of the space, or None. It
measures nothing: its claim must hold on devices that nobody has seen.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.kernel.form import Contraction, form_as
from tilewright.kernel.spec import Kernel
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.contraction import ContractionSchedule

#: Steps of a sum from which on the products decide, and not what becomes of their sum.
DEEP = 64
#: Rows and columns from which on operands are used often enough not to be waited for.
MANY = 16


def slow_schedule(kernel: Kernel, default: Schedule) -> Schedule | None:
    """One number per instruction, and one row of four of them: no vectors, hardly any registers.

    A vector multiplies four numbers by one instruction, and a register tile of 6x8 loads 14 numbers
    for 48 products; this loads five for four.  So of all instructions it needs some ten times as
    many, whatever a processor makes of them.  The spaces have no pair of candidates that lie as far
    apart, and no scalar code: where devices, or the weights of a product of few rows or columns,
    hide what a schedule costs, the order of two candidates is not known before it is measured.
    """
    if not isinstance(default, ContractionSchedule) or default.lanes == 1:
        return None
    roles = form_as(kernel, Contraction).operands
    if roles.steps < DEEP or min(roles.m.extent, roles.n.extent) < MANY:
        return None
    return replace(default, x0=1, y0=4, r0=1, r1=0, lanes=1, stage=False)
