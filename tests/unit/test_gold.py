"""Gold questions are asked only where the answer is known without measuring."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from wasm_machine import instructions, run_module

from lab.subjects import product_kernel
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.simd.inner_product import InnerProductSchedule
from tilewright.targets.simd.strategies import DEEP, slow_schedule
from tilewright.tuning.candidates import build, space_of

Sizes = tuple[int, int, int]
DEVICES = [c for c in CLASSES.values() if c.kind == "wasm"]
devices = pytest.mark.parametrize("device", DEVICES, ids=lambda c: c.id)
columns = pytest.mark.parametrize("weight", [True, False], ids=["panels", "rows"])


def kernel_of(sizes: Sizes, *, weight: bool = True) -> Kernel:
    m, k, n = sizes
    return product_kernel("mk,kn->mn", (m, k), (k, n), weight=weight)


@columns
@devices
def test_every_class_has_gold_and_it_changes_no_number(device, weight: bool) -> None:
    kernel = kernel_of((128, 384, 384), weight=weight)
    space = space_of(kernel, device)
    assert space.gold == len(space.schedules)
    assert space.schedule(space.gold) == space.slow
    assert space.slow not in space.schedules
    assert space.gold not in space.order
    assert space.schedule(space.gold + 1) is None
    assert space.schedule(-1) is None
    assert [space.schedule(n) for n in range(space.gold)] == list(space.schedules)


@columns
@pytest.mark.parametrize("variant", ["x86", "x86-simd", "arm", "arm-simd"])
@pytest.mark.parametrize("sizes", [(24, DEEP, 32), (67, 131, 45), (40, 96, 200)], ids=str)
def test_it_takes_several_times_the_instructions_for_the_same_result(
    sizes: Sizes, variant: str, weight: bool
) -> None:
    """Counted, not timed: no processor that runs both kinds of code can hide such a factor."""
    kernel = kernel_of(sizes, weight=weight)
    device = next(c for c in DEVICES if c.variant == variant)
    space = space_of(kernel, device)
    assert space.slow is not None
    numbers = np.random.default_rng(1)
    given = [numbers.standard_normal(b.size).astype("f4") for b in kernel.buffers[1:]]
    out = np.zeros(kernel.buffers[0].size, "f4")
    usual, slow = (build(kernel, s, "wasm", variant) for s in (space.schedules[0], space.slow))
    want, got = (run_module(b.module, [(0, b.tiles)], [out, *given]) for b in (usual, slow))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * float(np.abs(want).max()))
    least, most = (instructions(b.module, b.tiles, [out, *given]) for b in (usual, slow))
    assert most >= 5 * least


@pytest.mark.parametrize(
    "sizes", [(1, 768, 768), (1, 384, 1536), (8, 384, 384), (384, 768, 4), (64, 16, 64)], ids=str
)
def test_what_waits_for_memory_or_is_short_gets_none(sizes: Sizes) -> None:
    for device in DEVICES:
        for weight in (True, False):
            space = space_of(kernel_of(sizes, weight=weight), device)
            assert space.slow is None
            assert space.gold is None


def test_a_class_whose_default_is_slow_itself_gets_none() -> None:
    kernel = kernel_of((128, 384, 384))
    default = space_of(kernel, DEVICES[0]).schedules[0]
    assert slow_schedule(kernel, replace(default, lanes=1)) is None
    assert slow_schedule(kernel, InnerProductSchedule()) is None
