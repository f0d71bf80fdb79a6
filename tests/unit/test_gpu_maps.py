"""Large maps in vectors (gpu/pointwise/maps.py): the same numbers as specified, and which suit."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.graphs import interpret, run_steps, steps_of
from helpers.loop_check import check_loops

from tilewright.base.dtypes import F32, I32, I64
from tilewright.graph.node import (
    Graph,
    Node,
    cast,
    concat,
    constant,
    elementwise,
    flip,
    gather,
    graph_input,
    pad,
    reshape,
    slice_,
    transpose,
)
from tilewright.graph.passes import optimise
from tilewright.kernel.spec import Kernel
from tilewright.targets import target
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.pointwise.schedule import SHORT_MAP_ELEMENTS, VectorMapSchedule
from tilewright.targets.gpu.pointwise.strategies import VECTOR_MAP
from tilewright.targets.protocol import PACKING
from tilewright.targets.scalar_lowering import Plain
from tilewright.tuning.candidates import build

ROWS, COLUMNS = 132, 512


def rotated(x: Node) -> Node:
    """Halves of 64 columns change places, one of them negated, as in rotary positions."""
    parts = reshape(x, (ROWS, 4, 2, 64))
    signs = constant(np.array([-1, 1], np.float32).reshape(2, 1))
    return reshape(elementwise("mul", flip(parts, (2,)), signs), (ROWS, COLUMNS))


X = graph_input("x", (ROWS, COLUMNS), F32)
ROW, COLUMN = graph_input("row", (COLUMNS,), F32), graph_input("column", (ROWS, 1), F32)
IDS = graph_input("ids", (ROWS,), I64)
#: Operands that come as vectors, or once.
CASES = {
    "row": elementwise("add", X, ROW),
    "column": elementwise("mul", X, COLUMN),
    "exp": elementwise("exp", elementwise("div", X, ROW)),
    "rotated": elementwise("add", X, elementwise("mul", rotated(X), ROW)),
    "gathered": elementwise("add", gather(X, IDS, 0), ROW),
    "chosen": elementwise("where", elementwise("lt", X, ROW), X, constant(0.5, F32)),
    "integers": cast(X, I32),
    "part": elementwise("neg", slice_(reshape(X, (2 * ROWS, 256)), (0, 0), (2 * ROWS, 252))),
    "padded": elementwise("neg", pad(X, (0, 4), (0, 8))),
    "joined": concat([elementwise("neg", X), slice_(X, (0, 0), (ROWS, 60)), X], 1),
}
#: What is read otherwise, or not stored in vectors.
OTHERS = {
    "transposed": elementwise("neg", transpose(X, (1, 0))),
    "shifted": elementwise("neg", slice_(X, (0, 1), (ROWS, COLUMNS - 4))),
    "odd": elementwise("neg", slice_(X, (0, 0), (ROWS, COLUMNS - 1))),
    "bool": elementwise("lt", X, ROW),
    "small": elementwise("neg", slice_(X, (0, 0), (SHORT_MAP_ELEMENTS // COLUMNS, COLUMNS))),
    "padded by less": elementwise("neg", pad(X, (0, 2), (0, 2))),
}


def kernel_of(y: Node) -> tuple[Kernel, Graph]:
    named = (("x", X), ("row", ROW), ("column", COLUMN), ("ids", IDS))
    graph = optimise(Graph("maps", named, (("y", y),)), PACKING)
    (step,) = steps_of(graph)
    return step.kernel, graph


def values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((ROWS, COLUMNS), np.float32) * 10,
        "row": rng.random(COLUMNS, np.float32) + 1,
        "column": rng.random((ROWS, 1), np.float32),
        "ids": rng.integers(0, ROWS, ROWS),
    }


@pytest.mark.parametrize("case", CASES)
def test_same_as_one_by_one(case: str) -> None:
    kernel, graph = kernel_of(CASES[case])
    assert VECTOR_MAP.suits(kernel)

    def execute(given: Kernel, buffers: list[np.ndarray]) -> None:
        fn = VECTOR_MAP.lower(given, VectorMapSchedule())
        assert fn.tiles * 4 == given.buffers[0].size
        check_loops(fn)
        interpret(fn, buffers)

    (found,) = run_steps(graph, steps_of(graph), values(), execute)
    (want,) = run_steps(graph, steps_of(graph), values())
    np.testing.assert_allclose(found, want, rtol=2**-22)


@pytest.mark.parametrize("case", OTHERS)
def test_what_has_a_thread_for_each_result(case: str) -> None:
    kernel, _ = kernel_of(OTHERS[case])
    assert not VECTOR_MAP.suits(kernel)
    assert target("wgsl").default(kernel, "core") == Plain()


@pytest.mark.parametrize("name", ["wgsl", "cuda"])
def test_they_are_the_default_and_a_candidate(name: str) -> None:
    kernel, _ = kernel_of(CASES["row"])
    chosen = target(name)
    variant = next(iter(chosen.variants))
    schedule = chosen.default(kernel, variant)
    assert schedule == VectorMapSchedule()
    assert chosen.schedule(schedule.to_json()) == schedule
    device = CLASSES["webgpu" if name == "wgsl" else name]
    schedules = [c.schedule for c in chosen.candidates(kernel, device, 1.0)]
    assert schedules == [VectorMapSchedule(), Plain()]
    for each in schedules:
        assert not chosen.objection(kernel, each)
        assert build(kernel, each, name, variant)


def test_they_suit_no_other_kernel() -> None:
    other, _ = kernel_of(OTHERS["transposed"])
    assert "'map'" in target("wgsl").objection(other, VectorMapSchedule())


def test_a_trap_where_memory_is_vectors() -> None:
    kernel, _ = kernel_of(CASES["gathered"])
    text = str(target("wgsl").code(kernel, VectorMapSchedule()).body)
    assert "memory[0] = vec4<u32>(" in text
