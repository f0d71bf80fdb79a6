"""Products by groups of threads (gpu/product/register_gemm.py): any schedule gives the same sums.

Whole numbers, so that any order of the reduction gives the same bits.  The interpreter finds races
between threads.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from helpers.gpu import by_groups, random_tile
from helpers.graphs import conv, results
from helpers.seeds import seeds

from tilewright.base.dtypes import F32
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    contract,
    elementwise,
    graph_input,
    node,
    scalar_like,
)
from tilewright.kernel.layout import Packing, Panels
from tilewright.targets.gpu.product.strategies import REGISTER_GEMM
from tilewright.targets.protocol import PACKING

#: (equation, shapes, whether the second operand is a weight)
PRODUCTS = {
    "weight": ("mk,kn->mn", (13, 37), (37, 21), True),
    "in-vectors": ("mk,kn->mn", (12, 40), (40, 24), True),
    "inputs": ("bmk,bkn->bmn", (2, 9, 37), (2, 37, 14), False),
    "inputs-in-vectors": ("bmk,bkn->bmn", (2, 9, 36), (2, 36, 12), False),
    "transposed-a": ("km,kn->mn", (37, 9), (37, 14), False),
    "transposed-a-in-vectors": ("km,kn->mn", (36, 8), (36, 12), False),
    "transposed-b": ("bmk,bnk->bmn", (2, 9, 37), (2, 14, 37), False),
    "transposed-b-in-vectors": ("bmk,bnk->bmn", (2, 9, 36), (2, 16, 36), False),
    "two-sums": ("mhk,hkn->mn", (7, 5, 9), (5, 9, 13), True),
    "strided-sums": ("hmk,nhk->mn", (5, 7, 20), (13, 5, 20), False),
}
#: (shape of the image, shape of the weights, stride, padding)
CONVOLUTIONS = {
    "conv": ((1, 5, 7, 6), (9, 5, 3, 3), 1, 1),
    "conv-in-vectors": ((1, 8, 6, 8), (12, 8, 3, 3), 1, 1),
    "conv-strides": ((2, 4, 9, 9), (8, 4, 3, 3), 2, 0),
    "conv-points": ((1, 16, 5, 4), (8, 16, 1, 1), 1, 0),
}


def made(name: str) -> tuple[Graph, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)

    def whole(shape: tuple[int, ...]) -> np.ndarray:
        return rng.integers(-3, 4, shape).astype("f4")

    def weight(label: str, value: np.ndarray) -> Node:
        return node(ops.Weight(label, value.shape, F32, lambda: value))

    if name in CONVOLUTIONS:
        image, kernel, stride, padding = CONVOLUTIONS[name]
        x = graph_input("a", image, F32)
        y = conv(x, weight("w", whole(kernel)), stride, padding)
        values = {"a": whole(image)}
        return Graph(name, (("a", x),), (("y", elementwise("max", y, scalar_like(0, y))),)), values
    equation, a, b, is_weight = PRODUCTS[name]
    values = {"a": whole(a), "b": whole(b)}
    x = graph_input("a", a, F32)
    w = weight("b", values.pop("b")) if is_weight else graph_input("b", b, F32)
    inputs = (("a", x),) if is_weight else (("a", x), ("b", w))
    return Graph(name, inputs, (("y", contract(equation, x, w)),)), values


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [*PRODUCTS, *CONVOLUTIONS])
@pytest.mark.parametrize(
    "packing", [PACKING, replace(PACKING, floats=Panels(4096))], ids=["panels", "rows"]
)
@pytest.mark.parametrize("seed", seeds(3, nightly=20))
def test_any_schedule_gives_the_same_product(name: str, packing: Packing, seed: int) -> None:
    graph, values = made(name)
    (want,) = results(graph, values)
    rng = Random(f"{name}{seed}")
    got = by_groups(REGISTER_GEMM, graph, values, lambda _: random_tile(rng), packing)
    np.testing.assert_array_equal(got, want)
