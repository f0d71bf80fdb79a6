"""The result of a run: each critical model with its requests, and the normal work beside them.

Input: answered requests, counts, seconds.  Output: `CorunResult`; nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.quantiles import LatencyQuantiles, tail
from tilewright.elastic.agents import RequestTimes
from tilewright.elastic.policy import Noticed, Recalibrated
from tilewright.elastic.policy.sequential_test import PROMISED
from tilewright.elastic.timeline import BlockSpan


@dataclass(frozen=True)
class CriticalResult:
    """One critical model.

    solo_us: of a request alone, at first;  refused, overdue: the number of such requests
    over_bound: requests whose running time exceeded the bound, because other work disturbed them
    over_by_waiting: requests within the bound whose latency exceeded it, because they waited
    noticed: corrections of curves that promised too much
    recalibrated: changes of the time alone; a request is compared with the time alone when it ran
    """

    name: str
    solo_us: float
    max_slowdown: float
    deadline_us: float | None
    answered: tuple[RequestTimes, ...]
    refused: int
    overdue: int
    noticed: tuple[Noticed, ...] = ()
    recalibrated: tuple[Recalibrated, ...] = ()

    @property
    def bound_kept(self) -> bool:
        """True if at most the promised share of requests exceeded the bound, under any policy."""
        return self.over_bound <= PROMISED * len(self.answered) and not self.gave_up

    @property
    def gave_up(self) -> bool:
        """True if normal work was ended because no budget keeps the bound."""
        return not all(notice.attainable for notice in self.noticed)

    @property
    def waited(self) -> LatencyQuantiles:
        """Latency, including waiting, over the time alone.  Raises UsageError without a request."""
        return tail([answer.waited for answer in self.answered])

    @property
    def service(self) -> LatencyQuantiles:
        """Running time over the time alone.  A bound limits this figure."""
        return tail([answer.slowdown for answer in self.answered])

    @property
    def over_bound(self) -> int:
        return sum(a.slowdown > self.max_slowdown for a in self.answered)

    @property
    def over_by_waiting(self) -> int:
        return sum(a.slowdown <= self.max_slowdown < a.waited for a in self.answered)

    @property
    def missed(self) -> int:
        """Answers after their deadline, and requests that were refused or overdue."""
        late = (self.deadline_us is not None and a.latency_us > self.deadline_us
                for a in self.answered)  # fmt: skip
        return sum(late) + self.refused + self.overdue


@dataclass(frozen=True)
class CorunResult:
    """The result of one run.

    critical: in the order in which they were named
    inferences: of normal models;  alone: of the same models in the same time, each with the device
        to itself
    decision_us: mean processor time of a decision, without ticks of the watchdog
    """

    seconds: float
    critical: tuple[CriticalResult, ...]
    inferences: tuple[int, ...]
    alone: tuple[float, ...]
    decision_us: float
    spans: tuple[BlockSpan, ...] = ()

    @property
    def normal_share(self) -> float:
        """Normal work, as a share of what the device does of it alone."""
        return share(self.inferences, self.alone)

    @property
    def duty(self) -> float:
        """The share of the time that the critical models would take alone."""
        alone = sum(answer.solo_us for c in self.critical for answer in c.answered)
        return alone / (self.seconds * 1e6)


def share(inferences: Sequence[int], alone: Sequence[float]) -> float:
    pairs = zip(inferences, alone, strict=True)
    return sum(done / most for done, most in pairs if most)
