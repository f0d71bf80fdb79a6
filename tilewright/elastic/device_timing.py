"""Times kernels and other short work on the device, by several runs.

Input: launches, or a function that gives the time of one run.  Output: microseconds of each run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tilewright.hosts.cuda_devices import CudaDevice
from tilewright.hosts.cuda_tasks import Launch

#: The most runs by which a kernel is timed, if time allows.
MOST_RUNS = 30
#: Consecutive launches of one run.
IN_A_ROW = 8


def repeat_timing(
    once: Callable[[], float], most: int, seconds: float, least: int = 1
) -> list[float]:
    """Calls `once` up to `most` times while the seconds last, but at least `least` times."""
    stop, found = time.perf_counter() + seconds, [once()]
    while len(found) < least or (len(found) < most and time.perf_counter() < stop):
        found.append(once())
    return found


def kernel_times(
    device: CudaDevice, launches: Sequence[Launch], seconds: float = 1.0
) -> list[float]:
    """Microseconds of each kernel alone: the shortest of several runs, by the device's clock."""
    each = seconds / max(1, len(launches))
    return [min(repeat_timing(_timed(device, launch), MOST_RUNS, each)) for launch in launches]


def _timed(device: CudaDevice, launch: Launch) -> Callable[[], float]:
    """Times a kernel by several consecutive launches, since the first one waits for the host."""
    run = device.record([launch] * IN_A_ROW)
    return lambda: 1e3 * device.milliseconds(run) / IN_A_ROW
