"""Hand-made kernels that measure a host."""

from __future__ import annotations

import numpy as np
import pytest
from wasm_machine import ARGS, Machine

from lab.probes import FLOPS_PER_TILE, peak
from tilewright.targets.wasm import VARIANTS, link


@pytest.mark.parametrize(
    ("variant", "value"),
    # twelve chains from 0..11 in steps of 1/2; twelve chains to the fixed point of x / 2 + 1
    [("x86", sum(range(12)) + 12 * 1024.0), ("x86-simd", 12 * 2.0)],
)
def test_the_peak_kernel_computes_in_registers(variant: str, value: float) -> None:
    machine = Machine(1 << 16)
    exports = machine.load(link([peak(VARIANTS[variant])], VARIANTS[variant], 1))
    machine.words(ARGS, (8192,))
    exports["k0"](machine.store, ARGS, 0, 1)
    assert np.frombuffer(machine.read(8192, 16), "float32").tolist() == [value] * 4
    exports["k0"](machine.store, ARGS, 1, 3)
    assert FLOPS_PER_TILE == 2 * 4 * 12 * 2048
