"""A loaded model as a tuner sees it, on any device: its largest plan, and memory for trials.

Input: a host, whose inputs are generated once; a kernel's buffers and their contents.  Output: the
results and the time of each kernel of the bundle; for trials, memory of their own with canaries
between the buffers, and whether anything but the kernel's output changed in it.  The device's own
part is wgpu_tuning.py or cuda_tuning.py; tuning/host_tuner.py decides what to try.

    256 bytes, the first word for an index out of range | canary | output | canary | buffer 1 | …
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from tilewright.base.abi import WORD_BYTES
from tilewright.base.dtypes import DTYPES, in_memory
from tilewright.bundle import Manifest
from tilewright.hosts.device_memory import DeviceMemoryHost
from tilewright.hosts.inputs_outputs import Array, in_words, largest_extents

#: Measurements of a step, of which the shortest counts.
STEP_RUNS = 3

#: The device's host; a kernel that is ready to run on the device.
H = TypeVar("H", bound=DeviceMemoryHost)
R = TypeVar("R")


@dataclass(frozen=True)
class BundleKernel:
    """The bundle's own kernel of a step, on the largest extents.

    text: in the server's form for candidates of the target (`Target.module`)
    """

    text: str
    tiles: int
    scalars: tuple[int, ...]


class TunedPlan(ABC, Generic[H, R]):
    """The largest plan of a model."""

    def __init__(self, host: H) -> None:
        self._host, self._manifest = host, host.bundle.manifest
        self._plan = len(self._manifest.plans) - 1
        self._extents = largest_extents(self._manifest)
        self._specs = [step.spec for step in self._manifest.plans[self._plan].steps]
        self._inputs = _made_up(self._manifest)

    def results(self) -> dict[str, Array]:
        """The outputs for the inputs.  Raises KernelTrap."""
        self._host.reset()
        return dict(self._host.run(self._inputs).outputs)

    def profile(self) -> dict[int, float]:
        """The milliseconds of all steps of each kernel, by its number."""
        self.results()
        step = self._stopwatch()
        found: dict[int, float] = {}
        for at, spec in enumerate(self._specs):
            known = [ms for ms in (step(at) for _ in range(STEP_RUNS)) if not math.isnan(ms)]
            found[spec] = found.get(spec, 0.0) + min(known, default=0.0)
        return found

    def flops(self, spec: int) -> int:
        """Floating-point operations of one step of the kernel."""
        steps = self._manifest.plans[self._plan].steps
        return next(step.flops for step in steps if step.spec == spec)

    @abstractmethod
    def time(self) -> float:
        """Milliseconds of one warm run."""

    @abstractmethod
    def use(self, kernels: Mapping[int, R]) -> None:
        """Runs these kernels, by number, instead of the bundle's own."""

    @abstractmethod
    def own(self, spec: int) -> BundleKernel | None:
        """The kernel that a step runs; None if no step could run another one."""

    @abstractmethod
    def _stopwatch(self) -> Callable[[int], float]:
        """A function that measures a step by number, in milliseconds; NaN if the clock stood
        still."""


def _made_up(manifest: Manifest) -> dict[str, Array]:
    """Inputs of the largest bucket: small floats; for integers zeros, which are valid in any
    table."""
    rng = np.random.default_rng(0)
    found = dict[str, Array]()
    for info, shape in zip(manifest.inputs, manifest.plans[-1].inputs, strict=True):
        kind: np.dtype[np.generic] = np.dtype(in_memory(info.dtype).numpy)
        data = rng.standard_normal(shape) if kind.kind == "f" else np.zeros(shape)
        found[info.name] = data.astype(kind)
    return found


#: Bytes of a canary; buffers begin at multiples of it.
ROOM = 256
#: The contents of canaries, and of outputs before a run: a NaN if read as a float.
MARK = 0x7FC5A5A5


class LaidBuffer(Protocol):
    """A buffer of a kernel, and how 32-bit words hold its elements: "halves" two in a word, "bytes"
    four, otherwise one or two words per element."""

    @property
    def dtype(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def dense(self) -> str: ...


class Storage(Protocol):
    """How a device's memory stores the elements of a buffer."""

    def bytes_of(self, buffer: LaidBuffer) -> int: ...

    def stored(self, data: Array, buffer: LaidBuffer) -> Array:
        """Elements as the device stores them."""

    def loaded(self, data: bytes, buffer: LaidBuffer) -> Array:
        """Elements from stored bytes; f16 as f32."""


class WordStorage:
    """Memory of 32-bit words, in which narrow elements take a word each unless they are packed."""

    def bytes_of(self, buffer: LaidBuffer) -> int:
        each = {"halves": 2, "bytes": 4}.get(buffer.dense, 0)
        if each:
            return -(-buffer.size // each) * WORD_BYTES
        return buffer.size * max(WORD_BYTES, DTYPES[buffer.dtype].size)

    def stored(self, data: Array, buffer: LaidBuffer) -> Array:
        if buffer.dense:
            return in_words(data, np.float16 if buffer.dense == "halves" else data.dtype)
        return data if data.dtype.itemsize >= WORD_BYTES else data.astype(np.int32)

    def loaded(self, data: bytes, buffer: LaidBuffer) -> Array:
        kind = _kind_of(buffer)
        if buffer.dense:
            narrow = np.float16 if buffer.dense == "halves" else kind
            return np.frombuffer(data, narrow)[: buffer.size].astype(kind)
        return np.frombuffer(data, kind if kind.itemsize >= WORD_BYTES else np.int32).astype(kind)


class TypedStorage:
    """Memory in which each element takes the bytes of its type; f32 may be stored as f16."""

    def bytes_of(self, buffer: LaidBuffer) -> int:
        return buffer.size * self._lies_as(buffer).itemsize

    def stored(self, data: Array, buffer: LaidBuffer) -> Array:
        return data.astype(self._lies_as(buffer))

    def loaded(self, data: bytes, buffer: LaidBuffer) -> Array:
        return np.frombuffer(data, self._lies_as(buffer)).astype(_kind_of(buffer))

    def _lies_as(self, buffer: LaidBuffer) -> np.dtype[np.generic]:
        return np.dtype(np.float16) if buffer.dense == "halves" else _kind_of(buffer)


def _kind_of(buffer: LaidBuffer) -> np.dtype[np.generic]:
    kind: np.dtype[np.generic] = np.dtype(DTYPES[buffer.dtype].numpy)
    return kind


class TrialMemory:
    """The layout of a kernel's buffers.  The first one is the output.

    begins: the byte at which each begins;  size: bytes of all
    """

    def __init__(self, buffers: Sequence[LaidBuffer], storage: Storage) -> None:
        self._buffers, self._storage = tuple(buffers), storage
        self._sizes = [storage.bytes_of(buffer) for buffer in buffers]
        self.begins, at = list[int](), ROOM
        for size in self._sizes:
            self.begins.append(at + ROOM)
            at = -(-(at + ROOM + size) // ROOM) * ROOM
        self.size = at + ROOM

    def image(self, inputs: Sequence[Array]) -> Array:
        """The bytes before a run: the inputs, and marks everywhere else."""
        image = np.full(self.size // WORD_BYTES, MARK, np.uint32).view(np.uint8)
        image[:ROOM] = 0
        places = zip(self._buffers[1:], self.begins[1:], self._sizes[1:], inputs, strict=True)
        for buffer, begin, size, data in places:
            stored = np.ascontiguousarray(self._storage.stored(data, buffer)).view(np.uint8)
            image[begin : begin + size] = stored
        return image

    def judged(self, found: bytes, image: Array) -> tuple[Array, str]:
        """The output after a run that began with `image`, and what is wrong with the rest: "" for
        nothing."""
        data, begin = np.frombuffer(found, np.uint8), self.begins[0]
        end = begin + self._sizes[0]
        output = self._storage.loaded(data[begin:end].tobytes(), self._buffers[0])
        if data[:WORD_BYTES].any():
            return output, "it trapped: an index is out of range"
        same = data == image
        same[begin:end] = True
        wrong = "" if same.all() else f"it wrote to byte {int(np.argmin(same))}, not its output"
        return output, wrong


class CanaryBench(ABC, Generic[R]):
    """A device's bench for trials (tuning/trial.py), whose memory is a `TrialMemory`."""

    storage: Storage

    def lay(self, buffers: Sequence[LaidBuffer], scalars: Sequence[int]) -> None:
        """Allocates memory; called before anything else for a kernel.  Raises MemoryLimit."""
        self._memory = TrialMemory(buffers, self.storage)
        self._reserve(self._memory, scalars)

    def begin(self, inputs: Sequence[Array]) -> None:
        """Writes the inputs, and marks everywhere else."""
        self._image = self._memory.image(inputs)
        self._write(self._image)

    def run(self, runner: R) -> tuple[Array, str]:
        """The output after one run, and what is wrong with the rest of memory: "" for nothing."""
        return self._memory.judged(self._after(runner), self._image)

    @abstractmethod
    def _reserve(self, memory: TrialMemory, scalars: Sequence[int]) -> None: ...

    @abstractmethod
    def _write(self, image: Array) -> None: ...

    @abstractmethod
    def _after(self, runner: R) -> bytes:
        """All bytes of the memory after one run."""
