"""The random kernels of test_kernel_fuzz as WebAssembly: the target computes what they mean.

Tolerance: as for the interpreter, equal where every function is exact.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from helpers.kernels import ANCHORS, assert_close, expected, random_case
from helpers.schedules import random_schedule
from helpers.seeds import seeds
from wasm_machine import run

from tilewright.kernel.collapse import collapse
from tilewright.targets.simd.strategies import lower


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("seed", seeds(12))
def test_wasm_computes_what_the_specification_means(seed: int, anchor: str) -> None:
    case = random_case(seed, anchor)
    kernel = collapse(case.kernel)
    rng = Random(f"schedule {anchor}{seed}")
    fn = lower(kernel, random_schedule(rng, kernel))
    out = np.ones(kernel.buffers[0].size, kernel.dtype.numpy)
    got = run(fn, [out, *case.data], rng.choice(("x86", "x86-simd")))
    assert_close(got, expected(case), case.exact, case.relative)
