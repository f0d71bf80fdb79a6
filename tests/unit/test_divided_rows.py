"""Rows divided by their sizes (row_scaling.py): where a plan has them, and what products give.

Random products of weights of 4 bits whose scales are f32, where the model allows bytes; float64 is
the judge.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.graphs import interpret, steps_of
from helpers.loop_check import check_loops
from helpers.programs import program

from lab.subjects import compile_graph, weight_of
from tilewright.base.dtypes import F32
from tilewright.compiler import Options
from tilewright.fusion.f16_operands import (
    LEAST_COLUMNS,
    LEAST_ROWS,
    SCALES,
    dividing_rows,
    fit_halves,
    of_divided_rows,
    sizes_of_rows,
)
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    contract,
    elementwise,
    evaluate,
    graph_input,
    node,
    reshape,
)
from tilewright.graph.passes import optimise
from tilewright.hosts.reference import run_kernel
from tilewright.kernel.form import rounds_to_f16
from tilewright.plan import Program, check
from tilewright.targets.gpu.matrix.schedule import MatrixGemmSchedule
from tilewright.targets.gpu.matrix.strategies import MATRIX_GEMM
from tilewright.targets.gpu.pointwise import f16_copy
from tilewright.targets.gpu.product.schedule import F16GemmSchedule, RegisterGemmSchedule
from tilewright.targets.gpu.product.strategies import F16_GEMM, REGISTER_GEMM
from tilewright.targets.gpu.workgroup_strategy import AnyStrategy
from tilewright.targets.protocol import PACKING
from tilewright.targets.schedule import Schedule

M, K, N = LEAST_ROWS, 64, LEAST_COLUMNS


def product(x: Node, seed: int = 0, loose: str = "i8", scales: str = "") -> Node:
    return contract("mk,kn->mn", x, weight_of((x.shape[1], N), seed, 4, scales, loose))


def kinds(made: Program) -> list[str]:
    names = (made.kernels[step.kernel].name for step in made.plans[0].steps)
    return [name.partition("_")[0] for name in names]


@pytest.mark.parametrize("targets", [("wgsl",), ("cuda",)])
def test_readers_share_what_is_made(targets: tuple[str, ...]) -> None:
    x = graph_input("x", (M, K), F32)
    made = program(targets, x, y=product(x), z=elementwise("neg", product(x, 1)))
    assert kinds(made) == ["sizes", "divide", "contract", "contract"]
    assert [rounds_to_f16(k) for k in made.kernels if k.anchor == "contract"] == [True, True]


def test_a_copy_is_made_again_for_other_rows() -> None:
    """Rows that a step changes where they lie: what was copied of them before is not read."""
    x = graph_input("x", (M, N), F32)
    first = contract("mk,kn->mn", x, weight_of((N, N), 0, 4, "", "i8"))
    then = contract("mk,kn->mn", first, weight_of((N, N), 1, 4, "", "i8"))
    made = program(("wgsl",), x, y=then, z=elementwise("add", first, x))
    (plan,) = made.plans
    sizes = [s.reads[0] for s in plan.steps if made.kernels[s.kernel].name.startswith("sizes")]
    assert len(sizes) == len(set(sizes)) == 2


def test_what_becomes_of_the_sums_stays() -> None:
    """Another operand with a number for each row, and a residual."""
    x, scale = graph_input("x", (M, N), F32), graph_input("scale", (M, 1), F32)
    product_ = contract("mk,kn->mn", x, weight_of((N, N), 0, 4, "", "i8"))
    y = elementwise("add", elementwise("mul", product_, scale), x)
    graph = Graph("g", (("x", x), ("scale", scale)), (("y", y),))
    made = compile_graph(graph, Options(targets=("wgsl",))).program
    check(made)
    (kernel,) = (k for k in made.kernels if k.anchor == "contract")
    # the residual reads the rows as they are, so they are not copied
    assert kinds(made) == ["contract"]
    assert not rounds_to_f16(kernel)
    other = graph_input("other", (M, N), F32)
    y = elementwise("add", elementwise("mul", product_, scale), other)
    inputs = (("x", x), ("scale", scale), ("other", other))
    made = compile_graph(Graph("g", inputs, (("y", y),)), Options(targets=("wgsl",))).program
    (kernel,) = (k for k in made.kernels if k.anchor == "contract")
    assert kinds(made) == ["sizes", "divide", "contract"]
    # results, rows, weights, scales, `scale`, `other`, and the sizes of the rows
    assert [b.size for b in kernel.buffers][4:] == [M, M * N, M]


@pytest.mark.parametrize("case", ["rows", "wasm", "f32", "f16", "stored"])
def test_none_where_it_does_not_pay_or_may_not_be(case: str) -> None:
    x = graph_input("x", (M - 1 if case == "rows" else M, K), F32)
    loose = {"f32": "", "f16": "f16"}.get(case, "i8")
    y = product(x, 0, loose, "f16" if case == "stored" else "")
    made = program(("wasm", "wgsl") if case == "wasm" else ("wgsl",), x, y=y)
    # where the scales are halves, rows are rounded as they are
    assert kinds(made) == (["round", "contract"] if case == "stored" else ["contract"])


@pytest.mark.parametrize("scale", [SCALES[0] / 2, SCALES[1] * 2, np.inf, np.nan, 0.0])
def test_scales_that_do_not_fit(scale: float) -> None:
    fine = np.array([[SCALES[0], -SCALES[1], 1.0, scale]], np.float32)
    assert fit_halves(fine) == (scale == 0)

    weight = weight_of((K, N), 0, 4, "", "i8")
    whole, repeated = weight.inputs[0].inputs
    (kept,) = repeated.inputs
    assert isinstance(kept.op, ops.Weight)
    value = evaluate([kept])[0].copy()
    value[0, 0, 5] = scale
    other = reshape(elementwise("mul", whole, node(replace(kept.op, load=lambda: value))), (K, N))
    x = graph_input("x", (M, K), F32)
    made = program(("wgsl",), x, y=contract("mk,kn->mn", x, other))
    assert ("divide" in kinds(made)) == (scale == 0)


def test_a_thread_divides_whole_words() -> None:
    x = graph_input("x", (M, K), F32)
    made = program(("wgsl",), x, y=product(x))
    (kernel,) = (k for k in made.kernels if k.anchor == "contract")
    kernel = replace(kernel, buffers=kernel.buffers[:-1])
    rng = np.random.default_rng(0)
    rows = rng.standard_normal(M * K).astype(np.float32)
    sizes, shares = np.zeros(M, np.float32), np.zeros(M * K, np.float32)
    run_kernel(sizes_of_rows(kernel), [sizes, rows])
    np.testing.assert_array_equal(sizes, np.abs(rows).reshape(M, K).max(1))
    fn = f16_copy.lower(dividing_rows(kernel))
    assert fn is not None
    assert fn.tiles == M * K // 8
    interpret(fn, [shares, rows, sizes])
    np.testing.assert_array_equal(shares, rows / sizes.repeat(K))


STRATEGIES: list[tuple[AnyStrategy, Schedule]] = [
    (MATRIX_GEMM, MatrixGemmSchedule("f16-f32", 8, 8, 8, 8, 2, 1, 1, 2, 2)),
    (F16_GEMM, F16GemmSchedule(4, 4, 4, 16, 16, 16)),
    (REGISTER_GEMM, RegisterGemmSchedule(4, 8, 4, 16, 16, 16, ahead=True)),
]


@pytest.mark.parametrize(("strategy", "schedule"), STRATEGIES)
def test_rows_beyond_halves(strategy: AnyStrategy, schedule: Schedule) -> None:
    """Rows of millions, of what f16 takes for 0, of zeros, and of one large number."""
    m, k, n = 9, 64, 24
    rows = np.random.default_rng(1).standard_normal((m, k))
    rows[:3] *= np.array([[1e6], [1e-20], [0]])
    rows[3, 5] = 1e30
    x, weight = graph_input("x", (m, k), F32), weight_of((k, n), 0, 4, "", "i8")
    y = elementwise("neg", contract("mk,kn->mn", x, weight))
    packed = optimise(Graph("g", (("x", x),), (("y", y),)), PACKING)
    (step,) = steps_of(packed)
    kernel, given = step.kernel, rows.astype(np.float32).ravel()
    sizes, shares = np.zeros(m, np.float32), np.zeros(m * k, np.float32)
    run_kernel(sizes_of_rows(kernel), [sizes, given])
    run_kernel(dividing_rows(kernel), [shares, given, sizes])
    read = [shares if i is x else evaluate([i])[0].ravel() for i in step.inputs]
    buffers = [np.zeros(m * n, np.float32), *read, sizes]
    divided = of_divided_rows(kernel)
    assert rounds_to_f16(divided)
    assert not schedule.objection(divided)
    fn = strategy.lower(divided, schedule)
    check_loops(fn)
    interpret(fn, buffers)
    found, w = buffers[0].reshape(m, n), evaluate([weight])[0].astype(np.float64)
    size = np.abs(rows).max(1, keepdims=True) * np.abs(w).sum(0)
    assert np.isfinite(found).all()
    assert (np.abs(found + rows @ w) <= 2.0**-9 * size).all()
