"""The wgpu host: runs a bundle's WGSL in this process, on Firefox's WebGPU (wgpu-native).

Input: a bundle with a section for WGSL, and input arrays.  Output: output arrays.  Memory is laid
out as by the browser engine (web/engine/webgpu.js): one buffer of 32-bit words, one dispatch per
step.  It is for checking that kernels hold under a second compiler of WGSL, and tunes nothing.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from tilewright.base.dtypes import DTYPES
from tilewright.base.errors import BundleCorrupt, HostError, MemoryLimit
from tilewright.bundle import SectionEntry, open_bundle
from tilewright.bundle.format import REBUILD, parse, reading
from tilewright.bundle.stored import tensors_of
from tilewright.hosts import vulkan
from tilewright.hosts.flat import FlatHost
from tilewright.hosts.tensors import Array

#: The target whose section it reads.
TARGET = "wgsl"

WORD = 4
#: Defaults of WebGPU: most workgroups along a dimension, and the step of uniform offsets in bytes.
MOST_GROUPS, ALIGNMENT = 65535, 256
#: Bytes that a device has room for without asking.
USUAL_BYTES = 2**27


def wgpu() -> Any:
    """The package.  Raises HostError if it is missing."""
    try:
        import wgpu
    except ImportError as error:
        raise HostError(
            "wgpu is not installed", hint="Install it: pip install 'tilewright[wgpu]'", host="wgpu"
        ) from error
    return wgpu


def adapter() -> Any:
    """The fastest adapter that there is, or Chromium's software driver.  Raises HostError.

    OpenGL's are left out: what they offer is not WebGPU.
    """
    api = wgpu()
    loader, driver = vulkan.loader(), vulkan.software()
    if loader is not None:
        # wgpu asks for it by name, and then gets the one that is there.
        ctypes.CDLL(str(loader), ctypes.RTLD_GLOBAL)
    if driver is not None:
        os.environ.setdefault("VK_ADD_DRIVER_FILES", str(driver))
    known = api.gpu.enumerate_adapters_sync()
    found = [a for a in known if a.info["backend_type"] != "OpenGL"]
    if not found:
        raise HostError(
            "wgpu finds no adapter",
            hint="Install the GPU's Vulkan driver, or Chromium, whose software driver is taken "
            "otherwise (Debian: apt-get install chromium), or name a driver in VK_ICD_FILENAMES",
            host="wgpu",
            adapters=[f"{a.info['device']} ({a.info['backend_type']})" for a in known],
        )
    return min(found, key=lambda a: _ORDER.get(a.info["adapter_type"], len(_ORDER)))


def about(found: Any) -> dict[str, Any]:
    """Name and description of an adapter, and whether it is software."""
    info = found.info
    return {
        "name": info["device"],
        "description": f"{info['device']} {info['description']}".strip(),
        "software": info["adapter_type"] == "CPU",
    }


#: By their speed; a CPU is last.
_ORDER = {"DiscreteGPU": 0, "IntegratedGPU": 1, "VirtualGPU": 2}


class WgpuHost(FlatHost):
    """One loaded bundle; `adapter` says what it runs on: `name`, `description`, `software`.

    Raises HostError, BundleCorrupt, BundleVersion, MemoryLimit.
    """

    def __init__(self, path: Path) -> None:
        self.bundle = open_bundle(path)
        found = adapter()
        self.adapter = about(found)
        with reading("the section for WGSL"):
            self._load(found, self.bundle.manifest.section(TARGET))

    def _load(self, found: Any, section: SectionEntry) -> None:
        api, (build,), facts = wgpu(), section.builds, section.facts
        if min(len(section.plans), len(build.plans)) < len(self.bundle.manifest.plans):
            raise ValueError("a plan is missing")
        own, other = int(facts["memory"]["bytes"]), facts.get("banks", {"bytes": [], "of": []})
        size = max(own, *other["bytes"], 0)
        sizes = ("max-storage-buffer-binding-size", "max-buffer-size")
        most = min(found.limits[name] for name in sizes)
        if size > most:
            raise MemoryLimit(
                "the model needs a larger buffer than the adapter has",
                hint=f"Build the bundle with weights in several buffers (--bank {most}), smaller "
                "buckets or a smaller model",
                bytes=size,
                limit=most,
            )
        room = max(size, USUAL_BYTES)
        limits = {"max-storage-buffer-binding-size": room, "max-buffer-size": 2 * room}
        limits["max-buffer-size"] = min(2 * room, found.limits["max-buffer-size"])
        self._device = found.request_device_sync(required_limits=limits)
        usage = api.BufferUsage
        self._memory, *self._banks = (
            self._device.create_buffer(
                size=n, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
            )
            for n in (own, *other["bytes"])
        )
        self._places, self._states = section.plans, facts["states"]
        of = other["of"] or [0] * len(facts["tensors"])
        halves, packed = (frozenset(facts.get(name, ())) for name in ("halves", "packed"))
        everything = zip(of, facts["tensors"], tensors_of(self.bundle), strict=True)
        for number, (bank, address, data) in enumerate(everything):
            dense = np.float16 if number in halves else data.dtype if number in packed else None
            self._write(address, _words_of(data, dense) if dense else data, bank)
        compute = api.ShaderStage.COMPUTE
        weights = {"type": "read-only-storage"}
        uniform = {"type": "uniform", "has_dynamic_offset": True}
        layout = self._device.create_bind_group_layout(
            entries=[
                {"binding": 0, "visibility": compute, "buffer": {"type": "storage"}},
                {"binding": 1, "visibility": compute, "buffer": uniform},
                *(
                    [{"binding": 2, "visibility": compute, "buffer": weights}]
                    if self._banks
                    else []
                ),
            ]
        )
        texts = parse(self.bundle.read(build.code), list[str], "the kernels for WGSL")
        whole = self._device.create_pipeline_layout(bind_group_layouts=[layout])
        read = [parse(self.bundle.read(ref), list[_Call], "a plan for WGSL") for ref in build.plans]
        # kernels that are better on some devices ask for features that this host does not ask for
        used = sorted({call.slot for calls in read for call in calls})
        pipelines = {slot: self._pipeline(whole, texts[slot]) for slot in used}
        self._plans = [_Dispatches(self, layout, pipelines, p) for p in read]

    def _pipeline(self, layout: Any, text: str) -> Any:
        try:
            module = self._device.create_shader_module(code=text)
            stage = {"module": module, "entry_point": "main"}
            return self._device.create_compute_pipeline(layout=layout, compute=stage)
        except wgpu().GPUError as error:
            raise BundleCorrupt(f"a kernel is not valid WGSL: {error}", hint=REBUILD) from error

    def _execute(self, plan: int, extents: Sequence[int]) -> None:
        dispatches = self._plans[plan]
        dispatches.resize(extents)
        encoder = self._device.create_command_encoder()
        dispatches.record(encoder)
        self._device.queue.submit([encoder.finish()])

    def _write(self, address: int, data: Array, bank: int = 0) -> None:
        """Elements of less than 32 bits take a word each.  bank: 0 is the model's own buffer."""
        words = data if data.dtype.itemsize >= WORD else data.astype(np.int32)
        with reading("the section for WGSL"):  # its addresses may be outside of memory
            if words.size:
                buffer = (self._memory, *self._banks)[bank]
                self._device.queue.write_buffer(buffer, address, words.tobytes())

    def _read(self, address: int, dtype: str, elements: int) -> Array:
        kind: Any = np.dtype(DTYPES[dtype].numpy)
        words = kind if kind.itemsize >= WORD else np.dtype(np.int32)
        if not elements:
            return np.zeros(0, kind)
        size = elements * words.itemsize
        with reading("the section for WGSL"):
            data = self._device.queue.read_buffer(self._memory, address, size)
        return np.frombuffer(data, words).astype(kind)


def _words_of(data: Array, kind: Any) -> Array:
    """Numbers of a narrow type as words of several, the first in the low bits."""
    narrow = data.astype(kind)
    return np.pad(narrow, (0, -data.size % (WORD // narrow.itemsize))).view(np.int32)


_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
#: A number, or the fields of what follows an extent.
_Number = int | Annotated[list[int], msgspec.Meta(min_length=6, max_length=6)]


class _Call(msgspec.Struct, frozen=True):
    """A step of a plan as the section has it (docs/bundle.md)."""

    slot: _Count
    tiles: _Number
    group: Annotated[int, msgspec.Meta(ge=1, le=256)]
    words: list[_Count]
    scalars: list[_Number]
    bank: _Count = 1


class _Dispatches:
    """A plan's steps with their uniform blocks: the number of invocations, the first word of each
    buffer, and run-time scalars."""

    def __init__(
        self,
        host: WgpuHost,
        layout: Any,
        pipelines: Mapping[int, Any],
        calls: Sequence[_Call],
    ) -> None:
        self._device, self._calls = host._device, calls
        self._pipelines = [pipelines[call.slot] for call in calls]
        longest = max((1 + len(c.words) + len(c.scalars) for c in calls), default=1)
        self._stride = -(-longest * WORD // ALIGNMENT) * ALIGNMENT
        self._blocks = np.zeros((max(len(calls), 1), self._stride // WORD), np.uint32)
        self._groups = [(0, 0)] * len(calls)
        usage = wgpu().BufferUsage
        size = self._blocks.nbytes
        self._uniform = self._device.create_buffer(size=size, usage=usage.UNIFORM | usage.COPY_DST)
        block = {"buffer": self._uniform, "offset": 0, "size": self._stride}
        memory = {"buffer": host._memory, "offset": 0, "size": host._memory.size}
        usual = [{"binding": 0, "resource": memory}, {"binding": 1, "resource": block}]
        more: list[Any] = [
            [{"binding": 2, "resource": {"buffer": bank, "offset": 0, "size": bank.size}}]
            for bank in host._banks
        ]
        groups = [
            self._device.create_bind_group(layout=layout, entries=usual + bank)
            for bank in more or [[]]
        ]
        with reading("a plan for WGSL"):
            self._bindings = [groups[call.bank - 1] for call in calls]

    def resize(self, extents: Sequence[int]) -> None:
        """Raises BundleCorrupt for numbers that are none for a device."""
        with reading("a plan for WGSL"):
            for at, call in enumerate(self._calls):
                count, *scalars = (_at(n, extents) for n in (call.tiles, *call.scalars))
                numbers = [count, *call.words, *scalars]
                self._blocks[at, : len(numbers)] = np.array(numbers, np.int64).astype(np.uint32)
                wanted = -(-count // call.group)
                rows = max(1, -(-wanted // MOST_GROUPS))
                if count < 0 or rows > MOST_GROUPS:
                    raise ValueError(f"a step has {count} invocations")
                self._groups[at] = (-(-wanted // rows), rows)
        self._device.queue.write_buffer(self._uniform, 0, self._blocks.tobytes())

    def record(self, encoder: Any) -> None:
        run = encoder.begin_compute_pass()
        for at, (pipeline, groups) in enumerate(zip(self._pipelines, self._groups, strict=True)):
            run.set_pipeline(pipeline)
            run.set_bind_group(0, self._bindings[at], [at * self._stride])
            run.dispatch_workgroups(*groups)
        run.end()


def _at(number: Any, extents: Sequence[int]) -> int:
    """A number that is fixed, or min((extent * times + plus) // by, most) * each."""
    if isinstance(number, int):
        return number
    extent, times, plus, by, most, each = number
    return int(min((extents[extent] * times + plus) // by, most) * each)
