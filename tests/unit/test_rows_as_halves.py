"""Copies of values as halves (f16_operands.py): where a plan has them, and where it has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.graphs import interpret
from helpers.programs import program

from tilewright.base.dtypes import F32
from tilewright.base.errors import CompilerBug
from tilewright.fusion.f16_operands import LEAST_COLUMNS, LEAST_ROWS, rounding_of
from tilewright.graph import ops
from tilewright.graph.node import Node, contract, elementwise, graph_input, node
from tilewright.kernel.loops import TileFn
from tilewright.plan import Program, check, plan_from_data, plan_to_data
from tilewright.targets import target
from tilewright.targets.gpu.pointwise import f16_copy

M, K, N = LEAST_ROWS, 16, LEAST_COLUMNS


def loose(k: int, n: int, seed: int = 0, *, stored: str = "f16") -> Node:
    value = np.ones((k, n), np.float32)
    return node(ops.Weight(f"w{seed}", (k, n), F32, lambda: value, stored, stored))


def copies(made: Program) -> int:
    return sum(value.as_f16 for value in made.plans[0].values)


def product(x: Node, w: Node) -> Node:
    return contract("mk,kn->mn", x, w)


@pytest.mark.parametrize("targets", [("wgsl",), ("cuda",)])
def test_readers_share_a_copy(targets: tuple[str, ...]) -> None:
    x = graph_input("x", (M, K), F32)
    made = program(
        targets, x, y=product(x, loose(K, N)), z=elementwise("neg", product(x, loose(K, N, 1))),
        s=elementwise("add", x, x),
    )  # fmt: skip
    (plan,) = made.plans
    assert copies(made) == 1
    (copy,) = (n for n, value in enumerate(plan.values) if value.as_f16)
    readers = [step for step in plan.steps if copy in [access.value for access in step.reads]]
    assert len(readers) == 2
    assert plan_from_data(plan_to_data(plan)) == plan
    for step in readers:
        assert [b.as_f16 for b in made.kernels[step.kernel].buffers] == [False, True, True]


@pytest.mark.parametrize("case", ["f32", "rows", "columns", "odd", "epilogue", "wasm", "c"])
def test_none_where_it_does_not_pay_or_may_not_be(case: str) -> None:
    rows, depth, columns = {
        "rows": (M - 1, K, N),
        "columns": (M, K, N - 8),
        "odd": (M + 1, 15, N),
    }.get(case, (M, K, N))
    if case == "epilogue":
        depth = columns
    x = graph_input("x", (rows, depth), F32)
    y = product(x, loose(depth, columns, stored="" if case == "f32" else "f16"))
    if case == "epilogue":
        y = elementwise("add", y, x)
    made = program(
        ("wasm", "wgsl") if case == "wasm" else (case if case == "c" else "wgsl",), x, y=y
    )
    assert copies(made) == 0


def test_all_who_read_a_value_say_how_it_lies() -> None:
    x = graph_input("x", (M, K), F32)
    made = program(("wgsl",), x, y=product(x, loose(K, N)))
    (plan,) = made.plans
    wrong: Any = plan_to_data(plan)
    for value in wrong["values"]:
        value.pop("halves", None)
    with pytest.raises(CompilerBug, match="Value"):
        check(Program(made.kernels, (plan_from_data(wrong),), made.tensors))


def test_a_thread_copies_whole_words() -> None:
    kernel = rounding_of(80)
    fn = f16_copy.lower(kernel)
    assert isinstance(fn, TileFn)
    assert (fn.tiles, fn.thread) == (10, None)
    x, y = np.arange(80, dtype=np.float32), np.zeros(80, np.float32)
    interpret(fn, [y, x])
    np.testing.assert_array_equal(x, y)
    text = str(target("wgsl").code(kernel, target("wgsl").default(kernel, "core")).body)
    assert text.count("halves_of(") == 3
    assert "enable" not in text
