"""Primitives: variables of schedules and code, each with an untuned and a tuned setting.

Input: a target's table of them.  Output: records; what is built to time a setting.  Which there are
and what they change is the target's; what was found about them is read by findings.py.  The idea is
nnJIT's, section 5.1 and its figure 9.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tilewright.kernel.roles import Operands

#: Rows, depth and columns of the product that is measured.  nnJIT takes 4096 each on a GPU; one CPU
#: core would need 3 seconds for a single run of that, and needs 6 milliseconds for this.
MATMUL = (512, 512, 512)

Kind = Literal["switch", "range", "size", "none"]
Columns = Literal["packed", "rows"]


def _same(schedule: Any) -> Any:
    return schedule


@dataclass(frozen=True)
class Setting:
    """How it changes the schedule of a product, or with which passes and variants code is made.

    variants: names of the variants that show it; (): the ones that a good host takes
    """

    label: str
    change: Callable[[Any], Any] = _same
    without: frozenset[str] = frozenset()
    variants: tuple[str, ...] = ()


@dataclass(frozen=True)
class Primitive:
    """One variable of the microbenchmark.

    kind:    "switch": there are these two settings; a consistent outcome fixes it, where devices
             differ both are tried; "range": the untuned setting is one end of a range that the
             space has anyway, and a consistent outcome takes that end out or leaves nothing else;
             "size": two of many numbers, and the outcome only says whether they matter; "none":
             not to be measured on this target, as `says` explains
    columns: how the columns of the product lie: a weight in panels, or rows as an input has them
    has:     whether a schedule of a product has the tuned setting; None: not in schedules
    concerns: whether a product leaves the choice; short sums cannot be unrolled, for one
    """

    name: str
    says: str
    kind: Kind
    untuned: Setting = Setting("")
    tuned: Setting = Setting("")
    columns: Columns = "packed"
    has: Callable[[Any], bool] | None = None
    concerns: Callable[[Operands], bool] = lambda roles: True

    @property
    def measured(self) -> bool:
        return self.kind != "none"

    def setting(self, tuned: bool) -> Setting:
        return self.tuned if tuned else self.untuned


@dataclass(frozen=True)
class Setup:
    """What is built to time one setting: a schedule by variant, and the passes that do not run.

    A host runs the variant that suits it.
    """

    schedules: tuple[tuple[str, Any], ...]
    without: frozenset[str]

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.schedules)
