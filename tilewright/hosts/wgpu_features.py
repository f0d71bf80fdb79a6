"""A wgpu device with the features that kernels may use, under the names of bundles.

Input: an adapter, limits.  Output: `WgpuDevice`, with texts in the form that naga accepts.  An
adapter's claim is tested: a text that uses the feature must become a pipeline.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tilewright.hosts.wgpu_types import AdapterInfo, GpuAdapter, GpuDevice

#: By the engine's name (web/engine/gpu_device.js): wgpu's name, "" if it is not requested from the
#: device; the line with which a text requires it; and a u32 expression that uses it.
FEATURES: Mapping[str, tuple[str, str, str]] = {
    "shader-f16": ("shader-f16", "enable f16;\n", "u32(f16(x) * 2.0h)"),
    # naga supports subgroups, but not yet the line that enables them.
    "subgroups": ("subgroup", "enable subgroups;\n", "subgroupShuffleXor(x, 1u)"),
    "packed_4x8_integer_dot_product": (
        "", "requires packed_4x8_integer_dot_product;\n", "dot4U8Packed(x, x)",
    ),
}  # fmt: skip
#: Requested where it exists: the device's own clock.
CLOCK = "timestamp-query"
#: Subgroup sizes that kernels may require; wgpu cannot request one of several.
SIZES = (4, 8, 16, 32, 64, 128)
#: The subgroup size, by the PCI id of vendors whose GPUs all have the same: NVIDIA and Apple.
ALIKE = {0x10DE: 32, 0x106B: 32}
#: Shared memory sizes that kernels may require beyond the guaranteed one; the limit's name.
SHARED, SHARED_LIMIT = (32768, 49152), "max-compute-workgroup-storage-size"
PROBE = """\
{line}@group(0) @binding(0) var<storage, read_write> memory: array<u32>;
@compute @workgroup_size(32)
fn main(@builtin(local_invocation_index) n: u32) {{ let x = memory[n]; memory[n] = {use}; }}
"""


@dataclass(frozen=True)
class WgpuDevice:
    """A device.

    features: that kernels may use, by the engine's names
    without: lines of these features that texts must not have here
    clock: True if it has its own clock
    """

    device: GpuDevice
    features: tuple[str, ...]
    without: tuple[str, ...]
    clock: bool

    def text(self, given: str) -> str:
        """A kernel's text in the form that this device accepts."""
        for line in self.without:
            given = given.replace(line, "", 1)
        return given


def open_device(found: GpuAdapter, limits: Mapping[str, int]) -> WgpuDevice:
    """The device of an adapter, with these limits and all features that kernels may use."""
    known = {own for own, _, _ in FEATURES.values() if own in found.features}
    most = max((n for n in SHARED if found.limits.get(SHARED_LIMIT, 0) >= n), default=0)
    device = found.request_device_sync(
        required_features=sorted({*known, *({CLOCK} & set(found.features))}),
        required_limits={**limits, **({SHARED_LIMIT: most} if most else {})},
    )
    had, without = [], []
    for name, (own, line, use) in FEATURES.items():
        if own and own not in known:
            continue
        taken = next((head for head in (line, "") if _works(device, head, use)), None)
        if taken is not None:
            had.append(name)
            without += [] if taken else [line]
    sizes = _size(found.info) if "subgroups" in had else ()
    shared = (f"shared-memory-{n}" for n in SHARED if n <= most)
    return WgpuDevice(
        device, (*had, *sizes, *shared), tuple(without), CLOCK in set(device.features)
    )


def _works(device: GpuDevice, line: str, use: str) -> bool:
    """True if a text becomes a pipeline; wgpu raises errors of several classes."""
    try:
        module = device.create_shader_module(code=PROBE.format(line=line, use=use))
        device.create_compute_pipeline(
            layout="auto", compute={"module": module, "entry_point": "main"}
        )
    except Exception:
        return False
    return True


def _size(info: AdapterInfo) -> Iterator[str]:
    """The subgroup size, if all subgroups are known to have one; wgpu cannot choose among several.

    wgpu 0.32 gives no sizes, so it is the vendor's, if all GPUs of the vendor have the same.
    """
    least, most = info.get("subgroup_min_size", 0), info.get("subgroup_max_size", 0)
    size = least if least == most and least else ALIKE.get(info.get("vendor_id", 0), 0)
    yield from (f"subgroups-{n}" for n in SIZES if n == size)


def what_is_lost(name: str, software: bool, lacking: Iterable[Collection[str]]) -> list[str]:
    """Sentences about what slows kernels down here, as the engine has them (web/engine/webgpu.js).

    lacking: for each kernel, the features that the device lacks
    """
    lacks = ", ".join(sorted({name for names in lacking for name in names}))
    found = [f"The WebGPU adapter {name} is software: kernels run on the CPU."] * software
    if lacks:
        found.append(
            f"The fastest kernels are not used: they need {lacks}, which the adapter {name} lacks."
        )
    return found
