"""Products with block-quantised weights by groups of threads (targets/gpu/tile/staging.py).

Any order of the reduction gives the same bits (helpers/blocks.py); the graph is the judge.
"""

from __future__ import annotations

import re
from random import Random

import numpy as np
import pytest
from helpers.blocks import CASES, made
from helpers.gpu import by_groups, random_few_rows, random_tile
from helpers.graphs import interpret, results, run_steps, steps_of
from helpers.seeds import seeds

from tilewright.base.dtypes import F32, I32
from tilewright.graph.passes import optimise
from tilewright.kernel.expr import Call, Const, Reg
from tilewright.kernel.form import QuantisedContraction, classify
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.product.schedule import FewRowsSchedule, RegisterGemmSchedule
from tilewright.targets.gpu.product.strategies import FEW_ROWS, REGISTER_GEMM
from tilewright.targets.protocol import PACKING
from tilewright.targets.wgsl.calls import nibble_as_f32
from tilewright.targets.wgsl.target import Wgsl

WGSL = Wgsl()

LARGE = [name for name, case in CASES.items() if case.rows >= 4 and case.columns >= 4]
FEW = [
    name
    for name, case in CASES.items()
    if case.rows < 4 and case.columns >= 4 and case.depth >= (128 if case.bits == 8 else 256)
]


def kernel_of(name: str) -> Kernel:
    *_, step = steps_of(optimise(made(name)[0], PACKING))
    return step.kernel


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("seed", seeds(3, nightly=20))
def test_any_tile_gives_the_product(name: str, seed: int) -> None:
    graph, values = made(name)
    rng = Random(f"{name}{seed}")
    got = by_groups(REGISTER_GEMM, graph, values, lambda _: random_tile(rng, least=8))
    np.testing.assert_array_equal(got, results(graph, values)[0])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("seed", seeds(3, nightly=20))
def test_any_slices_give_the_product(name: str, seed: int) -> None:
    graph, values = made(name)
    rng = Random(f"{name}{seed}")
    got = by_groups(FEW_ROWS, graph, values, lambda _: random_few_rows(rng))
    np.testing.assert_array_equal(got, results(graph, values)[0])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CASES)
def test_the_default_gives_the_product(name: str) -> None:
    """As the target chooses it: a tile, columns, or a thread for each sum."""
    graph, values = made(name)
    packed = optimise(graph, PACKING)

    def execute(kernel: Kernel, buffers: list[np.ndarray]) -> None:
        schedule = WGSL.default(kernel, "")
        assert not WGSL.objection(kernel, schedule)
        interpret(WGSL.lower(kernel, schedule), buffers)

    (got,) = run_steps(packed, steps_of(packed), values, execute)
    np.testing.assert_array_equal(got, results(graph, values)[0])


def test_integers_stay_integers_until_they_are_used() -> None:
    """A thread reads a word of eight weights once, and computes each of them in registers."""
    kernel = kernel_of("a long row")
    text = WGSL.emit(kernel, WGSL.lower(kernel, WGSL.default(kernel, "")))
    assert isinstance(classify(kernel), QuantisedContraction)
    assert text.count("bitcast<vec4<i32>>(memory[") == FewRowsSchedule().r0
    assert text.count("& vec4<i32>(") == 8 * FewRowsSchedule().r0


@pytest.mark.parametrize("place", range(0, 32, 4))
@pytest.mark.parametrize("zero", [None, 0.0, 8.0, 15.0])
def test_an_integer_becomes_a_number_exactly(place: int, zero: float | None) -> None:
    """By the numbers that the text has."""
    number = Call("cast", (Call("nibble", (Reg("w", I32), Const(place, I32)), I32),), F32)
    e = number if zero is None else Call("sub", (number, Const(zero, F32)), F32)
    text = nibble_as_f32(e, str)
    assert text is not None
    found = re.search(r"& i32\((\d+)\)\) \| i32\((\w+)\)\) - f32\((.*)\)\)$", text)
    assert found is not None
    mask, exponent, less = int(found[1]), int(found[2], 16), np.float32(found[3])
    for value in range(16):
        word = (value << place | 0x5A5A5A5A & ~(15 << place)) >> (12 if ">>" in text else 0)
        bits = np.uint32(word & mask | exponent)
        assert bits.view(np.float32) - less == value - (zero or 0.0)


def test_other_numbers_are_no_such_integers() -> None:
    number = Call("cast", (Call("nibble", (Reg("w", I32), Const(0, I32)), I32),), F32)
    moving = Call("cast", (Call("nibble", (Reg("w", I32), Reg("s", I32)), I32),), F32)
    half = Call("sub", (number, Const(0.5, F32)), F32)
    for e in (moving, half, Call("sub", (number, Reg("z", F32)), F32)):
        assert nibble_as_f32(e, str) is None


def test_a_block_of_steps_has_whole_words() -> None:
    kernel = kernel_of("many rows")
    assert "multiple of the 8" in RegisterGemmSchedule(r1=4).objection(kernel)
    assert not RegisterGemmSchedule(r1=8).objection(kernel)


def test_candidates_are_schedules_of_it() -> None:
    kernel = kernel_of("many rows")
    found = WGSL.candidates(kernel, CLASSES["webgpu"], 1.0)
    assert 10 < len([c for c in found if not c.schedule.features]) <= 45
    assert not any(WGSL.objection(kernel, c.schedule) for c in found)
