"""Classes of devices that run WGSL, by vendor and architecture.

Input: none.  Output: `CLASSES`, the most specific first.

A class falls back to a wider one: `webgpu-nvidia-ampere` to `webgpu-nvidia` to `webgpu`.  A wider
class has the smallest value of each figure, and the widest warp.  Limits of a workgroup are those
that WebGPU guarantees on every adapter, since engines request no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tilewright.targets.device_class import DeviceClass
from tilewright.targets.gpu.workgroup_limits import WorkgroupLimits
from tilewright.targets.lite_space import Core

KIND = "webgpu"
#: The only variant of the code.
VARIANT = "core"

#: Figures of one core by vendor and architecture, as `GPUAdapterInfo` spells them.  "Core" is an
#: SM, CU, WGP half, subslice, Xe core, shader core or SP.  The figures: words of registers, bytes
#: of L1 or shared memory, resident warps, threads of a warp.  docs/device-classes.md names the
#: sources.
GPUS: Mapping[str, Mapping[str, tuple[int, int, int, int]]] = {
    "nvidia": {
        "maxwell": (65536, 98304, 64, 32),
        "pascal": (65536, 98304, 64, 32),
        "volta": (65536, 131072, 64, 32),
        "turing": (65536, 98304, 32, 32),
        "ampere": (65536, 131072, 48, 32),
        "lovelace": (65536, 131072, 48, 32),
        "hopper": (65536, 262144, 64, 32),
        "blackwell": (65536, 131072, 48, 32),
    },
    "amd": {
        "gcn-4": (65536, 65536, 40, 64),
        "gcn-5": (65536, 65536, 40, 64),
        "rdna-1": (65536, 65536, 40, 32),
        "rdna-2": (65536, 65536, 32, 32),
        "rdna-3": (65536, 65536, 32, 32),
        "rdna-4": (98304, 65536, 32, 32),
    },
    "samsung": {
        "rdna-2": (65536, 65536, 32, 32),
        "rdna-3": (65536, 65536, 32, 32),
    },
    "intel": {
        "gen-8": (57344, 65536, 56, 16),
        "gen-9": (57344, 65536, 56, 16),
        "gen-11": (57344, 65536, 56, 16),
        "gen-12lp": (114688, 131072, 112, 16),
        "gen-12hp": (131072, 131072, 128, 16),
        "xe-lpg": (131072, 131072, 128, 16),
        "xe-2lpg": (131072, 196608, 64, 16),
        "xe-2hpg": (131072, 262144, 64, 16),
        "xe-3lpg": (163840, 262144, 80, 16),
    },
    "apple": {"": (53248, 61440, 96, 32)},
    "arm": {
        "bifrost": (24576, 16384, 96, 8),
        "valhall": (32768, 16384, 64, 16),
        "gen-5": (65536, 16384, 128, 16),
    },
    "qualcomm": {
        "adreno-6xx": (49152, 32768, 16, 64),
        "adreno-7xx": (49152, 32768, 16, 64),
    },
}


def _classes() -> Iterator[DeviceClass]:
    for vendor, chips in GPUS.items():
        wider = f"{KIND}-{vendor}"
        for architecture, figures in chips.items():
            if architecture:
                yield _class(f"{wider}-{architecture}", vendor, architecture, [figures], wider)
        yield _class(wider, vendor, "", chips.values(), KIND)
    yield _class(KIND, "", "", (figures for chips in GPUS.values() for figures in chips.values()))


def _class(
    id: str,
    vendor: str,
    architecture: str,
    figures: Iterable[tuple[int, int, int, int]],
    fallback: str = "",
) -> DeviceClass:
    return DeviceClass(
        id, "wgsl", KIND, vendor, architecture, frozenset(), _core(figures), WorkgroupLimits(),
        VARIANT, fallback,
    )  # fmt: skip


def _core(figures: Iterable[tuple[int, int, int, int]]) -> Core:
    """The smallest value of each figure, and the widest warp, which gives a block the fewest
    warps."""
    registers, l1, warps, widths = zip(*figures, strict=True)
    return Core("gpu", min(registers), min(l1), min(warps), max(widths))


CLASSES = tuple(_classes())
