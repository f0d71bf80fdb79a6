"""Random kernels under random schedules: loops compute what the specification means.

Every element is written once, in any order and split of tiles with the same bits, and no access
leaves its buffer (the interpreter asserts it).  Whole-number data make most cases exact.
"""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from helpers.kernels import (
    ANCHORS,
    assert_close,
    expected,
    interpret,
    random_case,
)
from helpers.loop_check import check_loops
from helpers.schedules import random_schedule
from helpers.seeds import seeds

from tilewright.kernel.collapse import collapse
from tilewright.kernel.serialise import kernel_from_data, kernel_to_data
from tilewright.kernel.spec import check, render
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.strategies import default_schedule, lower

every_anchor = pytest.mark.parametrize("anchor", ANCHORS)


@every_anchor
@pytest.mark.parametrize("seed", seeds(40, nightly=160))
def test_loops_compute_what_the_specification_means(seed: int, anchor: str) -> None:
    case = random_case(seed, anchor)
    rng = Random(f"schedule {anchor}{seed}")
    want = expected(case)
    kernel = collapse(case.kernel)
    for schedule in (random_schedule(rng, kernel), default_schedule(kernel, Machine())):
        fn = lower(kernel, schedule)
        check_loops(fn)
        out = interpret(fn, case.data, [list(range(fn.tiles))])
        assert_close(out, want, case.exact, case.relative)
        order = list(range(fn.tiles))
        rng.shuffle(order)
        cuts = sorted(rng.randrange(fn.tiles + 1) for _ in range(3))
        groups = [order[a:b] for a, b in zip([0, *cuts], [*cuts, fn.tiles], strict=True)]
        again = interpret(fn, case.data, groups)
        assert list(map(repr, again)) == list(map(repr, out)), "tile order changes bits"


@every_anchor
@pytest.mark.parametrize("seed", seeds(40))
def test_collapse_keeps_the_meaning(seed: int, anchor: str) -> None:
    case = random_case(seed, anchor)
    kernel = collapse(case.kernel)
    check(kernel)
    assert all(v.extent > 1 for v in kernel.axes)
    assert_close(expected(case, kernel), expected(case), case.exact, case.relative)
    assert render(collapse(kernel)) == render(kernel)


@every_anchor
@pytest.mark.parametrize("seed", seeds(40))
def test_kernels_survive_json(seed: int, anchor: str) -> None:
    kernel = random_case(seed, anchor).kernel
    data = kernel_to_data(kernel)
    text = msgspec.json.encode(data)
    for back in (kernel_from_data(data), kernel_from_data(msgspec.json.decode(text))):
        assert back == kernel
        assert msgspec.json.encode(kernel_to_data(back)) == text
