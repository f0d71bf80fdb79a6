"""A model on the wgpu host, for its tuner: times of its kernels, and trials of single kernels.

Input: a loaded `WgpuHost`; a kernel's text with its number of invocations, and the contents of its
buffers.  Output: the kernel of each step; results of runs with other kernels and their
milliseconds; the result of a trial, and whether the kernel wrote beyond its buffers.  Times are by
the device's clock if it has one, else until the work has ended.  tuning/host_tuner.py and
tuning/trial.py decide what to do with them.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilewright.base.abi import WORD_BYTES
from tilewright.base.errors import BundleCorrupt, MemoryLimit
from tilewright.bundle.format import REBUILD
from tilewright.hosts.inputs_outputs import Array
from tilewright.hosts.tuned_plan import (
    BundleKernel,
    CanaryBench,
    TrialMemory,
    TunedPlan,
    WordStorage,
)
from tilewright.hosts.wgpu import WgpuHost, wgpu
from tilewright.hosts.wgpu_calls import (
    WgpuCall,
    groups_of,
    is_exchangeable,
    number_at,
    separate_dispatches,
)
from tilewright.hosts.wgpu_features import WgpuDevice
from tilewright.hosts.wgpu_types import BufferUsage, GpuPass, GpuQueue, working

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


_GROUP = re.compile(r"@workgroup_size\((\d{1,3})\)")


@dataclass(frozen=True)
class WgpuKernel:
    """A kernel that is ready to run."""

    text: str
    tiles: int
    group: int
    pipeline: Any


class WgpuBench(CanaryBench[WgpuKernel]):
    """A wgpu device's bench for trials."""

    storage = WordStorage()

    def __init__(self, opened: WgpuDevice, api: Any, most: int) -> None:
        """most: the most bytes of a buffer"""
        self._opened, self._device, self._most = opened, opened.device, most
        self._usage = api.BufferUsage
        self.clock = Clock(opened, api.BufferUsage)
        self._errors = api.GPUError
        stage = api.ShaderStage.COMPUTE
        kinds = enumerate(("storage", "uniform"))
        self._layout = self._device.create_bind_group_layout(
            entries=[{"binding": n, "visibility": stage, "buffer": {"type": t}} for n, t in kinds]
        )
        self._pipelines = self._device.create_pipeline_layout(bind_group_layouts=[self._layout])

    @property
    def batch(self) -> float:
        """The least milliseconds of a timed run."""
        return self.clock.batch

    def runner(self, text: str, tiles: int) -> WgpuKernel:
        """Compiles a kernel.  Raises BundleCorrupt for an invalid text."""
        group = _GROUP.search(text)
        try:
            module = self._device.create_shader_module(code=self._opened.text(text))
            stage = {"module": module, "entry_point": "main"}
            made = self._device.create_compute_pipeline(layout=self._pipelines, compute=stage)
        except self._errors as error:
            raise BundleCorrupt(f"a kernel is not valid WGSL: {error}", hint=REBUILD) from error
        return WgpuKernel(text, tiles, int(group[1]) if group else 1, made)

    @working()
    def _reserve(self, memory: TrialMemory, scalars: Sequence[int]) -> None:
        if memory.size > self._most:
            raise MemoryLimit(
                "a candidate needs a larger buffer than the adapter has",
                hint="The kernel in use stays", bytes=memory.size, limit=self._most,
            )  # fmt: skip
        self._scalars = [*(begin // WORD_BYTES for begin in memory.begins), *scalars]
        usage = self._usage
        self._buffer = self._device.create_buffer(
            size=memory.size, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        )
        block = -(-(1 + len(self._scalars)) // 4) * 16
        self._block = self._device.create_buffer(size=block, usage=usage.UNIFORM | usage.COPY_DST)
        given = enumerate((self._buffer, self._block))
        self._bindings = self._device.create_bind_group(
            layout=self._layout,
            entries=[
                {"binding": n, "resource": {"buffer": b, "offset": 0, "size": b.size}}
                for n, b in given
            ],
        )

    @working()
    def _write(self, image: Array) -> None:
        self._device.queue.write_buffer(self._buffer, 0, image.tobytes())

    @working()
    def _after(self, runner: WgpuKernel) -> bytes:
        self._tell(runner)
        encoder = self._device.create_command_encoder()
        self._record(encoder.begin_compute_pass(), runner, 1, ends=True)
        self._device.queue.submit([encoder.finish()])
        return bytes(self._device.queue.read_buffer(self._buffer))

    def milliseconds(self, runner: WgpuKernel, times: int) -> float:
        """Milliseconds of one run, from `times` runs in one submission; NaN if the clock did not
        advance."""
        self._tell(runner)
        return self.clock.milliseconds(lambda run: self._record(run, runner, times)) / times

    @working()
    def _tell(self, runner: WgpuKernel) -> None:
        """Writes the kernel's arguments."""
        block = np.array([runner.tiles, *self._scalars], np.int64).astype(np.uint32)
        self._device.queue.write_buffer(self._block, 0, block.tobytes())

    def _record(self, run: Any, runner: WgpuKernel, times: int, *, ends: bool = False) -> None:
        run.set_pipeline(runner.pipeline)
        run.set_bind_group(0, self._bindings)
        for _ in range(times):
            run.dispatch_workgroups(*groups_of(runner.tiles, runner.group))
        if ends:
            run.end()


class WgpuModel(TunedPlan[WgpuHost, WgpuKernel]):
    """The largest plan of a model."""

    def bench(self) -> WgpuBench:
        """A bench for trials on the same device."""
        most = self._host.device.device.limits["max-storage-buffer-binding-size"]
        return WgpuBench(self._host.device, wgpu(), most)

    def time(self) -> float:
        """Milliseconds from the call to its end."""
        return self._host.time(1, self._plan)[0]

    def use(self, kernels: Mapping[int, WgpuKernel]) -> None:
        self._host.use({n: (k.text, k.tiles, k.group) for n, k in kernels.items()})

    def own(self, spec: int) -> BundleKernel | None:
        steps = zip(self._specs, self._calls, strict=True)
        call = next(
            (call for number, call in steps if number == spec and is_exchangeable(call)), None
        )
        if call is None:
            return None
        tiles, *scalars = (number_at(n, self._extents) for n in (call.tiles, *call.scalars))
        return BundleKernel(self._host.text(call.slot), tiles, tuple(scalars))

    def _stopwatch(self) -> Callable[[int], float]:
        clock = Clock(self._host.device, wgpu().BufferUsage)
        steps = self._host.dispatches(separate_dispatches(self._calls))
        steps.resize(self._extents)
        return lambda at: clock.milliseconds(partial(steps.put, at=at))

    @property
    def _calls(self) -> Sequence[WgpuCall]:
        return self._host.calls[self._plan]
