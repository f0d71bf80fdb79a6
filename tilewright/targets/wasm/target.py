"""What a WebAssembly device has: data only.

Input: nothing.  Output: `WasmTarget` records.  Lowering reads `features` and decomposes what is
missing; the space of schedules reads registers and cache sizes.  No code generation here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WasmTarget:
    """One class of devices.

    features:  Wasm features beyond fixed-width SIMD: {"relaxed_simd"} or nothing
    registers: vector registers an engine can allocate
    l1:        bytes of first-level data cache of one core
    """

    name: str
    features: frozenset[str]
    registers: int
    l1: int

    @property
    def fma(self) -> bool:
        """Whether `fma` is one instruction (otherwise it is a multiplication and an addition)."""
        return "relaxed_simd" in self.features

    @property
    def allowed(self) -> frozenset[str]:
        """Instruction features that code for this target may use."""
        return self.features | {"simd"}


RELAXED = frozenset({"relaxed_simd"})

#: x86-64 engines keep one of the 16 vector registers for themselves.
TARGETS: dict[str, WasmTarget] = {
    t.name: t
    for t in (
        WasmTarget("x86", RELAXED, 15, 32768),
        WasmTarget("x86-simd", frozenset(), 15, 32768),
        WasmTarget("arm", RELAXED, 32, 65536),
        WasmTarget("arm-simd", frozenset(), 32, 65536),
    )
}
