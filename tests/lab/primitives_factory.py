"""For tests of primitives: the product with the settings of one, and findings nobody measured."""

from __future__ import annotations

from lab.primitives.findings import Device, Finding
from lab.primitives.table import MATMUL, Primitive
from lab.subjects import matmul_step
from tilewright.kernel.spec import Kernel
from tilewright.targets import wasm
from tilewright.targets.simd.contraction import ContractionSchedule
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.strategies import default_schedule

FASTER, SLOWER = Finding(1.5, 1.4, 1.6, 9), Finding(0.7, 0.6, 0.8, 9)
UNSURE = Finding(1.02, 0.98, 1.1, 9)


def device(host: str, cpu: str = "a", **found: Finding) -> Device:
    return Device(host, host != "wasmtime", f"{host} 1", cpu, "2026-01-01", "0", found)


MACHINES = [t.machine for t in wasm.VARIANTS.values()]


def base(
    primitive: Primitive, machine: Machine = MACHINES[0]
) -> tuple[Kernel, ContractionSchedule]:
    kernel = matmul_step(*MATMUL, weight=primitive.columns == "packed").kernel
    start = default_schedule(kernel, machine)
    assert isinstance(start, ContractionSchedule)
    return kernel, start
