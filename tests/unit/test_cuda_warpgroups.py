"""Warp groups of Hopper (targets/cuda/wgmma.py): products in each way in which operands lie.

The interpreter and the texts on the CPU; float64 is the judge.  NVIDIA's compiler takes all texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from helpers.seeds import seeds
from test_cuda import CUDA
from test_cuda import nvrtc as nvrtc
from test_cuda_matrices import RUNS, computed, kernel_of, product_of

from tilewright.kernel.layout import Panels
from tilewright.kernel.spec import Kernel
from tilewright.targets.cuda.elastic import elastic
from tilewright.targets.cuda.emit import dynamic_of
from tilewright.targets.cuda.prelude import prelude
from tilewright.targets.gpu.matrix.schedule import MatrixGemmSchedule
from tilewright.targets.protocol import PACKING
from tilewright.targets.ticket_protocol import TURNS


def integer_operands(rng: Random) -> MatrixGemmSchedule:
    """Any schedule of warp groups, which have 64 steps in a slice of a block."""
    rows, columns, down = (rng.choice((1, 1, 2)) for _ in range(3))
    n, slices, along = rng.choice((64, 128)), 1, 1 if down > 1 else rng.choice((1, 2))
    rows = 1 if n * columns > 128 else rows
    return MatrixGemmSchedule(
        "f16-f32", 64, n, 16, 128, rows, columns, down, along, 4 * slices, slices=slices,
        stages=rng.choice((2, 3)),
    )  # fmt: skip


@pytest.mark.seldom(4)
@pytest.mark.one_in(2)
@RUNS
@pytest.mark.parametrize("seed", seeds(2, nightly=10))
def test_warp_groups(run: Any, seed: int) -> None:
    def choose(kernel: Kernel) -> MatrixGemmSchedule:
        made = integer_operands(Random(f"groups {seed}"))
        assert not CUDA.objection(kernel, made), CUDA.objection(kernel, made)
        return made

    computed(run, "f16-f32", [(70, 144, 72), (64, 128, 136)][seed % 2], choose)


@RUNS
@pytest.mark.parametrize(
    ("panel", "turned", "lie"),
    [(8, False, ("ALONG", "PANELS")), (8, True, ("ACROSS", "PANELS")),
     (64, False, ("ALONG", "ACROSS")), (48, True, ("ACROSS", "ACROSS"))],
)  # fmt: skip
def test_warp_groups_read_what_lies_in_each_way(
    run: Any, panel: int, turned: bool, lie: tuple[str, str]
) -> None:
    """Panels of eight columns, lines of the depth, lines of steps: panels of 64 columns, or 64 of
    those that lie otherwise."""
    schedule = MatrixGemmSchedule("f16-f32", 64, 64, 16, 128, 1, 1, 1, 1, 4, stages=2)

    def choose(kernel: Kernel) -> MatrixGemmSchedule:
        assert not CUDA.objection(kernel, schedule), CUDA.objection(kernel, schedule)
        text = str(CUDA.code(kernel, schedule).body)
        assert f"Place<{lie[0]}> left" in text
        assert f"Place<{lie[1]}> right" in text
        return schedule

    packing = replace(PACKING, floats=Panels(panel))
    computed(run, "f16-f32", (64, 128, 72), choose, packing, turned)


def test_results_lie_where_blocks_did() -> None:
    """Bytes of shared memory are those of the blocks alone; the other tests
    compute there."""
    kernel = kernel_of(product_of("f16-f32", 64, 128, 64))
    for schedule in (
        MatrixGemmSchedule("f16-f32", 16, 16, 16, 32, 1, 1, 2, 2, 1, stages=2),
        MatrixGemmSchedule("f16-f32", 64, 64, 16, 128, 1, 1, 1, 1, 4, stages=2),
    ):
        fn = CUDA.lower(kernel, schedule)
        *blocks, patches = fn.scratch
        assert patches.may_overlap
        assert not any(area.may_overlap for area in blocks)
        sizes = [area.size * area.dtype.size for area in blocks]
        assert dynamic_of(fn) == max(sum(sizes), patches.size * patches.dtype.size)
        assert dynamic_of(fn) <= schedule.shared
        text = str(CUDA.code(kernel, schedule).body)
        begins = re.findall(r"\*const b\d+ = \(\w+ \*\)\(shared \+ (\d+)\)", text)
        assert begins == ["0", str(sizes[0]), "0"]


@pytest.mark.parametrize("columns", [64, 128, 256])
def test_nvidias_compiler_takes_warp_groups(
    nvrtc: Callable[[str, str], bytes], columns: int
) -> None:
    """Both ways in which an operand may lie: along the depth, and along its rows or columns."""
    kernel = kernel_of(product_of("f16-f32", 128, 128, 256))
    schedule = MatrixGemmSchedule(
        "f16-f32", 64, columns, 16, 128, 1, 256 // columns, 2, 1, 4, stages=3
    )
    code = CUDA.code(kernel, schedule)
    assert "Place<ALONG>" in str(code.body)
    assert "Place<PANELS>" in str(code.body)
    assert nvrtc(prelude() + str(code.body), "sm_90a")
    assert nvrtc(prelude() + TURNS + elastic(code.loops).text, "sm_90a")
