"""Tries single kernels on a wgpu device, in memory that no model uses.

Input: a kernel's text with its number of invocations, and the contents of its buffers.  Output: its
result, whether it wrote anywhere else (trial_memory.py), milliseconds. tuning/trial.py judges.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.errors import BundleCorrupt, MemoryLimit
from tilewright.bundle.format import REBUILD
from tilewright.hosts.tensors import Array
from tilewright.hosts.trial_memory import WORD, CanaryBench, TrialMemory, WordStorage
from tilewright.hosts.wgpu_calls import groups_of
from tilewright.hosts.wgpu_clock import Clock
from tilewright.hosts.wgpu_errors import working
from tilewright.hosts.wgpu_features import WgpuDevice

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
        self._scalars = [*(begin // WORD for begin in memory.begins), *scalars]
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
