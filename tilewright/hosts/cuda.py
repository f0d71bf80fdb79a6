"""The CUDA host: runs a bundle's CUDA C++ on an NVIDIA GPU, or on the CPU for checking.

Input: a bundle with a section for CUDA, input arrays and a device (hosts/cuda_devices.py).  Output:
output arrays.  All values are in one allocation.  A plan's launches are recorded once as a CUDA
graph and then run as a whole.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from tilewright.base.budget import PROTOCOL
from tilewright.base.dtypes import DTYPES
from tilewright.base.errors import BundleVersion
from tilewright.bundle import SectionEntry, open_bundle
from tilewright.bundle.format import parse, reading
from tilewright.bundle.weight_decoding import tensors_of
from tilewright.hosts.cuda_devices import CudaDevice, NvidiaDevice
from tilewright.hosts.cuda_tasks import CScalar, Launch
from tilewright.hosts.device_memory import DeviceMemoryHost
from tilewright.hosts.inputs_outputs import Array, largest_extents
from tilewright.hosts.plan_interpreter import number_at

#: The target whose section it reads.
TARGET = "cuda"
#: The most recordings that are kept: one for each plan and its run-time extents.
MOST_RECORDINGS = 64
#: An exchanged kernel may read vectors, so buffers must be aligned to this many bytes.
VECTOR = 16

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Address = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
#: A number, or the fields of a number that depends on an extent.
_Number = _Count | Annotated[list[int], msgspec.Meta(min_length=6, max_length=6)]


class ElasticForm(msgspec.Struct, frozen=True):
    """The elastic form of a kernel, whose workers leave on request.

    saved: bytes that a worker saves with a tile;  chunks: the most chunks of a tile
    per_task: the most groups of tiles in a task
    """

    text: str
    saved: _Count
    chunks: _Count
    per_task: Annotated[int, msgspec.Meta(ge=1, lt=2**16)] = 1


class Texts(msgspec.Struct, frozen=True):
    """The code of a section: the start of all kernels' texts, and one text per slot.

    protocol: version of the elastic forms; the first version did not have this field
    """

    prelude: str
    kernels: list[str]
    turns: str
    elastic: list[ElasticForm]
    protocol: _Count = 1


class CudaAlternative(msgspec.Struct, frozen=True):
    """A kernel with which a step can run.

    least:  the compute capability that it needs;  only: no later capability has its features
    shared: bytes of shared memory to launch it with, besides those that its text declares
    """

    slot: _Count
    count: _Number
    group: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    scalars: list[_Number]
    shared: _Count = 0
    least: tuple[int, int] = (0, 0)
    only: bool = False


class CudaCall(CudaAlternative, frozen=True):
    """A step of a plan, as in the section (docs/bundle-cuda.md).

    better: other kernels for devices with their features, best first
    """

    bytes: list[_Address] = []
    better: list[CudaAlternative] = []


class CudaModule(msgspec.Struct, frozen=True):
    """A kernel that was compiled alone, as servers send candidates (`Target.module`).

    prelude: the text before its own;  shared: bytes, as in `CudaAlternative`
    scalars: its run-time numbers besides the number of invocations
    """

    prelude: str
    text: str
    group: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    shared: _Count
    scalars: _Count


@dataclass(frozen=True, eq=False)
class CudaKernel:
    """A compiled kernel that steps can run instead of the bundle's own.  tiles: invocations"""

    module: CudaModule
    tiles: int
    kernel: object


@dataclass(frozen=True)
class CudaStep:
    """The bundle's own kernel of a step, for given extents."""

    module: CudaModule
    tiles: int
    scalars: tuple[int, ...]


class Recordings:
    """Recorded work by key.  Beyond `most`, the least recently used is dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, Callable[[], None]] = OrderedDict()

    def get(self, key: Hashable, record: Callable[[], Callable[[], None]]) -> Callable[[], None]:
        """The recording of a key.  record: makes one that is missing"""
        if key not in self._kept:
            self._kept[key] = record()
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def clear(self) -> None:
        self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)


class CudaHost(DeviceMemoryHost):
    """One loaded bundle.

    device: where it runs; None: the first NVIDIA GPU

    Raises HostError, BundleCorrupt, BundleVersion, MemoryLimit.
    """

    def __init__(self, path: Path, device: CudaDevice | None = None) -> None:
        self.bundle = open_bundle(path)
        self.device = device or NvidiaDevice()
        with reading("the section for CUDA"):
            self._load(self.bundle.manifest.section(TARGET))

    def _load(self, section: SectionEntry) -> None:
        (build,), facts = section.builds, section.facts
        if min(len(section.plans), len(build.plans)) < len(self.bundle.manifest.plans):
            raise ValueError("a plan is missing")
        self._places, self._states = section.plans, facts["states"]
        self._half_states = frozenset(facts.get("half_states", ()))
        self._memory = self.device.memory(section.memory)
        halves = frozenset(facts["halves"])
        begin, end = section.memory, 0
        for n, (at, data) in enumerate(zip(facts["tensors"], tensors_of(self.bundle), strict=True)):
            given = data.astype(np.float16) if n in halves else data
            self._write(at, given)
            begin, end = min(begin, at), max(end, at + given.nbytes)
        #: The device memory of all weights: address and bytes.
        self.weights = self._memory.address + begin, max(0, end - begin)
        self._texts: Texts = parse(self.bundle.read(build.code), Texts, "the kernels for CUDA")
        texts = self._texts
        self._plans = [
            [self._chosen(call) for call in parse(self.bundle.read(ref), list[CudaCall], "a plan")]
            for ref in build.plans
        ]
        known = min(len(texts.kernels), len(texts.elastic))
        alternatives = {
            alternative.slot: alternative for calls in self._plans for alternative, _ in calls
        }
        if any(slot >= known for slot in alternatives):
            raise ValueError("a step names no slot")
        #: The kernels in use by slot, as encoded and as compiled.
        self._alternatives = dict(sorted(alternatives.items()))
        self._kernels = self._compiled(
            texts.prelude, {slot: texts.kernels[slot] for slot in self._alternatives}
        )
        self._recordings = Recordings(MOST_RECORDINGS)
        self.use({})
        self.reset()

    def clock(self, runs: int, plan: int = -1, repeat: int = 1) -> list[float]:
        """Milliseconds of a plan by the device's clock, one for each of `runs` runs.

        Each run executes the plan `repeat` times, on the current inputs and the largest extents.
        """
        recorded = self._recorded(plan, largest_extents(self.bundle.manifest), repeat)
        recorded()
        return [self.device.milliseconds(recorded) / repeat for _ in range(runs)]

    def _execute(self, plan: int, extents: Sequence[int]) -> None:
        self._recorded(plan, extents)()

    def _recorded(self, plan: int, extents: Sequence[int], repeat: int = 1) -> Callable[[], None]:
        self.device.ensure_current()
        key = (self._using, repeat, plan % len(self._plans), *extents)

        def record() -> Callable[[], None]:
            return self.device.record([launch for _, launch in self.steps(plan, extents)] * repeat)

        return self._recordings.get(key, record)

    def steps(self, plan: int, extents: Sequence[int]) -> list[tuple[int, Launch]]:
        """Slot and launch of each step that has work, in order."""
        calls = self._plans[plan % len(self._plans)]
        launches = zip(calls, self.launches(plan, extents), strict=True)
        return [
            (alternative.slot, launch) for (alternative, _), launch in launches if launch.blocks
        ]

    def launches(self, plan: int, extents: Sequence[int]) -> list[Launch]:
        """A launch for each step; steps without work have no blocks."""
        number = plan % len(self._plans)
        return [
            self._launch(alternative, begins, extents, self._others.get((number, place)))
            for place, (alternative, begins) in enumerate(self._plans[number])
        ]

    def use(self, kernels: Mapping[int, CudaKernel]) -> None:
        """Replaces kernels, by number, in all steps that can run another one.  Their elastic forms
        stay the bundle's."""
        self._using = frozenset(kernels.items())
        self._others = {
            (number, place): kernels[step.spec]
            for number, entry in enumerate(self.bundle.manifest.plans if kernels else ())
            for place, step in enumerate(entry.steps)
            if step.spec in kernels and self._takes(number, place)
        }

    def own(self, plan: int, place: int, extents: Sequence[int]) -> CudaStep | None:
        """The bundle's own kernel of a step; None if the step can run no other kernel."""
        if not self._takes(plan, place):
            return None
        alternative, _ = self._plans[plan][place]
        tiles, *scalars = (number_at(n, extents) for n in (alternative.count, *alternative.scalars))
        texts = self._texts
        module = CudaModule(
            texts.prelude,
            texts.kernels[alternative.slot],
            alternative.group,
            alternative.shared,
            len(scalars),
        )
        return CudaStep(module, tiles, tuple(scalars))

    def _takes(self, plan: int, place: int) -> bool:
        _, begins = self._plans[plan][place]
        return not any(begin % VECTOR for begin in begins)

    @property
    def forms(self) -> list[ElasticForm]:
        """The elastic forms, by slot."""
        return self._texts.elastic

    @cached_property
    def elastic_kernels(self) -> dict[int, object]:
        """The compiled elastic form of each slot in use; compiled on first use.  Raises
        BundleVersion for another version of the protocol."""
        if self._texts.protocol != PROTOCOL:
            raise BundleVersion(
                f"The bundle's elastic kernels have protocol {self._texts.protocol}, this program "
                f"has {PROTOCOL}",
                hint="Build the bundle again with this version",
                found=self._texts.protocol,
                expected=PROTOCOL,
            )
        made = self._elastic(dict.fromkeys(self._alternatives))
        rooms = {
            slot: self._room(slot) // self.device.sms
            for slot, kernel in made.items()
            if "ROOM" in self.forms[slot].text
            and self._waves(slot, kernel) > self._waves(slot, self._kernels[slot])
        }
        if not rooms:
            return made
        # Wanted are as many workers as the plain form has blocks, unless registers would spill.
        device = self.device
        return made | {
            slot: kernel
            for slot, kernel in self._elastic(rooms).items()
            if device.local_bytes(kernel) <= device.local_bytes(made[slot])
        }

    def _elastic(self, rooms: Mapping[int, int | None]) -> dict[int, object]:
        """The elastic forms by slot, compiled for this number of resident groups per
        multiprocessor; None: the compiler's choice."""
        texts = {}
        for slot, room in rooms.items():
            said = {
                "RESIDENTS": max(1, self._room(slot) // self.device.sms),
                "PER_TASK": self._per_task[slot],
            } | ({} if room is None else {"ROOM": room})
            lines = (f"#define {name} {value}\n" for name, value in said.items())
            ends = (f"#undef {name}\n" for name in said)
            texts[slot] = "".join((*lines, self.forms[slot].text, *ends))
        return self._compiled(self._texts.prelude + self._texts.turns, texts)

    def _waves(self, slot: int, kernel: object) -> int:
        """The most rounds in which a slot's groups fill the device."""
        alternative = self._alternatives[slot]
        return -(-max(self._blocks[slot]) // max(1, self._residents(kernel, alternative)))

    def _room(self, slot: int) -> int:
        """Resident groups of a slot's plain form on the device."""
        return self._residents(self._kernels[slot], self._alternatives[slot])

    def _residents(self, kernel: object, alternative: CudaAlternative) -> int:
        return self.device.residents(kernel, alternative.group, alternative.shared)

    @cached_property
    def _per_task(self) -> dict[int, int]:
        """Groups of tiles in a task of the elastic form, by slot.

        For short tiles each worker gets one task, since it must ask for each.  It is 1 if the
        number of groups depends on an extent: with few groups some workers would get none.
        """
        return {
            slot: max(1, min(self.forms[slot].per_task, -(-min(found) // max(1, self._room(slot)))))
            for slot, found in self._blocks.items()
        }

    @cached_property
    def _blocks(self) -> dict[int, set[int]]:
        """The numbers of groups of a slot's steps; 1 if the number depends on an extent."""
        found: dict[int, set[int]] = {}
        for calls in self._plans:
            for alternative, _ in calls:
                blocks = (
                    -(-alternative.count // alternative.group)
                    if isinstance(alternative.count, int)
                    else 1
                )
                found.setdefault(alternative.slot, set()).add(blocks)
        return found

    def tasks(self, slot: int, launch: Launch) -> int:
        """The number of tasks in a launch of a slot's elastic form."""
        return -(-launch.blocks // self._per_task[slot])

    def residents(self, slot: int, launch: Launch) -> int:
        """Resident workers of a slot's elastic form on the device."""
        kernel = self.elastic_kernels[slot]
        return self.device.residents(kernel, launch.group, launch.shared)

    def _compiled(self, prelude: str, texts: Mapping[int, str]) -> dict[int, object]:
        """The compiled kernels, by slot."""
        shared = [self._alternatives[slot].shared for slot in texts]
        made = self.device.compile(prelude, list(texts.values()), shared)
        return dict(zip(texts, made, strict=True))

    def _chosen(self, call: CudaCall) -> tuple[CudaAlternative, list[int]]:
        """The best kernel whose features the device has, and the offsets of the step's buffers."""
        device = self.device
        able = (
            alternative
            for alternative in call.better
            if alternative.least <= device.capability
            and (alternative.least == device.capability or not alternative.only)
            and alternative.shared <= device.shared_bytes
        )
        return next(able, call), call.bytes

    def _launch(
        self,
        call: CudaAlternative,
        begins: Sequence[int],
        extents: Sequence[int],
        other: CudaKernel | None,
    ) -> Launch:
        count, *scalars = (number_at(n, extents) for n in (call.count, *call.scalars))
        buffers, trap = [self._at(at, 0) for at in begins], self._at(0, 4)
        if other is not None:
            return launch_of(other, buffers, scalars, trap)
        args = arguments(buffers, (count, *scalars), trap)
        return Launch(
            self._kernels[call.slot], -(-count // call.group), call.group, args, call.shared
        )

    def _at(self, address: int, size: int) -> int:
        """The device's address.  Raises ValueError if the bytes are not all in memory."""
        if address + size > self._memory.size:
            raise ValueError(f"{size} bytes at {address} are outside of {self._memory.size}")
        return self._memory.address + address

    def _write(self, address: int, data: Array) -> None:
        self.device.ensure_current()
        with reading("the section for CUDA"):
            self.device.write(self._at(address, data.nbytes), data)

    def _read(self, address: int, dtype: str, elements: int) -> Array:
        self.device.ensure_current()
        kind: np.dtype[np.generic] = np.dtype(DTYPES[dtype].numpy)
        with reading("the section for CUDA"):
            data = self.device.read(self._at(address, elements * kind.itemsize),
                                    elements * kind.itemsize)  # fmt: skip
        return np.frombuffer(data, kind)


def launch_of(
    kernel: CudaKernel, buffers: Iterable[int], scalars: Sequence[int], trap: int
) -> Launch:
    """A launch.  buffers, trap: addresses; trap is that of the word for an index out of range"""
    group, shared = kernel.module.group, kernel.module.shared
    args = arguments(buffers, (kernel.tiles, *scalars), trap)
    return Launch(kernel.kernel, -(-kernel.tiles // group), group, args, shared)


def arguments(buffers: Iterable[int], numbers: Iterable[int], trap: int) -> tuple[CScalar, ...]:
    """The arguments of a kernel (targets/cuda/emit.py).  numbers: invocations, then scalars"""
    return (
        *map(ctypes.c_void_p, buffers),
        *map(ctypes.c_int, numbers),
        ctypes.c_void_p(trap),
    )
