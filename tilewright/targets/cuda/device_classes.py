"""Device classes of GPUs that run CUDA kernels, by compute capability.

Input: none.  Output: `CLASSES`, the most specific first.  The widest class, `cuda`, has the
smallest value of each figure.  docs/device-classes.md names the sources of the figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.targets.cuda.features import Capability, most_shared_bytes
from tilewright.targets.device_class import DeviceClass
from tilewright.targets.gpu.workgroup_limits import WARP, WorkgroupLimits
from tilewright.targets.lite_space import Core

KIND, VENDOR = "cuda", "nvidia"
#: The only code variant.  A kernel that needs more than compute capability 7.0 states it itself.
VARIANT = "sm-70"


@dataclass(frozen=True)
class CudaLimits(WorkgroupLimits):
    """Limits of thread blocks in a class.  capability: the least compute capability of its
    devices."""

    capability: Capability = (7, 0)


#: Of one multiprocessor, by compute capability: bytes of L1 and shared memory; resident warps.
GPUS: Mapping[Capability, tuple[int, int]] = {
    (12, 0): (131072, 48),
    (10, 0): (262144, 64),
    (9, 0): (262144, 64),
    (8, 9): (131072, 48),
    (8, 6): (131072, 48),
    (8, 0): (196608, 64),
    (7, 5): (98304, 32),
    (7, 0): (131072, 64),
}
REGISTERS_OF_CORE = 65536


def _classes() -> Iterator[DeviceClass]:
    for capability, figures in GPUS.items():
        yield _class(_name(capability), capability, figures)
    l1, warps = (min(figures) for figures in zip(*GPUS.values(), strict=True))
    yield _class("", min(GPUS), (l1, warps))


def _class(name: str, capability: Capability, figures: tuple[int, int]) -> DeviceClass:
    id, fallback = (f"{KIND}-{name}", KIND) if name else (KIND, "")
    core, shared = Core("gpu", REGISTERS_OF_CORE, *figures, WARP), min(map(most_shared_bytes, GPUS))
    group = CudaLimits(
        shared=most_shared_bytes(capability) if name else shared, capability=capability
    )
    return DeviceClass(
        id, KIND, KIND, VENDOR, name, frozenset(), core, group, VARIANT, fallback
    )  # fmt: skip


def architecture_of(capability: Capability) -> str:
    """The architecture name of a GPU's class: the largest capability of the table that is of the
    same generation and not larger; "" if there is none."""
    near = [c for c in GPUS if c[0] == capability[0] and c <= capability]
    return _name(max(near)) if near else ""


def _name(capability: Capability) -> str:
    return "sm-{}{}".format(*capability)


CLASSES = tuple(_classes())
