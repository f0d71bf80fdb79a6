"""The space of one kernel: every schedule that is worth trying on a device, and in which order.

Input: a kernel, the machine that schedules must fit, the core of the lite space.  Output:
`Candidate`s, each once, the default first; equal input gives equal candidates in every process.
Two parts: "lite" are the tiles of targets/lite.py, for matrix products; "extended" are our own:
what a change or two make of the default, and of what it would be with other register tiles.
It lowers nothing.  docs/spaces.md explains what is varied and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilewright.kernel.spec import Kernel
from tilewright.targets.lite import RELAXATION, Core
from tilewright.targets.protocol import Candidate, Mark, fixed
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.table import way_of

#: Bytes of scratch memory that a worker has for schedules other than the default one.
SCRATCH = 256 * 1024


def candidates(
    kernel: Kernel,
    default: Schedule,
    machine: Machine,
    core: Core,
    relaxation: float = RELAXATION,
    choices: Callable[[Schedule], Iterable[Schedule]] = lambda schedule: (schedule,),
) -> list[Candidate]:
    """The default and, each once, all others: lite ones in the paper's order, then our own.

    `choices` gives a lite tile the settings of what is no size: loop order, copies.
    """
    rules = way_of(kernel).rules(kernel, default, machine)
    found: dict[Schedule, Candidate] = {}

    def take(schedules: Iterable[Schedule], mark: Mark) -> None:
        for schedule in schedules:
            normal = rules.normal(schedule)
            scratch = rules.scratch(normal)
            if normal in found or (mark != "default" and scratch > SCRATCH):
                continue
            cost, words = rules.cost(normal), rules.words(normal)
            kept = schedule if mark == "default" else normal
            found[normal] = Candidate(kept, mark, cost, scratch, words, rules.family(normal))

    take([default], "default")
    if fixed(kernel):
        return list(found.values())
    take((c for s in rules.lite(core, relaxation) for c in choices(s)), "lite")
    take((s for s in rules.extended() if rules.balanced(s)), "extended")
    return list(found.values())
