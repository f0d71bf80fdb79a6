"""Products that may round their rows read one copy of them as halves, on hosts that can; nobody
else reads less than f32.

Input: a graph of two such products and a sum, with numbers at which rounding is decided.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from conftest import TARGETS, BundleOf, RunBundle

from lab.subjects import compile_graph
from tilewright.base.dtypes import F32
from tilewright.bundle import open_bundle
from tilewright.graph import ops
from tilewright.graph.node import Graph, Node, contract, elementwise, graph_input, node
from tilewright.targets import target

ROWS, DEPTH, COLUMNS = 64, 72, 1024
#: The largest halves and what rounds to them, the smallest, ties, and what is nearly one.
SPECIAL = [
    65504, 65519.99, -65504, 2**-14, 2**-14 - 2**-25, 2**-24, 2**-25, 3 * 2**-25, -(2**-25) * 1.001,
    1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-11 + 2**-20, -1 - 2**-11, 1e-20, -0.0, 0.0, 2048.5, 2049,
]  # fmt: skip


def weight(name: str, made: Callable[[], np.ndarray]) -> Node:
    return node(ops.Weight(name, (DEPTH, COLUMNS), F32, made, "f16", "f16"))


def identity() -> np.ndarray:
    return np.eye(DEPTH, COLUMNS, dtype=np.float32)


def numbers() -> np.ndarray:
    value = np.random.default_rng(3).standard_normal((DEPTH, COLUMNS), np.float32) / 8
    return value.astype(np.float16).astype(np.float32)


def graph() -> Graph:
    x = graph_input("x", (ROWS, DEPTH), F32)
    same = contract("mk,kn->mn", x, weight("same", identity))
    other = elementwise("neg", contract("mk,kn->mn", x, weight("other", numbers)))
    return Graph(
        "rounding",
        (("x", x),),
        (("same", same), ("other", other), ("sum", elementwise("add", x, x))),
    )


@pytest.mark.by_turns
def test_rows_are_rounded_once(host_name: str, run_bundle: RunBundle, bundle_of: BundleOf) -> None:
    path = bundle_of("rounding", lambda options: compile_graph(graph(), options).contents)
    x = np.random.default_rng(4).standard_normal((ROWS, DEPTH), np.float32)
    x[1, : len(SPECIAL)] = SPECIAL
    read = x
    if target(TARGETS[host_name]).facts.f16_memory:
        read = x.astype(np.float16).astype(np.float32)
        steps = [step.kernel for step in open_bundle(path).manifest.plans[0].steps]
        assert sum(name.startswith("round_") for name in steps) == 1
    found = run_bundle(path, {"x": x})
    np.testing.assert_array_equal(found["same"][:, :DEPTH], read)
    np.testing.assert_array_equal(found["sum"], x + x)
    want = -(read.astype(np.float64) @ numbers())
    assert np.linalg.norm(found["other"] - want) <= 1e-5 * np.linalg.norm(want)
