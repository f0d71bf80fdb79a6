"""Random graphs: every stage of the compiler keeps the values, bit by bit.

graph = rewritten = packed = its kernels by the reference host = its kernels as interpreted loops.
The numbers are small and whole, so results must be equal, not close.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from helpers.graphs import (
    Inputs,
    default_of,
    interpreted,
    results,
    run_steps,
    steps_of,
)
from helpers.integers import quantised_graph
from helpers.random_graphs import random_graph
from helpers.schedules import random_schedule
from helpers.seeds import seeds

from tilewright.graph.node import Graph, Node, gather, iota, render, transpose
from tilewright.graph.passes import integer_arithmetic, optimise, pack_weights
from tilewright.graph.passes.algebra import RULES, simplify
from tilewright.graph.rewrite import RuleFn, rewrite
from tilewright.targets.protocol import PACKING


def assert_same(graph: Graph, inputs: Inputs, want: list[np.ndarray]) -> None:
    for got, expected in zip(results(graph, inputs), want, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("seed", seeds(120, nightly=380))
def test_every_stage_keeps_the_values(seed: int) -> None:
    check_stages(*random_graph(seed), seed)


@pytest.mark.parametrize("seed", seeds(60))
def test_every_stage_keeps_quantised_values(seed: int) -> None:
    check_stages(*quantised_graph(seed), seed)


def check_stages(graph: Graph, inputs: Inputs, seed: int) -> None:
    want = results(graph, inputs)
    assert_same(simplify(graph), inputs, want)
    packed = optimise(graph, PACKING)
    assert_same(packed, inputs, want)
    steps = steps_of(packed)
    rng = Random(seed)
    for execute in (None, interpreted(default_of), interpreted(lambda k: random_schedule(rng, k))):
        extra = () if execute is None else (execute,)
        for got, expected in zip(run_steps(packed, steps, inputs, *extra), want, strict=True):
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got, expected)


def with_gathers(seed: int) -> tuple[Graph, Inputs]:
    """A random graph whose outputs are lines of what was transposed."""
    graph, inputs = random_graph(seed)

    def picked(n: Node) -> Node:
        if n.rank < 2 or 0 in n.shape:
            return n
        turned = transpose(n, tuple(reversed(range(n.rank))))
        return gather(turned, iota((turned.shape[0],), 0), 0)

    outputs = tuple((name, picked(n)) for name, n in graph.outputs)
    return Graph(graph.name, graph.inputs, outputs), inputs


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__)
def test_each_rule_alone_keeps_the_values(rule: RuleFn) -> None:
    fired, grown = 0, quantised_graph if rule in integer_arithmetic.RULES else with_gathers
    for seed in seeds(200):
        graph, inputs = grown(seed)
        after = rewrite(graph, (rule,))
        if render(after) != render(rewrite(graph, ())):
            fired += 1
            assert_same(after, inputs, results(graph, inputs))
    assert fired >= 3, "random graphs do not exercise this rule"


@pytest.mark.parametrize("seed", seeds(60))
def test_rewriting_reaches_a_fixpoint(seed: int) -> None:
    graph, _ = random_graph(seed)
    once = simplify(graph)
    assert render(simplify(once)) == render(once)
    packed = optimise(graph, PACKING)
    assert render(rewrite(packed, pack_weights.rules(PACKING))) == render(packed)
