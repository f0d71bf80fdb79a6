"""The measures by which a co-run is judged, as pure functions of times.

Input: latencies, counts, spans of blocks.  Output: ratios and quantiles.  All times of one call
must have the same unit, seconds or any other.  Nothing here measures.  Definitions are those of
docs/workloads.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Protocol

from lab.workloads import Workload
from tilewright.base.errors import UsageError

#: Threads of a warp, and warps that a multiprocessor of compute capability 7.0, 8.0 or 9.0 holds.
WARP, MOST_WARPS = 32, 64


def above(values: Sequence[float], bound: float) -> float:
    """Share of the values that exceed a bound: deadline misses, slowdowns above `max_slowdown`."""
    return sum(v > bound for v in values) / len(values) if values else 0.0


def queued(came: Sequence[float], took: Sequence[float]) -> list[float]:
    """Latencies, including waiting, of requests that are served one at a time in order of arrival.
    A stream has this waiting even if it runs alone.

    came: times of arrival, ascending;  took: the service time of each
    """
    found, free = [], 0.0
    for at, time in zip(came, took, strict=True):
        free = max(free, at) + time
        found.append(free - at)
    return found


def normal_share(
    served: Mapping[str, int], solo: Mapping[str, float], seconds: float, duty: float
) -> float:
    """The work done by normal models, as a share of the work possible beside the critical ones.

    served: inferences by model;  solo: seconds of one inference alone on the device
    duty:   the share of the device's time that the critical models need when alone, below 1.  Pass
            0 if they are closed loops, which would take all of it: the result is then a share of
            the device
    """
    if not 0 <= duty < 1:
        raise UsageError(
            "Critical models leave no time for normal ones",
            hint="The share of what is possible needs a duty below 1",
            duty=duty,
        )
    return sum(count * solo[name] for name, count in served.items()) / (seconds * (1 - duty))


# ---- totals --------------------------------------------------------------------------------------


def sequential_rate(workload: Workload, solo: Mapping[str, float]) -> float:
    """Requests per second if models run one at a time, closed loops taking turns.

    Open arrivals take their share of the time first.  Above a load of 1 their queues grow, and
    closed loops get nothing.
    """
    load = workload.load(solo)
    opened = sum(s.arrival.rate for s in workload.streams)
    if load >= 1:
        return opened / load
    cycle = [solo[s.model] for s in workload.streams if s.arrival.clients]
    return opened + (len(cycle) * (1 - load) / sum(cycle) if cycle else 0.0)


def undisturbed_rate(workload: Workload, solo: Mapping[str, float]) -> float:
    """Requests per second if no model slowed another down: each closed loop at its solo rate."""
    return sum(1 / solo[s.model] if s.arrival.clients else s.arrival.rate for s in workload.streams)


def most_gain(workload: Workload, solo: Mapping[str, float]) -> float:
    """The upper bound of the throughput over that of sequential execution: computed, not
    measured."""
    return undisturbed_rate(workload, solo) / sequential_rate(workload, solo)


# ---- spans ---------------------------------------------------------------------------------------


class Resident(Protocol):
    """A block that was on a multiprocessor from begin to end."""

    @property
    def sm(self) -> int: ...
    @property
    def begin(self) -> float: ...
    @property
    def end(self) -> float: ...
    @property
    def threads(self) -> int: ...


def _warp_time(spans: Iterable[Resident]) -> float:
    return sum(ceil(s.threads / WARP) * (s.end - s.begin) for s in spans)


def occupancy(spans: Iterable[Resident], sms: int, time: float, most: int = MOST_WARPS) -> float:
    """Resident warps as a share of those that `sms` multiprocessors could hold during `time`, idle
    time included.  most: warps that one multiprocessor holds
    """
    return _warp_time(spans) / (most * sms * time)


def achieved_occupancy(spans: Sequence[Resident], most: int = MOST_WARPS) -> float:
    """Resident warps as a share of `most`, over the time in which a multiprocessor has any, as
    profilers count.

    This is Miriam's measure: (active warps / active cycles) / most warps.
    """
    active = 0.0
    for sm in {s.sm for s in spans}:
        covered = float("-inf")
        for span in sorted((s for s in spans if s.sm == sm), key=lambda s: s.begin):
            active += max(0.0, span.end - max(span.begin, covered))
            covered = max(covered, span.end)
    return _warp_time(spans) / (most * active) if active else 0.0


def room_latencies(requested: Sequence[float], begun: Sequence[float]) -> list[float]:
    """From each request to the first critical block that begins at or after it.

    begun: times at which critical blocks began, ascending; requests after the last have no answer
    and are left out
    """
    found = []
    for at in requested:
        n = bisect_left(begun, at)
        if n < len(begun):
            found.append(begun[n] - at)
    return found
