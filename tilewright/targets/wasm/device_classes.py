"""Classes of devices that run WebAssembly, by architecture, features and L1.

Input: none.  Output: `CLASSES`, the most specific first.

A class falls back to a wider one: `wasm-x86-relaxed-48k` to `wasm-x86-relaxed` to `wasm`.  A wider
class has the smallest value of each figure, so schedules that fit it fit every narrower class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.targets.device_class import DeviceClass
from tilewright.targets.lite_space import Core
from tilewright.targets.simd.machine import Machine
from tilewright.targets.wasm.variant import ARM, VARIANTS, X86

KIND = "wasm"

#: Bytes of L1 by architecture.  x86: before Ice Lake and Zen 5, and since; Arm: small cores, large
#: cores, and Apple's (sources: docs/device-classes.md).
TIERS = {"x86": (32, 48), "arm": (32, 64, 128)}
_MACHINES = {"x86": X86, "arm": ARM}
#: The part of an id that names the features, and the suffix of the variant's name.
_LEVELS = {"relaxed": "", "simd": "-simd"}


def _classes() -> Iterator[DeviceClass]:
    for architecture, sizes in TIERS.items():
        machine = _MACHINES[architecture]
        for level, suffix in _LEVELS.items():
            variant = VARIANTS[architecture + suffix]
            wider = f"{KIND}-{architecture}-{level}"
            fits = replace(machine, fma=variant.fma)
            for size in (*sorted(sizes, reverse=True), 0):
                l1 = 1024 * (size or min(sizes))
                yield DeviceClass(
                    f"{wider}-{size}k" if size else wider,
                    "wasm", KIND, "", architecture, variant.features,
                    _core(machine, l1), replace(fits, l1=l1), variant.name,
                    fallback=wider if size else KIND,
                    least_l1=1024 * size,
                )  # fmt: skip
    least = replace(X86, fma=False)
    core = _core(least, least.l1)
    yield DeviceClass(KIND, "wasm", KIND, "", "", frozenset(), core, least, "x86-simd", "")


def _core(machine: Machine, l1: int) -> Core:
    return Core("simd", registers=machine.registers * machine.lanes, l1=l1)


CLASSES = tuple(_classes())
