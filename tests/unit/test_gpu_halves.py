"""Products of halves (gpu/product/f16_gemm.py, gpu/matrix): any schedule, sums as exact as halves
allow.

Random products whose weights lie as halves, or have scales that do; float64 is the judge.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from helpers import halves as halves_model
from helpers.gpu import ByGroups, by_groups, random_matrices, random_tile
from helpers.graphs import interpret, run_steps, steps_of
from helpers.loop_check import check_loops
from helpers.seeds import seeds
from onnx import TensorProto, helper, numpy_helper

from lab.subjects import weight_of
from tilewright.base.dtypes import F32
from tilewright.compiler import Options, compile_model
from tilewright.frontend import load
from tilewright.fusion.f16_operands import reading_f16
from tilewright.graph.node import Graph, contract, elementwise, evaluate, graph_input
from tilewright.graph.passes import optimise
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.matrix.schedule import MatrixGemmSchedule, staged_types_of
from tilewright.targets.gpu.matrix.strategies import MATRIX_GEMM
from tilewright.targets.gpu.product.schedule import F16GemmSchedule, RegisterGemmSchedule
from tilewright.targets.gpu.product.strategies import F16_GEMM, REGISTER_GEMM
from tilewright.targets.gpu.tile.addressing import operands
from tilewright.targets.gpu.workgroup_limits import F16_FEATURE, FEATURES
from tilewright.targets.gpu.workgroup_strategy import AnyStrategy
from tilewright.targets.protocol import PACKING
from tilewright.targets.schedule import Schedule
from tilewright.targets.wgsl.target import Wgsl
from tilewright.tuning.candidates import space_of

WGSL = Wgsl()

#: Rows, steps and columns, and bits of a weight: whole tiles, and tiles that reach beyond the ends.
PRODUCTS = [
    (32, 32, 32, 16), (37, 20, 36, 16), (5, 64, 40, 4), (33, 96, 24, 4), (9, 7, 10, 16),
    (17, 96, 24, 8),
]  # fmt: skip


def product_of(m: int, k: int, n: int, bits: int, scales: str = "f16") -> Graph:
    """A product, and what becomes of its sums."""
    x = graph_input("x", (m, k), F32)
    y = contract("mk,kn->mn", x, weight_of((k, n), 0, bits, scales))
    return Graph("product", (("x", x),), (("y", elementwise("neg", y)),))


def kernel_of(graph: Graph) -> Kernel:
    (step,) = steps_of(optimise(graph, PACKING))
    return step.kernel


def of_matrices(rng: Random) -> MatrixGemmSchedule:
    return random_matrices(rng, "f16-f32")


def of_tiles(rng: Random) -> F16GemmSchedule:
    return F16GemmSchedule(**vars(random_tile(rng)))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("strategy", "random"), [(MATRIX_GEMM, of_matrices), (F16_GEMM, of_tiles)])
@pytest.mark.parametrize("sizes", PRODUCTS)
@pytest.mark.parametrize("seed", seeds(3, nightly=20))
def test_any_schedule(
    strategy: AnyStrategy,
    random: Callable[[Random], Schedule],
    sizes: tuple[int, int, int, int],
    seed: int,
) -> None:
    m, k, n, bits = sizes
    rng = Random(f"halves {sizes} {seed}")
    x = np.random.default_rng(seed).standard_normal((m, k), np.float32)

    def pick(kernel: Kernel) -> Schedule:
        for _ in range(1000):
            made = random(rng)
            if not made.objection(kernel):
                return made
        raise AssertionError(made.objection(kernel))

    got = by_groups(strategy, product_of(*sizes), {"x": x}, pick)
    weight = evaluate([weight_of((k, n), 0, bits, "f16")])[0].astype(np.float64)
    size = np.abs(x.astype(np.float64)) @ np.abs(weight)
    # both operands have 11 bits; so have sums within a block of steps, where tiles add them up
    limit = 2.0**-10 * size * (1 if strategy is MATRIX_GEMM else 8)
    assert (np.abs(got + x.astype(np.float64) @ weight) <= limit + 1e-6).all()


class OfHalves(ByGroups):
    """The same product once more, of rows that lie as halves: bit by bit the same."""

    def __call__(self, kernel: Kernel, buffers: list[np.ndarray]) -> None:
        super().__call__(kernel, buffers)
        ops = operands(kernel)
        other = reading_f16(kernel, ops.row.buffer)
        fn = self.strategy.lower(other, self.pick(other))
        check_loops(fn)
        again = [np.zeros_like(buffers[0]), *buffers[1:]]
        interpret(fn, again)
        np.testing.assert_array_equal(again[0], buffers[0])


@pytest.mark.parametrize(
    ("strategy", "schedule"),
    [
        (MATRIX_GEMM, MatrixGemmSchedule("f16-f32", 8, 8, 8, 8, 2, 1, 1, 2, 2)),
        (MATRIX_GEMM, MatrixGemmSchedule("f16-f32", 8, 16, 16, 16, 1, 1, 2, 1, ahead=False)),
        (F16_GEMM, F16GemmSchedule(4, 4, 4, 16, 16, 16, apart=True)),
        (REGISTER_GEMM, RegisterGemmSchedule(4, 8, 4, 16, 16, 16, ahead=True)),
    ],
)
@pytest.mark.parametrize("sizes", [(16, 16, 16, 16), (19, 20, 24, 16), (17, 32, 12, 4)])
def test_rows_that_lie_as_halves(
    strategy: AnyStrategy, schedule: Schedule, sizes: tuple[int, int, int, int]
) -> None:
    m, k, _, _ = sizes
    x = np.random.default_rng(1).standard_normal((m, k)).astype(np.float16).astype(np.float32)
    packed = optimise(product_of(*sizes), PACKING)
    execute = OfHalves(strategy, lambda _: schedule)
    run_steps(packed, steps_of(packed), {"x": x}, execute)
    assert execute.products == 1


@pytest.mark.parametrize("bits", [32, 4])
def test_products_of_f32_are_not_rounded(bits: int) -> None:
    """Nobody asked for less: only where the model has halves."""
    kernel = kernel_of(product_of(32, 32, 32, bits, ""))
    space = space_of(kernel, CLASSES["webgpu"])
    assert not any(isinstance(s, (MatrixGemmSchedule, F16GemmSchedule)) for s in space.schedules)
    for schedule in (MatrixGemmSchedule("f16-f32", 8, 8, 8, 8), F16GemmSchedule()):
        assert WGSL.objection(kernel, schedule)


def rounds_to_f16(model: onnx.ModelProto, *, rounded: bool = False) -> list[bool]:
    """Of each product of a model: whether it may be computed in halves."""
    compiled = compile_model(load(model), Options(targets=("wgsl",), halves=rounded))
    kernels = compiled.program.kernels
    return [staged_types_of(k) == "f16-f32" for k in kernels if REGISTER_GEMM.suits(k)]


def a_product(dtype: int, weight: np.ndarray[Any, Any]) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", dtype, (64, 64))],
        [helper.make_tensor_value_info("y", dtype, (64, 64))],
        [numpy_helper.from_array(weight, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def test_the_model_or_the_user_says_so() -> None:
    weight = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    assert rounds_to_f16(a_product(TensorProto.FLOAT16, weight.astype(np.float16))) == [True]
    whole = a_product(TensorProto.FLOAT, weight)
    assert (rounds_to_f16(whole), rounds_to_f16(whole, rounded=True)) == ([False], [True])
    # its weights are halves, but it casts them: it multiplies in f32
    assert not any(rounds_to_f16(halves_model.model()))


@pytest.mark.parametrize("bits", [16, 4])
def test_matrices_lie_at_constant_places(bits: int) -> None:
    """What depends on the subgroup is the part of shared memory alone: else Dawn asks in each load
    whether the matrix lies within the array."""
    kernel = kernel_of(product_of(64, 64, 64, bits))
    text = str(WGSL.code(kernel, MatrixGemmSchedule("f16-f32", 8, 8, 8, 8, 2, 2, 2, 2, 2)).body)
    places = re.findall(r"subgroupMatrix(?:Load|Store)<[^(]*>\(&b\d+(\[\w+\])?, ([^,]*), ", text)
    assert len(places) == 2 * (2 + 2) + 4
    assert all(part and re.fullmatch(r"\d+u", place) for part, place in places)
    # eight halves at a time
    assert re.search(r"var<workgroup> b\d+: array<array<vec4<u32>, \d+>, 2>;", text)


@pytest.mark.parametrize("bits", [16, 4])
def test_the_space_has_both_kinds(bits: int) -> None:
    kernel = kernel_of(product_of(256, 256, 256, bits))
    space = space_of(kernel, CLASSES["webgpu"])
    found = [s for s in space.schedules if isinstance(s, (MatrixGemmSchedule, F16GemmSchedule))]
    assert {s.tag for s in found} == {"matrix", "half"}
    for schedule in found:
        assert schedule.features <= FEATURES
        assert F16_FEATURE in schedule.features
        assert not WGSL.objection(kernel, schedule)
        assert WGSL.schedule(schedule.to_json()) == schedule
    able = [space.schedules[n] for n in space.trial_on({F16_FEATURE})]
    assert any(isinstance(s, F16GemmSchedule) for s in able)
    assert not any(isinstance(s, MatrixGemmSchedule) for s in able)
    texts = [WGSL.code(kernel, s).body for s in found[:: len(found) - 1]]
    assert all(text.startswith("enable f16;") for text in texts)
