"""The kernels of a graph, checked and named: for tests of what fusion must achieve.

Input: a graph, or its outputs.  Output: its kernels, and of what kind they are.
Tolerance: 1e-6 relative to the largest value per hundred terms of the longest sum.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from helpers.graphs import results, run_steps, steps_of
from tilewright.fusion.kernel_steps import KernelStep
from tilewright.graph.node import Graph, Node
from tilewright.graph.passes import optimise
from tilewright.kernel.expr import Call, Const
from tilewright.kernel.tree import walk
from tilewright.targets.protocol import PACKING


def compiled(graph: Graph) -> tuple[Graph, tuple[KernelStep, ...]]:
    packed = optimise(graph, PACKING)
    return packed, steps_of(packed)


def steps_for(*outputs: Node, **inputs: Node) -> tuple[KernelStep, ...]:
    """The kernels of a graph, after a check that they compute its values."""
    named = tuple((f"y{i}", n) for i, n in enumerate(outputs))
    return checked(Graph("test", tuple(inputs.items()), named))


def checked(graph: Graph) -> tuple[KernelStep, ...]:
    numbers = np.random.default_rng(7)
    values = {
        name: numbers.standard_normal(n.shape).astype("f4")
        if n.dtype.is_float
        else numbers.integers(0, 2, n.shape).astype(n.dtype.numpy)
        for name, n in graph.inputs
    }
    packed, steps = compiled(graph)
    for got, want in zip(run_steps(packed, steps, values), results(graph, values), strict=True):
        scale = float(np.abs(want).max(initial=1.0))
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6 * scale)
    return steps


def kinds(steps: tuple[KernelStep, ...]) -> Counter[str]:
    """Kernels by what they do: an anchor, "copy" for one that only moves elements, or "border"."""
    found: Counter[str] = Counter()
    for s in steps:
        k = s.kernel
        moves = k.anchor == "map" and not any(isinstance(n, Call) for n in walk(k.value))
        fills = isinstance(k.value, Const)
        found["border" if fills else "copy" if moves else k.anchor] += 1
    return found


def fns(step: KernelStep) -> set[str]:
    return {n.fn for n in walk(step.kernel.value) if isinstance(n, Call)}


def copies(steps: tuple[KernelStep, ...]) -> list[KernelStep]:
    return [s for s in steps if kinds((s,))["copy"]]
