"""Scan: its meaning, and that unrolled kernels compute the same, in one memory plan.

Each case is a loop with another wiring of states, sequences and results.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers.graphs import run_steps

from lab.subjects import compile_graph
from tilewright.base.dtypes import F32, I32
from tilewright.base.errors import ShapeError, UnsupportedDType
from tilewright.bundle import write
from tilewright.fusion.fuse import fuse
from tilewright.fusion.kernel_specs import kernel_steps
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    cast,
    contract,
    elementwise,
    evaluate,
    graph_input,
    node,
    reshape,
    scalar_like,
    slice_,
    transpose,
)
from tilewright.graph.passes import optimise
from tilewright.graph.scan import element, scan
from tilewright.graph.views import window
from tilewright.hosts.reference import ReferenceHost
from tilewright.targets.protocol import PACKING

Made = tuple[list[Node], list[Node]]  # last states, results


def add(a: Node, b: Node) -> Node:
    return elementwise("add", a, b)


def body(inputs: list[Node], *outputs: Node) -> Graph:
    named = tuple((str(getattr(n.op, "name", "")), n) for n in inputs)
    return Graph("body", named, tuple((f"o{i}", n) for i, n in enumerate(outputs)))


def running_sum(x: Node, state: Node, backward: bool = False) -> Made:
    """The new state is the result: it is stored once."""
    s, now = graph_input("s", state.shape, F32), element("now", x)
    total = add(s, now)
    return scan(body([s, now], total, total), x.shape[0], [state], [x], (), [backward] * 2)


def state_only(x: Node, state: Node) -> Made:
    s, now = graph_input("s", state.shape, F32), element("now", x)
    return scan(body([s, now], add(s, now)), x.shape[0], [state], [x])


def delay(x: Node, state: Node) -> Made:
    """Outputs that are inputs: yesterday's element, and the state that keeps today's."""
    s, now = graph_input("s", state.shape, F32), element("now", x)
    return scan(body([s, now], now, s), x.shape[0], [state], [x])


def swap(x: Node, state: Node) -> Made:
    """Two states change places: neither may be overwritten before the other is read."""
    a, b = graph_input("a", state.shape, F32), graph_input("b", state.shape, F32)
    now = element("now", x)
    made = body([a, b, now], add(b, now), a, elementwise("mul", a, b))
    return scan(made, x.shape[0], [state, elementwise("neg", state)], [x])


def twins(x: Node, state: Node) -> Made:
    """Two states get the same value, which is no result."""
    a, b = graph_input("a", state.shape, F32), graph_input("b", state.shape, F32)
    now = element("now", x)
    total = add(elementwise("sub", b, a), now)
    return scan(body([a, b, now], total, total), x.shape[0], [state, add(state, state)], [x])


def network(x: Node, state: Node) -> Made:
    """A product with a constant, and with a tensor that stays the same but is no constant."""
    s, now = graph_input("s", state.shape, F32), element("now", x)
    fixed = graph_input("fixed", (4, 4), F32)
    values = np.random.default_rng(5).integers(-1, 2, (4, 4)).astype(np.float32)
    weight = node(ops.Weight("w", (4, 4), F32, lambda: values))
    sums = add(contract("bh,hg->bg", s, weight), now)
    new = elementwise("min", elementwise("max", sums, scalar_like(-9, s)), scalar_like(9, s))
    seen = contract("bh,hg->bg", new, fixed)
    outer = reshape(slice_(x, (0, 0, 0), (2, 2, 4)), (4, 4))
    return scan(body([s, now, fixed], new, seen), x.shape[0], [state], [x], [outer])


def there_and_back(x: Node, state: Node) -> Made:
    """One node is two results that run in opposite directions."""
    s, now = graph_input("s", state.shape, F32), element("now", x)
    total = add(s, now)
    made = body([s, now], total, total, total)
    return scan(made, x.shape[0], [state], [x], (), [True, False, True])


def nested(x: Node, state: Node) -> Made:
    """A loop in a loop: over the rows of each element."""
    s, now = graph_input("s", state.shape, F32), element("now", x)
    t, row = graph_input("t", (4,), F32), element("row", now)
    start = reshape(slice_(s, (1, 0), (1, 4)), (4,))
    inner = scan(body([t, row], add(t, row), add(t, row)), 2, [start], [now])
    rows = inner[1][0]
    return scan(body([s, now], rows, rows), x.shape[0], [state], [x])


def moved(x: Node, state: Node) -> Made:
    """Operands that do not lie in one piece are stored first."""
    return running_sum(transpose(x, (0, 2, 1)), transpose(reshape(state, (4, 2)), (0, 1)))


CASES: dict[str, Callable[[Node, Node], Made]] = {
    "sum": running_sum,
    "sum-backward": lambda x, s: running_sum(x, s, True),
    "state-only": state_only,
    "delay": delay,
    "swap": swap,
    "twins": twins,
    "network": network,
    "there-and-back": there_and_back,
    "nested": nested,
    "moved": moved,
}


def built(name: str, length: int) -> tuple[Graph, dict[str, np.ndarray]]:
    x, state = graph_input("x", (length, 2, 4), F32), graph_input("state", (2, 4), F32)
    last, every = CASES[name](x, state)
    outputs = tuple((f"y{i}", n) for i, n in enumerate((*last, *every)))
    graph = Graph(name, (("x", x), ("state", state)), outputs)
    source = np.random.default_rng(length)
    values = {n: source.integers(-3, 4, v.shape).astype(np.float32) for n, v in graph.inputs}
    return graph, values


def expected(name: str, values: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """Written down by hand for the simple ones."""
    x, state = values["x"], values["state"]
    up, down = state + np.cumsum(x, 0), state + np.cumsum(x[::-1], 0)[::-1]
    return {
        "sum": [up[-1], up],
        "sum-backward": [down[0], down],
        "state-only": [up[-1]],
        "delay": [x[-1], np.concatenate([state[None], x[:-1]])],
        "there-and-back": [down[0], down[::-1], down],
    }.get(name)


@pytest.mark.parametrize("length", [1, 2, 3, 6])
@pytest.mark.parametrize("name", CASES)
def test_unrolled_kernels_compute_the_loop(name: str, length: int, tmp_path: Path) -> None:
    if name == "network" and length == 1:
        length = 2  # its fixed tensor is made of two elements
    graph, values = built(name, length)
    want = evaluate([n for _, n in graph.outputs], dict(values))
    by_hand = expected(name, values)
    if by_hand is not None:
        for a, b in zip(want, by_hand, strict=True):
            np.testing.assert_array_equal(a, b)
    packed = optimise(graph, PACKING)
    steps = kernel_steps(packed, fuse(packed))
    for got, array in zip(run_steps(packed, steps, values), want, strict=True):
        np.testing.assert_array_equal(got, array)
    path = tmp_path / "bundle"  # and where the memory plan puts everything
    write(compile_graph(graph).contents, path)
    outputs = ReferenceHost(path).run(values).outputs
    for (label, _), array in zip(graph.outputs, want, strict=True):
        np.testing.assert_array_equal(outputs[label], array, err_msg=label)


def test_kernels_do_not_depend_on_the_number_of_iterations() -> None:
    def kernels(length: int) -> set[object]:
        graph, _ = built("swap", length)
        packed = optimise(graph, PACKING)
        steps = kernel_steps(packed, fuse(packed))
        return {s.kernel for s in steps if len(s.kernel.buffers) > 2}

    assert kernels(4) == kernels(50)


def test_two_loops_with_other_weights_stay_two() -> None:
    x, state = graph_input("x", (3, 2, 4), F32), graph_input("state", (2, 4), F32)

    def layer(seed: int, x: Node) -> Node:
        s, now = graph_input("s", (2, 4), F32), element("now", x)
        values = np.random.default_rng(seed).integers(-2, 3, (4, 4)).astype(np.float32)
        weight = node(ops.Weight(f"w{seed}", (4, 4), F32, lambda: values))
        new = add(contract("bh,hg->bg", s, weight), now)
        return scan(body([s, now], new, new), 3, [state], [x])[1][0]

    graph = Graph("two", (("x", x), ("state", state)), (("y", layer(2, layer(1, x))),))
    packed = optimise(graph, PACKING)
    source = np.random.default_rng(0)
    values = {n: source.integers(-2, 3, v.shape).astype(np.float32) for n, v in graph.inputs}
    (got,) = run_steps(packed, kernel_steps(packed, fuse(packed)), values)
    np.testing.assert_array_equal(got, evaluate([graph.outputs[0][1]], dict(values))[0])


def test_a_window_is_one_piece_of_memory() -> None:
    x = graph_input("x", (6, 2, 4), F32)
    assert window(x) == (x, 0)
    assert window(reshape(slice_(x, (2, 0, 0), (3, 2, 4)), (24,))) == (x, 16)
    assert window(slice_(x, (0, 0, 1), (6, 2, 2))) is None
    assert window(slice_(x, (0, 0, 0), (3, 2, 4), (2, 1, 1))) is None
    assert window(transpose(x, (1, 0, 2))) is None


def test_a_state_must_keep_its_shape() -> None:
    x, state = graph_input("x", (3, 2, 4), F32), graph_input("state", (2, 1), F32)
    s, now = graph_input("s", (2, 1), F32), element("now", x)
    with pytest.raises(ShapeError, match="do not fit the body"):
        scan(body([s, now], add(s, now)), 3, [state], [x])


def test_all_outputs_have_one_dtype() -> None:
    x, state = graph_input("x", (3, 4), F32), graph_input("state", (4,), I32)
    s, now = graph_input("s", (4,), I32), element("now", x)
    with pytest.raises(UnsupportedDType, match="different dtypes"):
        scan(body([s, now], s, add(cast(s, F32), now)), 3, [state], [x])
