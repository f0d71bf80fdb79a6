"""Products of few rows by groups of threads (gpu/product/few_rows.py): any schedule is exact."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from helpers.gpu import by_groups, random_few_rows
from helpers.graphs import results, steps_of
from helpers.seeds import seeds

from tilewright.base.dtypes import F32
from tilewright.graph import ops
from tilewright.graph.node import Graph, contract, elementwise, graph_input, node
from tilewright.graph.passes import optimise
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.product.schedule import FewRowsSchedule
from tilewright.targets.gpu.product.strategies import FEW_ROWS
from tilewright.targets.protocol import PACKING

#: (equation, shapes, whether the second operand is a weight)
PRODUCTS = {
    "weight": ("mk,kn->mn", (1, 300), (300, 21), True),
    "in-vectors": ("mk,kn->mn", (1, 256), (256, 24), True),
    "one-panel": ("mk,kn->mn", (2, 256), (256, 8), True),
    "three-rows": ("mk,kn->mn", (3, 260), (260, 20), True),
    "inputs": ("bmk,bkn->bmn", (2, 1, 150), (2, 150, 14), False),
    "inputs-in-vectors": ("bmk,bkn->bmn", (2, 1, 150), (2, 150, 12), False),
}


def made(name: str) -> tuple[Graph, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    equation, a, b, is_weight = PRODUCTS[name]
    values = {n: rng.integers(-3, 4, s).astype("f4") for n, s in (("a", a), ("b", b))}
    x = graph_input("a", a, F32)
    second = values.pop("b") if is_weight else values["b"]
    w = node(ops.Weight("b", b, F32, lambda: second)) if is_weight else graph_input("b", b, F32)
    y = contract(equation, x, w)
    bias = graph_input("c", y.shape, F32)
    values["c"] = rng.integers(-3, 4, y.shape).astype("f4")
    given = {"a": x, "c": bias} | ({} if is_weight else {"b": w})
    return Graph(name, tuple(given.items()), (("y", elementwise("add", y, bias)),)), values


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("seed", seeds(3, nightly=20))
def test_any_schedule_gives_the_same_product(name: str, seed: int) -> None:
    graph, values = made(name)
    (want,) = results(graph, values)
    rng = Random(f"{name}{seed}")
    got = by_groups(FEW_ROWS, graph, values, lambda _: random_few_rows(rng))
    np.testing.assert_array_equal(got, want)


def kernel_of(name: str) -> Kernel:
    graph, _ = made(name)
    (step,) = (s for s in steps_of(optimise(graph, PACKING)))
    return step.kernel


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (FewRowsSchedule(y1=6), "multiple of 4"),
        (FewRowsSchedule(slices=3), "power of two"),
        (FewRowsSchedule(y1=16, slices=128), "at most 256 threads"),
        (FewRowsSchedule(r0=0), "r0 is a whole number"),
    ],
)
def test_what_is_no_schedule(schedule: FewRowsSchedule, said: str) -> None:
    assert said in schedule.objection(kernel_of("weight"))
