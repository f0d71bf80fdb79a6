"""Classes of devices: who may share tuning results, and the figures that a space is computed from.

Input: facts that a page can find out, or a class's id.  Output: `DeviceClass` records: data only.
Only the id of a class ever leaves a device.  docs/device-classes.md says what each figure means.

A class falls back to a wider one: `wasm-x86-relaxed-48k` to `wasm-x86-relaxed` to `wasm`,
`webgpu-nvidia-ampere` to `webgpu-nvidia` to `webgpu`.  A wider class has the smallest of each
figure, so that what fits it fits all below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from tilewright.base.errors import UsageError
from tilewright.targets.lite import Core
from tilewright.targets.simd.machine import Machine
from tilewright.targets.wasm.target import ARM, TARGETS, X86


@dataclass(frozen=True)
class DeviceClass:
    """One class.  An empty `vendor` or `architecture` stands for any.

    features: what a device must have to belong here
    core:     the figures of the lite space's formulas
    machine:  wasm: what schedules must fit; None elsewhere
    variant:  wasm: the target whose code it runs (targets/wasm/target.py); "" elsewhere
    fallback: id of the next wider class; "" at the end
    least_l1: bytes of L1 that a device must be known to have to belong here; 0: need not be known
    """

    id: str
    kind: Literal["wasm", "webgpu"]
    vendor: str
    architecture: str
    features: frozenset[str]
    core: Core
    machine: Machine | None
    variant: str
    fallback: str
    least_l1: int = 0

    @property
    def target(self) -> str:
        """The name of the target whose kernels it runs."""
        return self.kind

    def admits(self, facts: Mapping[str, Any]) -> bool:
        """Whether a device of these facts belongs here."""
        return (
            facts.get("kind") == self.kind
            and self.vendor in ("", str(facts.get("vendor") or "").lower())
            and self.architecture in ("", str(facts.get("architecture") or "").lower())
            and self.features <= frozenset(facts.get("features") or ())
            and (facts.get("l1") or 0) >= self.least_l1
        )


#: Bytes of L1 by architecture: of x86 before and since Ice Lake and Zen 5; of small and large cores
#: of Arm, and of Apple's.
TIERS = {"x86": (32, 48), "arm": (32, 64, 128)}
_MACHINES = {"x86": X86, "arm": ARM}
#: The part of an id that tells features, and the suffix of the target's name.
_LEVELS = {"relaxed": "", "simd": "-simd"}

#: Per vendor and architecture, as `GPUAdapterInfo` spells them, what one core has ("core": SM, CU,
#: WGP half, subslice, Xe core, shader core, SP): words of registers, bytes of L1 or shared memory,
#: warps in flight, threads of a warp.  Public figures of the largest common chip.
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


def _wasm() -> Iterator[DeviceClass]:
    for architecture, sizes in TIERS.items():
        machine = _MACHINES[architecture]
        for level, suffix in _LEVELS.items():
            target = TARGETS[architecture + suffix]
            wider = f"wasm-{architecture}-{level}"
            fits = replace(machine, fma=target.fma)
            for size in (*sorted(sizes, reverse=True), 0):
                l1 = 1024 * (size or min(sizes))
                yield DeviceClass(
                    f"{wider}-{size}k" if size else wider,
                    "wasm", "", architecture, target.features,
                    _cpu(machine, l1), replace(fits, l1=l1), target.name,
                    fallback=wider if size else "wasm",
                    least_l1=1024 * size,
                )  # fmt: skip
    least = replace(X86, fma=False)
    core = _cpu(least, least.l1)
    yield DeviceClass("wasm", "wasm", "", "", frozenset(), core, least, "x86-simd", "")


def _cpu(machine: Machine, l1: int) -> Core:
    return Core("simd", registers=machine.registers * machine.lanes, l1=l1)


def _webgpu() -> Iterator[DeviceClass]:
    none: frozenset[str] = frozenset()
    for vendor, chips in GPUS.items():
        wider = f"webgpu-{vendor}"
        for architecture, figures in chips.items():
            if architecture:
                name, core = f"{wider}-{architecture}", _gpu([figures])
                yield DeviceClass(
                    name, "webgpu", vendor, architecture, none, core, None, "", fallback=wider
                )
        core = _gpu(chips.values())
        yield DeviceClass(wider, "webgpu", vendor, "", none, core, None, "", fallback="webgpu")
    core = _gpu(figures for chips in GPUS.values() for figures in chips.values())
    yield DeviceClass("webgpu", "webgpu", "", "", none, core, None, "", fallback="")


def _gpu(figures: Iterable[tuple[int, int, int, int]]) -> Core:
    """The smallest of each, and the widest warp: it leaves the fewest warps to a block."""
    registers, l1, warps, widths = zip(*figures, strict=True)
    return Core("gpu", min(registers), min(l1), min(warps), max(widths))


#: Every class by its id; of those that admit a device, the first is the most exact.
CLASSES: dict[str, DeviceClass] = {c.id: c for c in (*_wasm(), *_webgpu())}


def find(id: str) -> DeviceClass:
    """The class of this id; `UsageError` for one that does not exist."""
    if id not in CLASSES:
        raise UsageError(
            f"There is no device class {id!r}",
            hint="`tilewright space --classes` lists them; `wasm` and `webgpu` fit every device",
            known=list(CLASSES),
        )
    return CLASSES[id]


def nearest(id: str) -> DeviceClass:
    """The class of this id, or the one that is left when parts of the id are taken off its end."""
    parts = id.split("-")
    names = ("-".join(parts[:n]) for n in range(len(parts), 0, -1))
    return find(next((name for name in names if name in CLASSES), id))


def match(facts: Mapping[str, Any]) -> DeviceClass:
    """The most exact class that admits a device; `UsageError` without a known kind.

    facts: "kind": "wasm" or "webgpu"; wasm: "architecture": "x86" or "arm", "features": what the
    engine detected, "l1": bytes where a probe found them; webgpu: "vendor" and "architecture" as
    `GPUAdapterInfo` gives them.  What is not known is left out.
    """
    found = next((c for c in CLASSES.values() if c.admits(facts)), None)
    if found is None:
        raise UsageError(
            f"No device class for the kind {facts.get('kind')!r}",
            hint="The kind is wasm or webgpu",
        )
    return found


def table() -> list[dict[str, Any]]:
    """All classes as plain data, in the order of `match`: a page takes the first that admits it."""
    return [
        {
            "id": c.id,
            "kind": c.kind,
            "vendor": c.vendor,
            "architecture": c.architecture,
            "features": sorted(c.features),
            "least_l1": c.least_l1,
            "core": asdict(c.core),
            "variant": c.variant,
            "fallback": c.fallback,
        }
        for c in CLASSES.values()
    ]
