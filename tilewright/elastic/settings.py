"""Settings of a session: the policy, the device, bounds and how they are measured.

Input: numbers and names.  Output: checked records.  session_devices.py makes the devices,
concurrency.py lists how many normal models may run at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tilewright.base.errors import UsageError
from tilewright.elastic.policy import Policy
from tilewright.elastic.policy.budgets import LEVELS
from tilewright.elastic.policy.tasks import MOST_PHASES


@dataclass(frozen=True)
class Settings:
    """Settings of a session.

    policy: the name of a policy, or a `Policy`
    sms: multiprocessors to use; None: all;  phases: the most phases, each with its own budget
    max_concurrent: the most normal models that run at once, the others wait; 0: all; None: the
                    most, of all, 2 and 1, with which bounds can be kept
    steps: points of a curve besides 0;  traced: kernels record where and when they run
    l2_persistence: the critical models' weights stay in the L2 cache, as far as they fit
    gap_s: expected seconds between critical requests; 0: no gap.  The models are measured alone
           with the same gaps.
    use_least_gap: the policy uses the least gap between requests, if the arrivals have one

    Raises UsageError for numbers that are out of range.
    """

    policy: str | Policy = "tilewright"
    kind: Literal["gpu", "cpu"] = "gpu"
    sms: int | None = None
    max_slowdown: float = 1.05
    deadline_ms: float | None = None
    lease_ms: float = 0.0
    phases: int = 1
    steps: int = LEVELS
    ahead: int = 2
    max_concurrent: int | None = None
    traced: bool = False
    l2_persistence: bool = False
    gap_s: float = 0.0
    use_least_gap: bool = True
    measure_seconds: float = 4.0

    def __post_init__(self) -> None:
        if not 1 <= self.phases <= MOST_PHASES:
            raise UsageError(
                f"there cannot be {self.phases} phases", hint=f"Give 1 to {MOST_PHASES}"
            )
        if self.max_concurrent is not None and self.max_concurrent < 0:
            raise UsageError(
                f"{self.max_concurrent} normal models cannot run at once",
                hint="Give 0 (all) or more",
            )


@dataclass(frozen=True)
class CriticalSettings:
    """Settings of one critical model among several; None: as in the common settings.

    priority: larger goes first; among equals the earliest deadline goes first
    """

    path: Path
    max_slowdown: float | None = None
    deadline_ms: float | None = None
    priority: int = 0
