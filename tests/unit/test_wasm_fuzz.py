"""Random kernels of every anchor: the Wasm code computes what the specification means.

Every combination of passes gives the same bits, and so does any split of the tiles into calls.
"""

from __future__ import annotations

from itertools import combinations
from random import Random

import numpy as np
import pytest
from helpers.kernels import ANCHORS, assert_close, expected, random_case
from helpers.schedules import random_schedule
from helpers.seeds import seeds
from wasm_machine import run

from tilewright.kernel.collapse import collapse
from tilewright.targets.simd.strategies import lower
from tilewright.targets.wasm import ALL

SUBSETS = [frozenset(c) for n in range(len(ALL) + 1) for c in combinations(sorted(ALL), n)]


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("seed", seeds(30, nightly=170))
def test_wasm_computes_what_the_specification_means(seed: int, anchor: str) -> None:
    case = random_case(seed, anchor)
    rng = Random(f"wasm {anchor}{seed}")
    kernel = collapse(case.kernel)
    fn = lower(kernel, random_schedule(rng, kernel))
    empty = np.zeros(kernel.buffers[0].size, kernel.dtype.numpy)
    arrays = [empty, *case.data]
    target = rng.choice(("x86", "x86-simd"))
    cut = rng.randint(0, fn.tiles)
    out = run(fn, arrays, target)
    assert_close(out.tolist(), expected(case), case.exact, case.relative)
    for passes in (frozenset(), rng.choice(SUBSETS)):
        again = run(fn, arrays, target, passes, [(cut, fn.tiles), (0, cut), (cut, cut)])
        assert again.tobytes() == out.tobytes(), f"passes {sorted(passes)} change bits"
