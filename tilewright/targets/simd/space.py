"""The search space of one kernel: every schedule worth trying on a device, in order.

Input: the rules of a kernel's schedules, and search parameters.  Output: `Candidate`s, each once,
the default first; equal input gives equal candidates in every process. There are two parts.  "lite"
are the tiles of targets/lite_space.py, for matrix products.  "extended" are
ours: the default with one or two changes, and the same for other register tiles. No code is
      generated here.  docs/spaces.md explains which settings vary and why.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from tilewright.targets.protocol import Candidate, Mark, fixed
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.search_rules import Rules
from tilewright.targets.strategy import Search

S = TypeVar("S", bound=Schedule)

#: The most bytes of scratch memory of a worker, for all schedules but the default.
SCRATCH = 256 * 1024


def candidates(rules: Rules[S], search: Search) -> list[Candidate]:
    """The default, then all others once each: lite candidates in the paper's order, then ours."""
    found: dict[Schedule, Candidate] = {}

    def take(schedules: Iterable[S], mark: Mark) -> None:
        for schedule in schedules:
            normal = rules.normal(schedule)
            scratch = rules.scratch(normal)
            if normal in found or (mark != "default" and scratch > SCRATCH):
                continue
            cost, words = rules.cost(normal), rules.words(normal)
            kept = schedule if mark == "default" else normal
            found[normal] = Candidate(kept, mark, cost, scratch, words, rules.family(normal))

    take([rules.default], "default")
    if fixed(rules.kernel):
        return list(found.values())
    lite = rules.lite(search.core, search.relaxation)
    take((c for s in lite for c in search.settings(s)), "lite")
    take((s for s in rules.extended() if rules.balanced(s)), "extended")
    return list(found.values())
