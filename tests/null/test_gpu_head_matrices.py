"""Attention by matrix units (targets/gpu/head_matrices.py): any schedule, as exact as halves allow.

Random attention whose operands may be rounded; the graph in float64 is the judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from helpers.attention import Maker, mixed, scored, times
from helpers.gpu import ByGroups
from helpers.graphs import results, run_steps, softmax
from helpers.seeds import seeds
from test_attention import attentions, compiled, values_of

from tilewright.base.dtypes import F32, I32
from tilewright.frontend.algebra import counted
from tilewright.fusion.rounding import loosened
from tilewright.graph.node import (
    Graph,
    broadcast,
    cast,
    constant,
    contract,
    elementwise,
    reshape,
)
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu import head_matrices
from tilewright.targets.gpu.head_matrices import HeadMatrixSchedule

#: What f16 operands and powers cost, of the largest value.
HALVES = 4e-3


class Loosened(ByGroups):
    """Attention that may round its operands, by matrices."""

    def __init__(self, schedule: HeadMatrixSchedule) -> None:
        super().__init__(head_matrices, lambda _: schedule)

    def __call__(self, kernel: Kernel, buffers: list[np.ndarray]) -> None:
        super().__call__(loosened(kernel), buffers)


def by_matrices(
    graph: Graph, values: Mapping[str, Any], schedule: HeadMatrixSchedule
) -> np.ndarray:
    packed, steps = compiled(graph)
    execute = Loosened(schedule)
    (got,) = run_steps(packed, steps, dict(values), execute)
    assert execute.products == 1
    return got


def masked(rows: int, keys: int, depth: int, width: int, kind: str) -> Graph:
    """Heads of a batch with a mask as data, or none."""
    m = Maker(1)
    q, k = m.head("q", rows, 2, depth), m.head("k", keys, 2, depth)
    scores = times(scored(q, k), depth**-0.5)
    if kind == "mask":
        scores = elementwise("add", scores, m.given("mask", 1, 1, rows, keys))
    return m.finish(mixed(softmax(scores), m.head("v", keys, 2, width)))


def cached(rows: int, keys: int, depth: int) -> Graph:
    """A cache of which only the first rows are valid; two query heads share a head of it."""
    m = Maker(1)
    q = reshape(m.given("q", 1, rows, 4 * depth), (1, rows, 2, 2, depth))
    k, v = (m.given(name, 1, 2, keys, depth) for name in "kv")
    past = cast(m.given("past", 1, 1), I32)
    row, key = (cast(counted((rows, keys), axis), I32) for axis in (0, 1))
    seen = elementwise("le", key, elementwise("add", past, row))
    scores = times(contract("bmhgd,bhnd->bhgmn", q, k), depth**-0.5)
    mask = broadcast(reshape(seen, (1, 1, 1, rows, keys)), scores.shape)
    scores = elementwise("where", mask, scores, constant(float("-inf"), F32))
    made = contract("bhgmn,bhnd->bmhgd", softmax(scores), v)
    return Graph("attention", tuple(m.inputs.items()), (("y", elementwise("neg", made)),))


def assert_near(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=HALVES * np.nanmax(np.abs(want)))


SMALL = HeadMatrixSchedule(8, 8, 8, 8, 1, 2, 1, 16)


@pytest.mark.parametrize("kind", ["", "mask"])
@pytest.mark.parametrize(
    ("sizes", "schedule"),
    [
        ((16, 16, 8, 8), SMALL),
        ((19, 37, 24, 16), SMALL),
        ((20, 40, 16, 32), HeadMatrixSchedule(8, 16, 16, 16, 2, 1, 2, 32)),
        ((33, 40, 32, 32), HeadMatrixSchedule(16, 16, 16, 32, 1, 1, 2, 32)),
        ((33, 70, 32, 64), HeadMatrixSchedule(16, 8, 16, 32, 1, 2, 2, 32)),
    ],
)
def test_some_schedules(
    sizes: tuple[int, int, int, int], schedule: HeadMatrixSchedule, kind: str
) -> None:
    graph = masked(*sizes, kind)
    values = values_of(graph)
    (want,) = results(graph, values)
    assert_near(by_matrices(graph, values, schedule), want)
