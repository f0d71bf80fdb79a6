"""Products of bytes by groups of threads (integer_gemm.py): any schedule gives the exact sums.

Layers of random bytes, weights and epilogues (helpers/integers.py); the graph is the judge, and the
interpreter finds races between threads.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from helpers.gpu import ByGroups, random_tile
from helpers.graphs import results, run_steps, steps_of
from helpers.integers import quantised_graph
from helpers.seeds import seeds

from tilewright.graph.passes import optimise
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.product.schedule import IntegerGemmSchedule
from tilewright.targets.gpu.product.strategies import INTEGER_GEMM
from tilewright.targets.gpu.workgroup_limits import PACKED_DOT_FEATURE
from tilewright.targets.protocol import PACKING
from tilewright.targets.scalar_lowering import Plain
from tilewright.targets.wgsl.target import Wgsl
from tilewright.tuning.candidates import build, space_of

WGSL = Wgsl()


def products(seed: int) -> list[Kernel]:
    graph, _ = quantised_graph(seed)
    return [s.kernel for s in steps_of(optimise(graph, PACKING)) if INTEGER_GEMM.suits(s.kernel)]


#: Of the first seeds, those whose layer is a product.
LAYERS = [seed for seed in range(40) if products(seed)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("seed", seeds(2, nightly=15))
def test_any_schedule_gives_the_same_sums(layer: int, seed: int) -> None:
    graph, values = quantised_graph(layer)
    rng = Random(f"dots {layer} {seed}")
    execute = ByGroups(INTEGER_GEMM, lambda _: IntegerGemmSchedule(**vars(random_tile(rng))))
    packed = optimise(graph, PACKING)
    got = run_steps(packed, steps_of(packed), values, execute)
    assert execute.products
    for one, wanted in zip(got, results(graph, values), strict=True):
        np.testing.assert_array_equal(one, wanted)


def test_the_space_has_the_default_and_others_of_its_type() -> None:
    (kernel,) = products(LAYERS[0])
    space = space_of(kernel, CLASSES["webgpu"])
    assert space.schedules[0] == WGSL.default(kernel, "core")
    found = [s for s in space.schedules if isinstance(s, IntegerGemmSchedule)]
    assert len(found) > 1
    for schedule in found:
        assert not WGSL.objection(kernel, schedule)
        assert WGSL.schedule(schedule.to_json()) == schedule
    able = [space.schedules[n] for n in space.trial_on({PACKED_DOT_FEATURE})]
    assert set(able) == set(found[1:])
    assert space.trial_on(()) == ()


def test_a_candidate_says_what_it_needs() -> None:
    (kernel,) = products(LAYERS[0])
    made = build(kernel, IntegerGemmSchedule(4, 4, 4, 8, 8, 8), "wgsl", "core")
    assert made.features == (PACKED_DOT_FEATURE,)
    assert build(kernel, Plain(), "wgsl", "core").features == ()
