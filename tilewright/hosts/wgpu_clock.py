"""Times work on a wgpu device: by the device's own clock, otherwise by waiting for the work.

Input: a device, a function that records work into a compute pass.  Output: milliseconds; NaN if the
clock did not advance.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from tilewright.hosts.wgpu_errors import working
from tilewright.hosts.wgpu_features import WgpuDevice
from tilewright.hosts.wgpu_types import BufferUsage, GpuPass, GpuQueue

#: Milliseconds of the batch in which one run is timed: with the device's clock, and without it,
#: since waiting itself takes up to a millisecond.
STAMPED, WAITED = 3.0, 12.0
_STAMPS = 16


class Clock:
    """batch: the least milliseconds of a timed run"""

    def __init__(self, opened: WgpuDevice, usage: BufferUsage) -> None:
        self._device = opened.device
        self._set: object = None
        self.batch = STAMPED if opened.clock else WAITED
        if opened.clock:
            self._set = self._device.create_query_set(type="timestamp", count=2)
            self._into = self._device.create_buffer(
                size=_STAMPS, usage=usage.QUERY_RESOLVE | usage.COPY_SRC
            )
            self._tick = _tick(self._device.queue)

    @working()
    def milliseconds(self, record: Callable[[GpuPass], None]) -> float:
        """Milliseconds of the work that `record` puts into a compute pass."""
        encoder = self._device.create_command_encoder()
        writes = self._set and {
            "query_set": self._set,
            "beginning_of_pass_write_index": 0,
            "end_of_pass_write_index": 1,
        }
        run = encoder.begin_compute_pass(timestamp_writes=writes)
        record(run)
        run.end()
        if self._set:
            encoder.resolve_query_set(self._set, 0, 2, self._into, 0)
        start = time.perf_counter()
        self._device.queue.submit([encoder.finish()])
        if self._set:
            begin, end = np.frombuffer(self._device.queue.read_buffer(self._into), np.uint64)
            spent = (int(end) - int(begin)) * self._tick / 1e6
        else:
            self._device.queue.on_submitted_work_done_sync()
            spent = (time.perf_counter() - start) * 1e3
        return spent if spent > 0 else math.nan


def _tick(queue: GpuQueue) -> float:
    """Nanoseconds of a tick.  wgpu-native returns time stamps in the driver's unit, and wgpu has no
    function for that unit.  Without it nanoseconds are assumed, and ratios are still right."""
    try:
        from wgpu.backends.wgpu_native import lib  # type: ignore[import-untyped]

        return float(lib.wgpuQueueGetTimestampPeriod(queue._internal)) or 1.0
    except (ImportError, AttributeError):
        return 1.0
