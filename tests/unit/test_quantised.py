"""Products with block-quantised weights: every layout, every schedule, and what planted faults do.

Any order of the reduction gives the same bits (helpers/blocks.py); the graph is the judge.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from helpers.blocks import CASES, made, weight
from helpers.graphs import default_of, interpret, interpreted, results, run_steps, steps_of
from helpers.loop_check import check_loops
from helpers.schedules import random_schedule
from helpers.seeds import seeds

from tilewright.base.dtypes import F32, I16
from tilewright.fusion.kernel_steps import KernelStep
from tilewright.graph.node import (
    Graph,
    cast,
    contract,
    elementwise,
    graph_input,
    unfold,
)
from tilewright.graph.passes import optimise
from tilewright.kernel.form import Contraction, QuantisedContraction, classify, form_as
from tilewright.kernel.layout import Blocks
from tilewright.kernel.serialise import kernel_from_data, kernel_to_data
from tilewright.kernel.spec import Kernel
from tilewright.targets.lite_space import Core
from tilewright.targets.protocol import PACKING
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.quantised_gemm import QuantisedSchedule
from tilewright.targets.simd.strategies import default_schedule, lower, strategy_of
from tilewright.targets.strategy import Search

CORE = Core("simd", registers=60, l1=32768)


def the_step(name: str) -> tuple[Graph, KernelStep]:
    packed = optimise(made(name)[0], PACKING)
    *before, step = steps_of(packed)
    assert all(not s.kernel.stages for s in before)  # copies of activations, at most
    return packed, step


@pytest.mark.parametrize("name", CASES)
def test_weights_stay_integers(name: str) -> None:
    """No buffer holds f32 weights; 4 bits are 4 bits, but for what fills the last panel."""
    case, kernel = CASES[name], the_step(name)[1].kernel
    assert kernel.anchor == "contract"
    form = form_as(kernel, QuantisedContraction)
    bits = case.bits
    layout = kernel.buffers[form.operands.col.buffer].layout
    size = case.block or case.depth
    assert layout == Blocks(8, bits, -(-size // 8) * 8 if bits == 4 else size)
    weights = sum(b.size * b.dtype.size for b in kernel.buffers[2:])
    columns, blocks = -(-case.columns // 8) * 8, -(-case.depth // size)
    assert weights <= columns * blocks * (layout.size * bits // 8 + 4 + 1)
    assert kernel_from_data(kernel_to_data(kernel)) == kernel


@pytest.mark.parametrize("name", CASES)
def test_the_specification_means_the_product(name: str) -> None:
    graph, values = made(name)
    packed = optimise(graph, PACKING)
    (got,) = run_steps(packed, steps_of(packed), values)
    np.testing.assert_array_equal(got, results(graph, values)[0])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", seeds(6))
def test_any_schedule_gives_the_same_product(name: str, seed: int) -> None:
    graph, values = made(name)
    packed, rng = optimise(graph, PACKING), Random(f"{name}{seed}")

    def pick(kernel: Kernel) -> Schedule:
        schedule = random_schedule(rng, kernel) if seed else default_of(kernel)
        check_loops(lower(kernel, schedule))
        return schedule

    (got,) = run_steps(packed, steps_of(packed), values, interpreted(pick))
    np.testing.assert_array_equal(got, results(graph, values)[0])


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", ["one row", "one row, one zero", "three rows", "signed", "bytes"])
@pytest.mark.parametrize("stage", [True, False])
def test_infinite_activations(name: str, value: float, stage: bool) -> None:
    """Staged weights give what the specification gives; integers as they come may give NaN instead.

    That is why trials leave out infinities where a kernel reads packed integers (trial/specs.js).
    """
    graph, values = made(name)
    values["x"].flat[::29] = value
    packed = optimise(graph, PACKING)
    (want,) = run_steps(packed, steps_of(packed), values)

    def pick(kernel: Kernel) -> Schedule:
        usual = default_of(kernel)
        return replace(usual, stage=stage) if isinstance(usual, QuantisedSchedule) else usual

    (got,) = run_steps(packed, steps_of(packed), values, interpreted(pick))
    lost = np.isnan(got) & np.isinf(want)
    np.testing.assert_array_equal(np.where(lost, want, got), want)
    assert not (stage and lost.any())
    assert np.isnan(value) or np.isinf(want).any()


@pytest.mark.parametrize("name", ["one row", "many rows", "bytes in odd blocks"])
def test_any_order_of_tiles_gives_the_same_product(name: str) -> None:
    graph, values = made(name)
    packed, rng = optimise(graph, PACKING), Random(name)

    def execute(kernel: Kernel, buffers: list[np.ndarray]) -> None:
        usual = default_of(kernel)
        small = (
            {"x1": 3, "y1": 8, "y0": 8}
            if isinstance(classify(kernel), QuantisedContraction)
            else {}
        )
        fn = lower(kernel, replace(usual, **small))
        order = list(range(fn.tiles))
        rng.shuffle(order)
        interpret(fn, buffers, order)

    (got,) = run_steps(packed, steps_of(packed), values, execute)
    np.testing.assert_array_equal(got, results(graph, values)[0])


@pytest.mark.parametrize("fault", ["nibbles", "words", "panels"])
def test_a_planted_fault_in_the_layout_is_noticed(fault: str) -> None:
    """The order of nibbles in a byte, of words in a block and of columns in a panel all matter."""
    graph, values = made("many rows")
    packed = optimise(graph, PACKING)
    (step,) = steps_of(packed)
    number = form_as(step.kernel, QuantisedContraction).operands.col.buffer

    def execute(kernel: Kernel, buffers: list[np.ndarray]) -> None:
        words = buffers[number]
        buffers[number] = {
            "nibbles": lambda: (words >> 4 & 0x0F0F0F0F) | (words & 0x0F0F0F0F) << 4,
            "words": lambda: words.reshape(-1, 2, 8)[:, ::-1].ravel(),
            "panels": lambda: words.reshape(-1, 8)[:, ::-1].ravel(),
        }[fault]()
        interpreted(default_of)(kernel, buffers)

    (got,) = run_steps(packed, (step,), values, execute)
    assert not np.array_equal(got, results(graph, values)[0])


def test_few_rows_use_integers_as_they_come_and_many_share_them() -> None:
    few = default_schedule(the_step("one row")[1].kernel, Machine())
    many = default_schedule(the_step("many rows")[1].kernel, Machine())
    assert (few.stage, many.stage) == (False, True)
    assert not lower(the_step("one row")[1].kernel, few).scratch


@pytest.mark.parametrize("name", ["one row", "many rows", "bytes in odd blocks"])
def test_candidates_are_sound(name: str) -> None:
    """Each gives the product, and says how much scratch memory it needs."""
    graph, values = made(name)
    packed, step = the_step(name)
    machine = Machine()
    found = strategy_of(step.kernel).candidates(
        step.kernel, default_of(step.kernel), machine, Search(CORE)
    )
    assert len(found) > 10
    (want,) = results(graph, values)
    for candidate in Random(name).sample(found, 10):
        fn = lower(step.kernel, candidate.schedule)
        assert candidate.scratch == sum(-(-4 * s.size // 64) * 64 for s in fn.scratch)

        def pick(kernel: Kernel, chosen: Schedule = candidate.schedule) -> Schedule:
            return chosen if kernel == step.kernel else default_of(kernel)

        (got,) = run_steps(packed, steps_of(packed), values, interpreted(pick))
        np.testing.assert_array_equal(got, want)


def test_windows_are_not_copied_for_integers() -> None:
    """A convolution reads its image in place, so its weights become f32."""
    x = graph_input("x", (40, 16), F32)
    whole = weight("q", np.arange(3 * 16 * 24, dtype="u1").reshape(3, 16, 24))
    scale = weight("s", np.ones((1, 1, 24), "f4"))
    taps = elementwise("mul", cast(cast(whole, I16), F32), scale)
    made = contract("mct,tcn->mn", unfold(x, 0, 3, 1), taps)
    (step,) = steps_of(optimise(Graph("g", (("x", x),), (("y", made),)), PACKING))
    assert isinstance(classify(step.kernel), Contraction)


def test_a_weight_with_another_scale_for_each_step_becomes_f32() -> None:
    value = np.ones((5, 40), "f4")
    whole = weight("q", np.arange(200, dtype="u1").reshape(5, 40))
    product = elementwise("mul", cast(cast(whole, I16), F32), weight("s", value))
    x = graph_input("x", (3, 40), F32)
    graph = Graph("g", (("x", x),), (("y", contract("mk,nk->mn", x, product)),))
    (step,) = steps_of(optimise(graph, PACKING))
    assert not isinstance(classify(step.kernel), QuantisedContraction)
