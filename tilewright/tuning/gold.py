"""Gold: a candidate that is much slower than the default on any device, where a kernel has one.

Input: a kernel, its schedules, the machine that they fit.  Output: the number of one of them, or
None.  It measures nothing: what it says must hold on devices that nobody has seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.kernel.roles import Operands, operands
from tilewright.kernel.schedule import Machine, Schedule, tile_cycles
from tilewright.kernel.spec import Kernel

#: How many times the default's cycles it costs by the model, at least.
SURELY = 2.5

#: Steps of a sum from which on a processor cannot hide that sums wait for themselves: it looks some
#: 500 instructions ahead, a step is at least 4, so that with few the next tile begins meanwhile.
DEEP = 256


def slow_candidate(
    kernel: Kernel, schedules: Sequence[Schedule], machine: Machine | None
) -> int | None:
    """The dearest candidate of a product that is bound by arithmetic; the default is number 0.

    Only sums in registers count: each waits for itself alone, so that a processor that finishes two
    multiply-adds per cycle, each after four, is idle most of the time with two of them.  A product
    of few rows or columns waits for memory whatever its schedule.
    """
    roles, default = operands(kernel), schedules[0]
    if roles is None or machine is None or default.along != "n":
        return None
    if roles.m.extent < 2 * default.x0 or roles.n.extent < 2 * default.y0:
        return None
    least = SURELY * _cycles(default, roles, machine, roles.panel)
    costs = {n: _cycles(s, roles, machine) for n, s in enumerate(schedules) if _waits(s, roles)}
    slow = max(costs, key=lambda n: (costs[n], -n), default=0)
    return slow if costs.get(slow, 0.0) >= least else None


def _waits(s: Schedule, roles: Operands) -> bool:
    return s.along == "n" and min(s.r1 or roles.steps, roles.steps) >= DEEP


def _cycles(s: Schedule, roles: Operands, machine: Machine, panel: int = 1) -> float:
    """Per vector of products; with a panel as if it came from beyond L1."""
    vectors = max(1, s.y0 // machine.lanes)
    return tile_cycles(s.x0, vectors, roles.m.extent, roles.n.extent, machine, panel)[0]
