"""Settings of a session, and the devices that they need: a stream for each model.

Input: settings, names of critical tasks, the number of normal ones.  Output: devices; and the
choices of how many normal models run at once, and whether their runs have gates, in the order in
which they are tried.  No model is loaded here, and nothing is decided while requests come;
corun.py measures how much each choice slows critical models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from tilewright.base.errors import UsageError
from tilewright.elastic.block_trace import BlockTrace, traced
from tilewright.elastic.policy import Policy, policy_named
from tilewright.elastic.policy.budgets import LEVELS
from tilewright.elastic.policy.tasks import MOST_PHASES
from tilewright.hosts.cuda_devices import CpuDevice, CudaDevice, NvidiaDevice
from tilewright.hosts.cuda_driver import Driver

#: Multiprocessors of the CPU device, as the policy sees it.
CPU_SMS = 2


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


@dataclass
class Devices:
    """A stream for each model, and one for the budget alone."""

    critical: list[CudaDevice]
    normal: list[CudaDevice]
    control: CudaDevice
    sms: int
    traces: list[BlockTrace] = field(default_factory=list)


def devices(settings: Settings, critical: Sequence[str], normal: int) -> Devices:
    """The devices of a run.  critical: names of the tasks.  Raises HostError if a device is
    missing."""
    chosen = policy_named(settings.policy)
    if settings.kind == "cpu":
        made = Devices(
            [CpuDevice(1) for _ in critical], [CpuDevice(1) for _ in range(normal)],
            CpuDevice(1), CPU_SMS,
        )  # fmt: skip
    else:
        own, rest = _drivers(settings, chosen)
        made = Devices(
            [NvidiaDevice(own, urgent=chosen.urgent) for _ in critical],
            [NvidiaDevice(rest) for _ in range(normal)],
            NvidiaDevice(own, urgent=True),
            own.sms if own is rest else own.sms + rest.sms,
        )
    if settings.traced:
        made.traces = [
            *(BlockTrace(made.control, name, True) for name in critical),
            *(BlockTrace(made.control, f"normal {n}", False) for n in range(normal)),
        ]
        own_traces, other_traces = made.traces[: len(critical)], made.traces[len(critical) :]
        made.critical = list(map(traced, made.critical, own_traces))
        made.normal = list(map(traced, made.normal, other_traces))
    return made


def _drivers(settings: Settings, chosen: Policy) -> tuple[Driver, Driver]:
    if not chosen.split:
        one = Driver(0, settings.sms)
        return one, one
    sms = settings.sms or Driver(0).sms
    first = max(2, round(sms * chosen.split / 2) * 2)
    own, rest = Driver.parts(0, [first, sms - first])
    return own, rest


#: Numbers of normal models at once that are tried if a bound cannot be kept beside all of them.
FEWER = (2, 1)


class Concurrency(NamedTuple):
    """max_concurrent: the most normal models that run at once
    gated: True if their runs have gates (gates.py)
    """

    max_concurrent: int
    gated: bool = False


def choices(
    every: int, asked: int | None, promises: bool, may_wait: Callable[[], bool]
) -> Iterator[Concurrency]:
    """Choices in the order in which they are tried: more normal work first (decision 59).

    every: normal models;  asked: of them at once, 0: all; None: as many as bounds allow
    promises: True if the policy has bounds; otherwise only the first choice is tried
    may_wait: whether gates are possible; called only if the first choice breaks a bound
    """
    most = min(asked or every, every)
    yield Concurrency(most)
    if not promises:
        return
    gated = may_wait()
    if gated:
        yield Concurrency(most, True)
    if asked is None:
        yield from (Concurrency(number, gated) for number in FEWER if number < every)
