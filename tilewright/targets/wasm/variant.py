"""The variants of WebAssembly code: data only.

Input: none.  Output: `WasmVariant` records.  Lowering reads `features` and decomposes operations
that are missing; schedules read `machine`.  No code is generated here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.targets.simd.machine import Machine


@dataclass(frozen=True)
class WasmVariant:
    """Code for the devices with one set of features.

    features: Wasm features beyond fixed-width SIMD: "relaxed_simd"; "dot_u8" if its dot product
              reads the second operand as unsigned and saturates sums of two (x86)
    machine:  limits for schedules: registers that an engine can allocate, caches of a core
    engine:   the only engine that the code is for; "": all browsers

    Schedules depend on `machine` only, so variants with one machine share loops and plan images.
    """

    name: str
    features: frozenset[str]
    machine: Machine
    engine: str = ""

    @property
    def is_default(self) -> bool:
        """True if bundles include it when the user names no variants."""
        return not self.engine

    @property
    def fma(self) -> bool:
        """True if `fma` is one instruction; otherwise it is a multiplication and an addition."""
        return "relaxed_simd" in self.features

    @property
    def dot_u8(self) -> bool:
        """True if one instruction sums two products of an unsigned and a signed byte."""
        return "dot_u8" in self.features

    def asked(self, needs: frozenset[str]) -> tuple[str, ...]:
        """Features that code for this variant requires of a host, if its instructions need
        `needs`."""
        return tuple(sorted(self.features - (SPECIAL - needs)))

    @property
    def extremes(self) -> bool:
        """True if `max` and `min` of floats are one instruction each, as on Arm."""
        return self.machine.registers > 16

    @property
    def registers(self) -> int:
        return self.machine.registers

    @property
    def allowed(self) -> frozenset[str]:
        """Instruction features that code for this variant may use."""
        return self.features | {"simd"}


RELAXED = frozenset({"relaxed_simd"})
#: Features that a module requires only if one of its kernels uses them.
SPECIAL = frozenset({"dot_u8"})

#: x86-64 engines keep one of the 16 vector registers for themselves.
X86 = Machine(registers=15, l1=32768)
ARM = Machine(registers=32, l1=65536)

VARIANTS: dict[str, WasmVariant] = {
    t.name: t
    for t in (
        WasmVariant("x86", RELAXED | SPECIAL, X86),
        WasmVariant("arm", RELAXED, ARM),
        WasmVariant("x86-simd", frozenset(), replace(X86, fma=False)),
        WasmVariant("arm-simd", frozenset(), replace(ARM, fma=False)),
        WasmVariant("x86-cranelift", RELAXED | SPECIAL, replace(X86, chained=True), "cranelift"),
    )
}
