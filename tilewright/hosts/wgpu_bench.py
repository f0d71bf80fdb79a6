"""Tries single kernels on a device of wgpu, in memory of their own that no model sees.

Input: a kernel's text with its number of invocations, what its buffers hold.  Output: what it
computed, whether it wrote anywhere else, milliseconds.  Who judges is tuning/trial.py.

    64 words, the first for an index out of range | canary | output | canary | buffer 1 | canary …
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tilewright.base.dtypes import DTYPES
from tilewright.base.errors import BundleCorrupt, MemoryLimit
from tilewright.bundle.format import REBUILD
from tilewright.hosts.tensors import Array
from tilewright.hosts.wgpu_calls import groups_of
from tilewright.hosts.wgpu_clock import Clock
from tilewright.hosts.wgpu_errors import working
from tilewright.hosts.wgpu_features import WgpuDevice

#: Words of a canary, and of what buffers begin at.
ROOM = 64
#: What canaries hold, and outputs before a kernel ran: as a float, not a number.
MARK = 0x7FC5A5A5
WORD = 4
_GROUP = re.compile(r"@workgroup_size\((\d{1,3})\)")


class Lain(Protocol):
    """A buffer: "halves" lie two in a word, "bytes" four, else each element takes a word or two."""

    @property
    def dtype(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def dense(self) -> str: ...


def length_of(buffer: Lain) -> int:
    """How many words a buffer takes."""
    each = {"halves": 2, "bytes": 4}.get(buffer.dense, 0)
    if each:
        return -(-buffer.size // each)
    return buffer.size * max(1, DTYPES[buffer.dtype].size // WORD)


@dataclass(frozen=True)
class Runner:
    """A kernel that is ready to run."""

    text: str
    tiles: int
    group: int
    pipeline: Any


class KernelBench:
    """The device's place for trials; `lay` for a kernel before all else."""

    def __init__(self, opened: WgpuDevice, api: Any, most: int) -> None:
        """most: bytes that a buffer may have"""
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
        """Milliseconds that a timed run should take at least."""
        return self.clock.batch

    def runner(self, text: str, tiles: int) -> Runner:
        """Raises BundleCorrupt for a text that is not valid."""
        group = _GROUP.search(text)
        try:
            module = self._device.create_shader_module(code=self._opened.text(text))
            stage = {"module": module, "entry_point": "main"}
            made = self._device.create_compute_pipeline(layout=self._pipelines, compute=stage)
        except self._errors as error:
            raise BundleCorrupt(f"a kernel is not valid WGSL: {error}", hint=REBUILD) from error
        return Runner(text, tiles, int(group[1]) if group else 1, made)

    @working()
    def lay(self, buffers: Sequence[Lain], scalars: Sequence[int]) -> None:
        """Makes room.  The first buffer is the output.  Raises MemoryLimit."""
        self._buffers, self._begins, at = tuple(buffers), [], ROOM
        for buffer in buffers:
            self._begins.append(at + ROOM)
            at = -(-(at + ROOM + length_of(buffer)) // ROOM) * ROOM
        self._words = at + ROOM
        if self._words * WORD > self._most:
            raise MemoryLimit(
                "a kernel that is tried needs a larger buffer than the adapter has",
                hint="It stays as it is", bytes=self._words * WORD, limit=self._most,
            )  # fmt: skip
        self._scalars = [*self._begins, *scalars]
        usage = self._usage
        self._memory = self._device.create_buffer(
            size=self._words * WORD, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        )
        block = -(-(1 + len(self._scalars)) // 4) * 16
        self._block = self._device.create_buffer(size=block, usage=usage.UNIFORM | usage.COPY_DST)
        given = enumerate((self._memory, self._block))
        self._bindings = self._device.create_bind_group(
            layout=self._layout,
            entries=[
                {"binding": n, "resource": {"buffer": b, "offset": 0, "size": b.size}}
                for n, b in given
            ],
        )

    @working()
    def begin(self, inputs: Sequence[Array]) -> None:
        """Writes the inputs, and marks everything else."""
        image = np.full(self._words, MARK, np.uint32)
        image[:ROOM] = 0
        for buffer, at, data in zip(self._buffers[1:], self._begins[1:], inputs, strict=True):
            image[at : at + length_of(buffer)] = words_of(data, buffer.dense)
        self._image = image
        self._device.queue.write_buffer(self._memory, 0, image.tobytes())

    @working()
    def run(self, runner: Runner) -> tuple[Array, str]:
        """The output after one run, and what is wrong with all else: "" for nothing."""
        self._write(runner)
        encoder = self._device.create_command_encoder()
        self._record(encoder.begin_compute_pass(), runner, 1, ends=True)
        self._device.queue.submit([encoder.finish()])
        words = np.frombuffer(self._device.queue.read_buffer(self._memory), np.uint32)
        at, size = self._begins[0], length_of(self._buffers[0])
        if words[0]:
            return self._output(words), "it trapped: an index is out of range"
        same = words == self._image
        same[at : at + size] = True
        wrong = "" if same.all() else f"it wrote to word {int(np.argmin(same))}, not its output"
        return self._output(words), wrong

    def milliseconds(self, runner: Runner, times: int) -> float:
        """Of one run of `times` in one submission; NaN if the clock did not advance."""
        self._write(runner)
        return self.clock.milliseconds(lambda run: self._record(run, runner, times)) / times

    @working()
    def _write(self, runner: Runner) -> None:
        block = np.array([runner.tiles, *self._scalars], np.int64).astype(np.uint32)
        self._device.queue.write_buffer(self._block, 0, block.tobytes())

    def _record(self, run: Any, runner: Runner, times: int, *, ends: bool = False) -> None:
        run.set_pipeline(runner.pipeline)
        run.set_bind_group(0, self._bindings)
        for _ in range(times):
            run.dispatch_workgroups(*groups_of(runner.tiles, runner.group))
        if ends:
            run.end()

    def _output(self, words: Array) -> Array:
        buffer, at = self._buffers[0], self._begins[0]
        found = words[at : at + length_of(buffer)]
        if buffer.dense == "halves":
            return found.view(np.float16)[: buffer.size].astype(np.float32)
        kind: Any = np.dtype(DTYPES[buffer.dtype].numpy)
        return found.view(kind if kind.itemsize >= WORD else np.int32).astype(kind)


def words_of(data: Array, dense: str) -> Array:
    """Elements as the device's words of 32 bits."""
    if dense:
        narrow = data.astype(np.float16) if dense == "halves" else data
        whole = np.pad(narrow, (0, -data.size % (WORD // narrow.itemsize)))
        return np.ascontiguousarray(whole).view(np.uint32)
    wide = data if data.dtype.itemsize >= WORD else data.astype(np.int32)
    return np.ascontiguousarray(wide).view(np.uint32)
