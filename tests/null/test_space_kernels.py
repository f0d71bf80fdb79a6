"""Every candidate of the spaces of random kernels of all kinds computes what the kernel means."""

from __future__ import annotations

from random import Random

import pytest
from helpers.kernels import ANCHORS, assert_close, expected, interpret, random_case
from helpers.loop_check import check_loops
from helpers.seeds import seeds

from tilewright.kernel.collapse import collapse
from tilewright.kernel.loops import settled
from tilewright.kernel.lower import lower
from tilewright.targets.classes import CLASSES
from tilewright.tuning.candidates import space_of

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
        fn = settled(lower(kernel, schedule))
        assert not fn.scalars
        check_loops(fn)
        out = interpret(fn, case.data, [list(range(fn.tiles))])
        assert_close(out, want, case.exact, case.relative)
