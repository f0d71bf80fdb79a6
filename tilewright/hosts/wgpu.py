"""The wgpu host: runs a bundle's WGSL in this process, on Firefox's WebGPU (wgpu-native).

Input: a bundle with a section for WGSL, and input arrays.  Output: output arrays.  The memory
layout is the browser engine's (web/engine/webgpu.js): one buffer of 32-bit words, one dispatch per
step, each with the best kernel whose features the device has (hosts/wgpu_features.py). `tilewright
tune` exchanges kernels here (wgpu_tuning.py); pages tune by themselves.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np

from tilewright.base.abi import WORD_BYTES
from tilewright.base.dtypes import DTYPES
from tilewright.base.errors import BundleCorrupt, HostError, MemoryLimit
from tilewright.bundle import SectionEntry, open_bundle
from tilewright.bundle.format import REBUILD, parse, reading
from tilewright.bundle.weight_decoding import tensors_of
from tilewright.hosts import browser_discovery
from tilewright.hosts.device_memory import DeviceMemoryHost
from tilewright.hosts.inputs_outputs import Array, in_words
from tilewright.hosts.wgpu_buffers import Binding, Buffers, sizes_of
from tilewright.hosts.wgpu_calls import (
    WgpuAlternative,
    WgpuCall,
    exchanged,
    groups_of,
    joined_dispatches,
    number_at,
    runnable_calls,
)
from tilewright.hosts.wgpu_features import open_device, what_is_lost
from tilewright.hosts.wgpu_types import (
    AdapterFacts,
    GpuAdapter,
    GpuEncoder,
    GpuPass,
    WgpuPackage,
    working,
)

#: The target whose section it reads.
TARGET = "wgsl"

#: A default of WebGPU: the alignment of uniform offsets in bytes.
ALIGNMENT = 256
#: The largest buffer in bytes that a device allows by default.
USUAL_BYTES = 2**27


def wgpu() -> WgpuPackage:
    """The wgpu package.  Raises HostError if it is missing."""
    try:
        import wgpu
    except ImportError as error:
        raise HostError(
            "wgpu is not installed", hint="Install it: pip install 'tilewright[wgpu]'", host="wgpu"
        ) from error
    package: WgpuPackage = wgpu
    return package


def adapter() -> GpuAdapter:
    """The fastest adapter, or Chromium's software driver.  Raises HostError.

    OpenGL adapters are left out, since they do not offer all of WebGPU.
    """
    api = wgpu()
    loader, driver = browser_discovery.vulkan_loader(), browser_discovery.vulkan_software()
    if loader is not None:
        # wgpu loads it by name, and then gets this one.
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


def adapter_description(found: GpuAdapter) -> AdapterFacts:
    """Name, vendor and description of an adapter, and whether it is software."""
    info = found.info
    return {
        "name": info["device"],
        "vendor": VENDORS.get(info.get("vendor_id", 0), ""),
        "description": f"{info['device']} {info['description']}".strip(),
        "software": info["adapter_type"] == "CPU",
    }


#: Vendor names as WebGPU spells them, by the ids of PCI and Khronos.  wgpu gives no architecture.
VENDORS = {
    0x1002: "amd", 0x106B: "apple", 0x10DE: "nvidia", 0x13B5: "arm", 0x144D: "samsung",
    0x5143: "qualcomm", 0x8086: "intel",
}  # fmt: skip
#: Types of adapters, fastest first; a CPU comes last.
_ORDER = {"DiscreteGPU": 0, "IntegratedGPU": 1, "VirtualGPU": 2}


class WgpuHost(DeviceMemoryHost):
    """One loaded bundle.

    adapter: facts of its adapter: `name`, `vendor`, `description`, `software`, and `features` that
             kernels may use
    lost:    sentences about what slows it down here
    calls:   for each plan its steps, as this device runs them

    Raises HostError, BundleCorrupt, BundleVersion, MemoryLimit.
    """

    def __init__(self, path: Path) -> None:
        self.bundle = open_bundle(path)
        found = adapter()
        self.adapter = adapter_description(found)
        with working(), reading("the section for WGSL"):
            self._load(found, self.bundle.manifest.section(TARGET))

    def _load(self, found: GpuAdapter, section: SectionEntry) -> None:
        api, (build,), facts = wgpu(), section.builds, section.facts
        if min(len(section.plans), len(build.plans)) < len(self.bundle.manifest.plans):
            raise ValueError("a plan is missing")
        size = max(sizes_of(facts))
        sizes = ("max-storage-buffer-binding-size", "max-buffer-size")
        most = min(found.limits[name] for name in sizes)
        if size > most:
            raise MemoryLimit(
                "the model needs a larger buffer than the adapter has",
                hint=f"Build the bundle with buffers of at most that (--bank {most}), with smaller "
                "buckets or from a smaller model",
                bytes=size,
                limit=most,
            )
        room = max(size, USUAL_BYTES)
        limits = {"max-storage-buffer-binding-size": room, "max-buffer-size": 2 * room}
        limits["max-buffer-size"] = min(2 * room, found.limits["max-buffer-size"])
        self.device = open_device(found, limits)
        self._device = self.device.device
        self.adapter["features"] = list(self.device.features)
        self._buffers = Buffers(api, self._device, facts)
        self._places, self._states = section.plans, self._buffers.states
        for plan in section.plans:
            self._buffers.require_own([*plan["inputs"], *plan["outputs"]])
        halves, packed = (frozenset(facts.get(name, ())) for name in ("halves", "packed"))
        everything = zip(self._buffers.weights, tensors_of(self.bundle), strict=True)
        for number, (address, data) in enumerate(everything):
            dense = np.float16 if number in halves else data.dtype if number in packed else None
            self._write(address, in_words(data, dense) if dense else data)
        layout = self._buffers.layout()
        texts = parse(self.bundle.read(build.code), list[str], "the kernels for WGSL")
        self._layouts = layout, self._device.create_pipeline_layout(bind_group_layouts=[layout])
        needs = {int(slot): set(names) for slot, names in build.facts.get("needs", {}).items()}
        lacking = {slot: names - set(self.device.features) for slot, names in needs.items()}
        self.lost = what_is_lost(self.adapter["name"], self.adapter["software"], lacking.values())
        self.calls = [
            runnable_calls(parse(self.bundle.read(ref), list[WgpuCall], "a plan for WGSL"), lacking)
            for ref in build.plans
        ]
        self._texts: list[str] = texts
        self._pipelines: dict[int, object] = {}
        self._plans = [self.dispatches(calls) for calls in self.calls]

    def use(self, kernels: Mapping[int, tuple[str, int, int]]) -> None:
        """Replaces kernels, by number; each is given as text, invocations and threads of a group.
        Raises BundleCorrupt if one cannot become a pipeline."""
        new: dict[int, WgpuAlternative] = {}
        for spec, (text, tiles, group) in kernels.items():
            if text not in self._texts:
                self._texts.append(text)
            new[spec] = WgpuAlternative(self._texts.index(text), tiles, group, [])
        self._plans = [
            self.dispatches(exchanged(calls, [step.spec for step in plan.steps], new))
            for calls, plan in zip(self.calls, self.bundle.manifest.plans, strict=True)
        ]

    def text(self, slot: int) -> str:
        """The text of a slot's kernel."""
        return self._texts[slot]

    def dispatches(self, calls: Sequence[WgpuCall]) -> Dispatches:
        """The dispatches of these steps; joined steps are one dispatch."""
        run = joined_dispatches(calls)
        for slot in {call.slot for call in run} - self._pipelines.keys():
            self._pipelines[slot] = self._pipeline(self._layouts[1], self._texts[slot])
        return Dispatches(self, self._layouts[0], self._pipelines, run)

    def _pipeline(self, layout: object, text: str) -> object:
        try:
            module = self._device.create_shader_module(code=self.device.text(text))
            stage = {"module": module, "entry_point": "main"}
            return self._device.create_compute_pipeline(layout=layout, compute=stage)
        except wgpu().GPUError as error:
            raise BundleCorrupt(f"a kernel is not valid WGSL: {error}", hint=REBUILD) from error

    def _execute(self, plan: int, extents: Sequence[int]) -> None:
        dispatches = self._plans[plan]
        dispatches.resize(extents)
        with working():
            encoder = self._device.create_command_encoder()
            dispatches.record(encoder)
            self._device.queue.submit([encoder.finish()])

    def _write(self, address: int, data: Array) -> None:
        """Writes an array; elements of less than 32 bits take a word each."""
        words = data if data.dtype.itemsize >= WORD_BYTES else data.astype(np.int32)
        with working(), reading("the section for WGSL"):  # addresses may be outside of memory
            if words.size:
                place = self._buffers.at(address, words.nbytes)
                self._device.queue.write_buffer(*place, words.tobytes())

    def _read(self, address: int, dtype: str, elements: int) -> Array:
        kind: np.dtype[np.generic] = np.dtype(DTYPES[dtype].numpy)
        words = kind if kind.itemsize >= WORD_BYTES else np.dtype(np.int32)
        if not elements:
            return np.zeros(0, kind)
        size = elements * words.itemsize
        with working(), reading("the section for WGSL"):
            data = self._device.queue.read_buffer(*self._buffers.at(address, size), size)
        return np.frombuffer(data, words).astype(kind)


class Dispatches:
    """A plan's steps with their uniform blocks: the number of invocations, the first word of each
    buffer, and run-time scalars."""

    def __init__(
        self,
        host: WgpuHost,
        layout: object,
        pipelines: Mapping[int, object],
        calls: Sequence[WgpuCall],
    ) -> None:
        self._device, self._calls = host._device, calls
        self._pipelines = [pipelines[call.slot] for call in calls]
        longest = max((1 + len(c.words) + len(c.scalars) for c in calls), default=1)
        self._stride = -(-longest * WORD_BYTES // ALIGNMENT) * ALIGNMENT
        self._blocks = np.zeros((max(len(calls), 1), self._stride // WORD_BYTES), np.uint32)
        self._groups = [(0, 0)] * len(calls)
        usage = wgpu().BufferUsage
        size = self._blocks.nbytes
        self._uniform = self._device.create_buffer(size=size, usage=usage.UNIFORM | usage.COPY_DST)
        block = Binding(buffer=self._uniform, offset=0, size=self._stride)
        made = cache(partial(host._buffers.bindings, layout, block))
        with reading("a plan for WGSL"):
            for call in calls:
                host._buffers.require_call(call.words, call.bank, call.annexes)
            self._bindings = [made(call.bank, tuple(call.annexes)) for call in calls]

    def resize(self, extents: Sequence[int]) -> None:
        """Updates the numbers for these extents.  Raises BundleCorrupt for numbers that are out of
        range."""
        with reading("a plan for WGSL"):
            for at, call in enumerate(self._calls):
                count, *scalars = (number_at(n, extents) for n in (call.tiles, *call.scalars))
                numbers = [count, *call.words, *scalars]
                self._blocks[at, : len(numbers)] = np.array(numbers, np.int64).astype(np.uint32)
                self._groups[at] = groups_of(count, call.group)
        self._device.queue.write_buffer(self._uniform, 0, self._blocks.tobytes())

    def record(self, encoder: GpuEncoder) -> None:
        run = encoder.begin_compute_pass()
        for at in range(len(self._calls)):
            self.put(run, at)
        run.end()

    def put(self, run: GpuPass, at: int) -> None:
        """Adds one step to a compute pass."""
        run.set_pipeline(self._pipelines[at])
        run.set_bind_group(0, self._bindings[at], [at * self._stride])
        run.dispatch_workgroups(*self._groups[at])
