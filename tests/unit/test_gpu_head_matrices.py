"""Attention by matrix units (gpu/attention/many_rows.py): any schedule, as exact as halves allow.

Random attention whose operands may be rounded; the graph is the judge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from helpers.attention import Maker, masked, times
from helpers.gpu import ByGroups, some_for_each_unit
from helpers.graphs import results, run_steps, softmax
from test_attention import attentions, compiled, values_of

from lab.subjects import compile_graph
from tilewright.base.dtypes import F32, I32
from tilewright.compiler import Options
from tilewright.frontend.arithmetic import position_along
from tilewright.fusion.f16_operands import with_rounded_attention
from tilewright.graph.node import (
    Graph,
    broadcast,
    cast,
    constant,
    contract,
    elementwise,
    reshape,
)
from tilewright.kernel.expr import LOWEST
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.attention.schedule import (
    AttentionManyRowsSchedule,
    AttentionOneRowSchedule,
    AttentionSomeRowsSchedule,
    many_rows_shared_bytes,
)
from tilewright.targets.gpu.attention.strategies import (
    ATTENTION_MANY_ROWS,
    ATTENTION_ONE_ROW,
    ATTENTION_SOME_ROWS,
)
from tilewright.targets.gpu.workgroup_limits import MATRIX_UNITS
from tilewright.targets.gpu.workgroup_strategy import AnyStrategy
from tilewright.targets.schedule import Schedule
from tilewright.targets.wgsl.target import Wgsl
from tilewright.tuning.candidates import space_of

WGSL = Wgsl()

#: What f16 operands and powers cost, of the largest value.
HALVES = 4e-3


class Loosened(ByGroups):
    """Attention that may round its operands, by matrices unless another strategy is named."""

    def __init__(self, schedule: Schedule, strategy: AnyStrategy = ATTENTION_MANY_ROWS) -> None:
        super().__init__(strategy, lambda _: schedule)

    def __call__(self, kernel: Kernel, buffers: list[np.ndarray]) -> None:
        super().__call__(with_rounded_attention(kernel), buffers)


def by_matrices(
    graph: Graph, values: Mapping[str, Any], schedule: AttentionManyRowsSchedule
) -> np.ndarray:
    return run_loosened(graph, values, Loosened(schedule))


def run_loosened(graph: Graph, values: Mapping[str, Any], execute: Loosened) -> np.ndarray:
    packed, steps = compiled(graph)
    (got,) = run_steps(packed, steps, dict(values), execute)
    assert execute.products == 1
    return got


def cached(rows: int, keys: int, depth: int) -> Graph:
    """A cache of which only the first rows are valid; two query heads share a head of it."""
    m = Maker(1)
    q = reshape(m.given("q", 1, rows, 4 * depth), (1, rows, 2, 2, depth))
    k, v = (m.given(name, 1, 2, keys, depth) for name in "kv")
    past = cast(m.given("past", 1, 1), I32)
    row, key = (cast(position_along((rows, keys), axis), I32) for axis in (0, 1))
    seen = elementwise("le", key, elementwise("add", past, row))
    scores = times(contract("bmhgd,bhnd->bhgmn", q, k), depth**-0.5)
    mask = broadcast(reshape(seen, (1, 1, 1, rows, keys)), scores.shape)
    scores = elementwise("where", mask, scores, constant(float("-inf"), F32))
    made = contract("bhgmn,bhnd->bmhgd", softmax(scores), v)
    return Graph("attention", tuple(m.inputs.items()), (("y", elementwise("neg", made)),))


def assert_near(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=HALVES * np.nanmax(np.abs(want)))


SMALL = AttentionManyRowsSchedule(8, 8, 8, 8, 1, 2, 1, 16)


@pytest.mark.parametrize(
    ("sizes", "kind", "schedule"),
    [
        ((16, 16, 8, 8), "", SMALL),
        ((19, 37, 24, 16), "mask", SMALL),
        ((20, 40, 16, 32), "mask", AttentionManyRowsSchedule(8, 16, 16, 16, 2, 1, 2, 32)),
        ((33, 40, 32, 32), "", AttentionManyRowsSchedule(16, 16, 16, 32, 1, 1, 2, 32)),
        ((33, 40, 16, 32), "mask", AttentionManyRowsSchedule(16, 8, 16, 32, 1, 2, 2, 32)),
    ],
)
def test_schedules(
    sizes: tuple[int, int, int, int], kind: str, schedule: AttentionManyRowsSchedule
) -> None:
    graph = masked(*sizes, kind)
    values = values_of(graph)
    (want,) = results(graph, values)
    assert_near(by_matrices(graph, values, schedule), want)


@pytest.mark.parametrize("past", [-3, 5, 40])
def test_keys_that_no_row_sees_are_not_read(past: int) -> None:
    """Blocks behind the last one may hold anything; rows that see nothing are NaN."""
    graph = cached(18, 64, 16)
    values = values_of(graph)
    values["past"][:] = past
    with np.errstate(invalid="ignore"):
        (want,) = results(graph, values)
    first = -(-(past + 18) // 16) * 16
    for name in "kv":
        values[name][:, :, first:] = np.nan
    assert np.isnan(want).any() == (past < 0)
    assert_near(by_matrices(graph, values, SMALL), want)


@pytest.mark.parametrize("low", [float("-inf"), LOWEST])
def test_rows_without_any_key(low: float) -> None:
    """-inf everywhere is NaN, as softmax says; the lowest finite number gives an even mean."""
    graph = masked(16, 21, 8, 8, "mask")
    values = values_of(graph)
    values["mask"][..., :2, :] = low
    with np.errstate(invalid="ignore"):
        (want,) = results(graph, values)
    assert np.isnan(want).any() == np.isinf(low)
    assert_near(by_matrices(graph, values, SMALL), want)


@pytest.mark.parametrize(
    ("strategy", "rows", "schedule"),
    [
        (ATTENTION_SOME_ROWS, 5, AttentionSomeRowsSchedule(4, 16, 16)),
        (ATTENTION_ONE_ROW, 5, AttentionOneRowSchedule(16, 4, 1, 2)),
        (ATTENTION_MANY_ROWS, 19, SMALL),
    ],
)
def test_rows_without_any_key_that_give_0(
    strategy: AnyStrategy, rows: int, schedule: Schedule
) -> None:
    """As PyTorch exports it: what is stored asks whether the sum is NaN, which is now a factor."""
    graph = masked(rows, 21, 8, 8, "safe")
    values = values_of(graph)
    values["mask"][..., :2, :] = float("-inf")
    with np.errstate(invalid="ignore"):
        (want,) = results(graph, values)
    got = run_loosened(graph, values, Loosened(schedule, strategy))
    assert not want[:, :2].any()
    assert not got[:, :2].any()
    assert_near(got, want)


def kernel_of(rows: int = 512, keys: int = 1024, depth: int = 128, width: int = 128) -> Kernel:
    (kernel,) = attentions(compiled(masked(rows, keys, depth, width, ""))[1])
    return kernel


def test_only_where_operands_may_be_rounded() -> None:
    kernel = kernel_of()
    assert not ATTENTION_MANY_ROWS.suits(kernel)
    assert not WGSL.defaults_with_features(kernel)
    schedules = space_of(kernel, CLASSES["webgpu"]).schedules
    assert not any(isinstance(s, AttentionManyRowsSchedule) for s in schedules)
    assert "may be rounded to halves" in AttentionManyRowsSchedule().objection(kernel)
    for other in (kernel_of(rows=4), kernel_of(depth=20), kernel_of(width=6)):
        assert not ATTENTION_MANY_ROWS.suits(with_rounded_attention(other))


def test_a_prompt_has_tiles_for_each_size_of_memory() -> None:
    kernel = with_rounded_attention(kernel_of())
    found = [
        s
        for s in WGSL.defaults_with_features(kernel)
        if isinstance(s, AttentionManyRowsSchedule) and s.m == 16
    ]
    assert [(s.x1, s.y1, s.threads, s.room) for s in found] == [
        (64, 64, 256, 49152), (64, 32, 256, 32768)
    ]  # fmt: skip
    for schedule in found:
        assert many_rows_shared_bytes(kernel, schedule) <= schedule.room
        assert f"shared-memory-{schedule.room}" in schedule.features
    text = str(WGSL.code(kernel, found[0]).body)
    # queries; keys twice with a column of matrices each, powers and values once, for each block
    assert text.count("subgroupMatrixLoad<subgroup_matrix_left") == 8 + 4
    assert text.count("subgroupMatrixLoad<subgroup_matrix_right") == 2 * 16 + 16
    assert text.count("subgroupMatrixMultiplyAccumulate") == 2 * 16 + 16
    # one quick reciprocal of a row, no exact quotient of each result
    assert "f32_div(" not in text
    assert text.count("/ total") == 1


def test_the_space_has_some_for_each_unit() -> None:
    kernel = with_rounded_attention(kernel_of())
    space = space_of(kernel, CLASSES["webgpu"])
    some_for_each_unit(space, kernel, AttentionManyRowsSchedule, "f16-f32")


def test_no_text_assigns_to_what_does_not_change() -> None:
    kernel = with_rounded_attention(kernel_of(40, 70, 16, 32))
    for unit in MATRIX_UNITS["f16-f32"]:
        schedule = AttentionManyRowsSchedule(*unit, down=1, along=1, y1=32)
        text = str(WGSL.code(kernel, schedule).body)
        fixed = set(re.findall(r"\blet (\w+)", text))
        assert not fixed & set(re.findall(r"^\s*(\w+) = ", text, re.MULTILINE)), schedule


@pytest.mark.parametrize("halves", [False, True])
def test_whoever_allows_halves_gets_them(halves: bool) -> None:
    """The model's default stays what every device has; better ones name what they need."""
    options = Options(targets=("wgsl",), halves=halves)
    compiled = compile_graph(masked(64, 64, 64, 64, ""), options)
    needs = compiled.made["wgsl"].section.builds[0].facts.get("needs", {})
    wanted = {"subgroup-matrix-f16-f32-16x16x16", "subgroup-matrix-f16-f32-8x16x16"}
    named = {name for names in needs.values() for name in names}
    assert (wanted & named == wanted) if halves else not named
    (kernel,) = (k for k in compiled.program.kernels if k.anchor == "attention")
    assert isinstance(WGSL.default(kernel, "core"), AttentionSomeRowsSchedule)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"width": 24}, "width is one of"),
        ({"n": 12}, "n and k of 8"),
        ({"room": 40000}, "room is one of"),
        ({"along": 3}, "n * along"),
        ({"y1": 40}, "y1 is a multiple"),
        ({"n": 8, "y1": 16}, "8 keys of a block or a multiple"),
        ({"rows": 2, "along": 1, "y1": 128}, "at most 128 sums"),
        ({"down": 8}, "at most 256 threads"),
        ({"room": 32768}, "shares at most 32768 bytes"),
    ],
)
def test_objections(change: dict[str, int], words: str) -> None:
    assert words in WGSL.objection(
        with_rounded_attention(kernel_of()), AttentionManyRowsSchedule(**change)
    )
