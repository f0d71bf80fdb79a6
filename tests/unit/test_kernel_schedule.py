"""Schedules are plain data, and the default one fits the registers of the machine."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pytest
from helpers.kernels import ANCHORS, random_case
from helpers.schedules import random_schedule
from helpers.seeds import seeds

from lab.subjects import compile_graph, compile_matmul, matmul_step, steps_of
from tilewright.base.dtypes import F32
from tilewright.base.errors import InputError
from tilewright.compiler import Options
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    contract,
    elementwise,
    graph_input,
    node,
    reduce,
    transpose,
    unfold,
)
from tilewright.kernel import form
from tilewright.kernel.collapse import collapse
from tilewright.targets.simd.contraction import ContractionSchedule
from tilewright.targets.simd.elementwise import MapSchedule
from tilewright.targets.simd.inner_product import InnerProductSchedule
from tilewright.targets.simd.machine import Machine, even
from tilewright.targets.simd.register_tiles import register_tile
from tilewright.targets.simd.strategies import (
    SCHEDULES,
    TABLE,
    default_schedule,
    objection,
    schedule_from_json,
)
from tilewright.targets.simd.windows import WindowsSchedule
from tilewright.targets.wasm.variant import X86


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("seed", seeds(20))
def test_schedules_survive_json(seed: int, anchor: str) -> None:
    kernel = collapse(random_case(seed, anchor).kernel)
    schedule = random_schedule(Random(seed), kernel)
    data = json.loads(json.dumps(schedule.to_json()))
    assert schedule_from_json(data) == schedule
    assert hash(schedule_from_json(data)) == hash(schedule)
    assert str(schedule).split()[0] == data["form"] == schedule.tag
    assert str(schedule).count("=") == len(data) - 1


@pytest.mark.parametrize(
    ("data", "told"),
    [({"x0": 1}, "None"), ({"form": "none"}, "'none'"), ({"form": "map", "y0": 4}, "has no y0")],
)
def test_what_is_no_schedule_is_a_typed_error(data: dict, told: str) -> None:
    with pytest.raises(InputError, match=told):
        schedule_from_json(data)


def test_every_form_has_a_row_and_every_schedule_a_name_of_its_own() -> None:
    forms = {c for c in vars(form).values() if isinstance(c, type) and issubclass(c, form.Form)}
    assert set(TABLE) == forms - {form.Form}
    assert set(SCHEDULES.values()) == {kind for row in TABLE.values() for kind in row.kinds}


def test_a_schedule_of_another_form_is_refused() -> None:
    kernel = matmul_step(8, 16, 8).kernel
    assert objection(kernel, default_schedule(kernel, Machine())) == ""
    assert "its tag is contraction or depth" in objection(kernel, MapSchedule())
    assert "do not lie along" in objection(kernel, InnerProductSchedule())


MACHINES = [Machine(registers=n, fma=fma) for n in (15, 16, 32) for fma in (True, False)]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 64])
@pytest.mark.parametrize("cols", [1, 4, 5, 12, 64, 1000])
def test_register_tile_fits(rows: int, cols: int, machine: Machine) -> None:
    x0, y0 = register_tile(rows, cols, machine)
    assert 1 <= x0 <= rows
    assert y0 % 4 == 0
    assert live(x0, y0 // 4) + (not machine.fma) <= machine.registers


def test_many_rows_fill_the_registers() -> None:
    assert register_tile(64, 64, Machine(registers=15)) == (6, 8)
    assert register_tile(64, 64, Machine(registers=32)) == (6, 16)


@pytest.mark.parametrize("rows", [1, 2, 3, 64])
def test_few_rows_keep_enough_sums_in_flight(rows: int) -> None:
    for cols, panel in ((768, 1), (768, 8), (1000, 8)):
        x0, y0 = register_tile(rows, cols, Machine(), panel)
        assert x0 * (y0 // 4) >= 8


@pytest.mark.parametrize("rows", [7, 8, 9, 32, 128])
def test_register_tiles_take_whole_panels(rows: int) -> None:
    assert register_tile(rows, 768, Machine())[1] == 12
    assert register_tile(rows, 768, Machine(), 8)[1] == 8
    entry = compile_matmul(rows, 64, 768, Options(variants=("x86",))).codes[0]
    assert entry.schedule.y0 == 8


@pytest.mark.parametrize(("depth", "cols"), [(512, 2048), (768, 768), (3072, 768), (64, 50257)])
def test_tiles_of_a_vector_product_leave_room_in_l2(depth: int, cols: int) -> None:
    """Half of it, or one register tile: a loop reads the last ones again from there."""
    code = compile_matmul(1, depth, cols, Options(variants=("x86",))).codes[0]
    chosen = code.schedule
    assert 4 * depth * chosen.y1 <= X86.l2 // 2 or chosen.y1 == chosen.y0
    assert code.loops.tiles >= 12


@pytest.mark.parametrize(("depth", "order"), [(64, "mn"), (384, "nm")])
def test_columns_that_fit_l1_stay_there_whole(depth: int, order: str) -> None:
    a = graph_input("a", (2, 64, depth), F32)
    b = graph_input("b", (2, depth, 64), F32)
    graph = Graph("product", (("a", a), ("b", b)), (("y", contract("bmk,bkn->bmn", a, b)),))
    variants = compile_graph(graph).made["wasm"].codes.values()
    assert {code.schedule.order for (code,) in variants} == {order}


def live(x0: int, vectors: int) -> int:
    """Registers in use at once: sums, the smaller set of operands, one element of the other."""
    return x0 * vectors + min(x0, vectors) + 1


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("seed", seeds(20))
def test_default_schedule_of_any_kernel(seed: int, anchor: str) -> None:
    kernel = collapse(random_case(seed, anchor).kernel)
    for registers in (15, 32):
        s = default_schedule(kernel, Machine(registers=registers))
        assert objection(kernel, s) == ""
        if isinstance(s, ContractionSchedule | InnerProductSchedule):
            vectors = s.y0 if isinstance(s, InnerProductSchedule) else s.y0 // s.lanes
            assert live(s.x0, vectors) <= registers
            assert s.x1 % s.x0 == 0
            assert s.y1 % s.y0 == 0


def depthwise(size: int, channels: int, taps: int) -> Graph:
    """A square image, channels last, padded."""
    padded = size - 1 + taps
    image = graph_input("x", (padded, padded, channels), F32)
    shape = (1, 1, taps, taps, channels)
    factors = node(ops.Weight("w", shape, F32, lambda: np.ones(shape, "f4")))
    windows = unfold(unfold(image, 0, taps), 1, taps)
    products = elementwise("mul", transpose(windows, (0, 1, 3, 4, 2)), factors)
    return Graph("depthwise", (("x", image),), (("y", reduce("sum", products, [2, 3])),))


@pytest.mark.parametrize(
    ("size", "channels", "taps", "lines"),
    [
        (14, 512, 3, True), (7, 1024, 3, True), (14, 256, 5, True), (28, 128, 5, True),
        (14, 480, 3, False), (14, 384, 3, False), (14, 240, 5, False), (112, 64, 3, False),
    ],
)  # fmt: skip
def test_units_take_whole_lines_where_the_cache_keeps_none(
    size: int, channels: int, taps: int, lines: bool
) -> None:
    """Rows of channels that are a multiple of a large power of two share few sets of the cache."""
    (step,) = steps_of(depthwise(size, channels, taps))
    chosen = default_schedule(step.kernel, Machine())
    assert isinstance(chosen, WindowsSchedule)
    assert (chosen.x0, chosen.y0) == ((2, 16) if lines else (even(size, 8), 4))
    assert objection(step.kernel, chosen) == ""


def test_a_larger_cache_keeps_more_lines() -> None:
    (step,) = steps_of(depthwise(14, 256, 3))
    small, large = (default_schedule(step.kernel, Machine(l1=l1)) for l1 in (32768, 65536))
    assert isinstance(small, WindowsSchedule)
    assert isinstance(large, WindowsSchedule)
    assert (small.y0, large.y0) == (16, 4)
