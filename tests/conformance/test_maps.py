"""Large elementwise kernels, which some hosts compute in vectors; numpy is the judge.

Input: a graph with operands that come whole, once a row, turned, gathered and transposed.
"""

from __future__ import annotations

import numpy as np
import pytest
from conftest import BundleOf, RunBundle

from lab.subjects import compile_graph
from tilewright.base.dtypes import F32, I64
from tilewright.base.errors import TilewrightError
from tilewright.graph.node import (
    Graph,
    constant,
    elementwise,
    flip,
    gather,
    graph_input,
    reshape,
    transpose,
)

ROWS, COLUMNS = 132, 512


def graph() -> Graph:
    x, row = graph_input("x", (ROWS, COLUMNS), F32), graph_input("row", (COLUMNS,), F32)
    ids = graph_input("ids", (ROWS,), I64)
    halves = flip(reshape(x, (ROWS, 4, 2, 64)), (2,))
    turned = elementwise("mul", halves, constant(np.array([[-1], [1]], np.float32)))
    turned = reshape(turned, (ROWS, COLUMNS))
    outputs = {
        "turned": elementwise("add", x, elementwise("mul", turned, row)),
        "gathered": elementwise("add", gather(x, ids, 0), row),
        "exp": elementwise("exp", elementwise("sub", x, row)),
        "across": elementwise("neg", transpose(x, (1, 0))),
    }
    return Graph("maps", (("x", x), ("row", row), ("ids", ids)), tuple(outputs.items()))


@pytest.mark.by_turns
def test_maps(run_bundle: RunBundle, bundle_of: BundleOf) -> None:
    path = bundle_of("maps", lambda options: compile_graph(graph(), options).contents)
    rng = np.random.default_rng(4)
    x, row = rng.standard_normal((ROWS, COLUMNS), np.float32), rng.random(COLUMNS, np.float32)
    ids = rng.integers(0, ROWS, ROWS)
    found = run_bundle(path, {"x": x, "row": row, "ids": ids})
    first, second = np.split(x.reshape(ROWS, 4, 128), 2, axis=2)
    turned = np.concatenate([-second, first], axis=2).reshape(ROWS, COLUMNS)
    np.testing.assert_allclose(found["turned"], x + turned * row, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["gathered"], x[ids] + row)
    np.testing.assert_allclose(found["exp"], np.exp(x - row), rtol=1e-5)
    np.testing.assert_array_equal(found["across"], -x.T)
    with pytest.raises(TilewrightError) as caught:
        run_bundle(path, {"x": x, "row": row, "ids": np.full(ROWS, ROWS)})
    assert caught.value.code == "kernel-trap"
