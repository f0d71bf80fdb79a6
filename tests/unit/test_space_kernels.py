"""Every candidate of the spaces of random kernels of all kinds computes what the kernel means."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from helpers.attention import random_attention
from helpers.graphs import interpreted, results, run_steps, steps_of
from helpers.integers import quantised_graph
from helpers.kernels import ANCHORS, assert_close, expected, interpret, random_case
from helpers.loop_check import check_loops
from helpers.seeds import seeds
from wasm_machine import run_module

from tilewright.graph.passes import optimise
from tilewright.kernel.collapse import collapse
from tilewright.kernel.loops import at_fixed_shape
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.protocol import PACKING
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.strategies import lower
from tilewright.tuning.candidates import build, space_of

DEVICES = [CLASSES[name] for name in ("wasm-x86-relaxed-32k", "wasm-arm-simd-64k")]

#: Candidates of one space that a case tries.
TRIED = 12


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("seed", seeds(8))
def test_candidates_compute_what_the_kernel_means(seed: int, anchor: str) -> None:
    case = random_case(seed, anchor)
    kernel, rng = collapse(case.kernel), Random(f"space {anchor}{seed}")
    want = expected(case)
    space = space_of(kernel, rng.choice(DEVICES))
    for schedule in rng.sample(space.schedules, min(TRIED, len(space.schedules))):
        fn = at_fixed_shape(lower(kernel, schedule))
        assert not fn.scalars
        check_loops(fn)
        out = interpret(fn, case.data, [list(range(fn.tiles))])
        assert_close(out, want, case.exact, case.relative)


def pick_from_space(rng: Random) -> Callable[[Kernel], Schedule]:
    """Any candidate of a kernel's space on any device; its loops are checked too."""

    def pick(kernel: Kernel) -> Schedule:
        schedule = rng.choice(space_of(kernel, rng.choice(DEVICES)).schedules)
        check_loops(lower(kernel, schedule))
        return schedule

    return pick


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", seeds(16))
def test_candidates_of_attentions(seed: int) -> None:
    rng = Random(f"space attention{seed}")
    graph = random_attention(rng)
    packed = optimise(graph, PACKING)
    numbers = np.random.default_rng(seed)
    values = {n: numbers.standard_normal(x.shape).astype("f4") for n, x in graph.inputs}
    (want,) = results(graph, values)
    for _ in range(4):
        (got,) = run_steps(packed, steps_of(packed), values, interpreted(pick_from_space(rng)))
        scale = float(np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5 * scale)


@pytest.mark.parametrize("seed", seeds(16))
def test_candidates_of_integer_products_give_the_same_numbers(seed: int) -> None:
    graph, values = quantised_graph(seed)
    packed = optimise(graph, PACKING)
    steps = steps_of(packed)
    (want,) = run_steps(packed, steps, values)
    rng = Random(f"space integers{seed}")
    for _ in range(4):
        (got,) = run_steps(packed, steps, values, interpreted(pick_from_space(rng)))
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("target", ["x86", "x86-simd"])
def test_modules_of_candidates_compute_what_the_kernel_means(target: str, anchor: str) -> None:
    """The module takes buffer addresses only, whatever scalars the default one takes."""
    device = next(d for d in CLASSES.values() if d.variant == target)
    for seed in range(6):
        case = random_case(seed, anchor)
        kernel, rng = collapse(case.kernel), Random(f"module {anchor}{seed}")
        built = build(kernel, rng.choice(space_of(kernel, device).schedules), "wasm", target)
        out = np.full(kernel.buffers[0].size, 77, kernel.dtype.numpy)
        got = run_module(built.module, [(0, built.tiles)], [out, *case.data])
        assert_close(got, expected(case), case.exact, 8 * case.relative)
