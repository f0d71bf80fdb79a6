"""The op `Order`, as loops of one thread and of groups of threads, against NumPy.

Random rows with many equal numbers and the ends of their range, in the interpreter of loops.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from helpers.graphs import steps_of
from helpers.loop_check import check_loops
from helpers.seeds import seeds

from tilewright.base.dtypes import F32, I32, I64, DType
from tilewright.base.errors import CompilerBug, ShapeError, UnsupportedDType
from tilewright.graph import ops
from tilewright.graph.node import Graph, Node, graph_input, node, transpose
from tilewright.kernel import interpreter
from tilewright.kernel.expr import Call
from tilewright.kernel.form import TopK, classify
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel, check
from tilewright.targets import scalar_top_k
from tilewright.targets.gpu.pointwise import top_k as groups

WAYS = {"one thread": scalar_top_k.lower, "group": groups.lower}


def ordered(x: Node, count: int) -> Kernel:
    """The kernel, whose operand lies in memory."""
    graph = Graph("order", (("x", x),), (("y", node(ops.Order(count), x)),))
    (step,) = steps_of(graph)
    assert isinstance(classify(step.kernel), TopK)
    return step.kernel


def numbers(rng: Random, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    ends = np.iinfo(dtype.numpy)
    few = [ends.min, ends.max, -1, 0, 1, rng.randint(ends.min, ends.max)]
    return np.array([rng.choice(few) for _ in range(np.prod(shape))], dtype.numpy).reshape(shape)


def found(fn: TileFn, x: np.ndarray, count: int, tiles: list[int]) -> np.ndarray:
    check_loops(fn)
    out = [-7] * (x.size // x.shape[-1] * count)
    interpreter.run(fn, [out, x.ravel().tolist()], tiles)
    return np.array(out).reshape(*x.shape[:-1], count)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", seeds(8))
def test_places_of_the_smallest_in_order(seed: int, way: str) -> None:
    rng = Random(seed)
    dtype = rng.choice((I32, I32, I64))
    shape = (rng.randint(1, 3), rng.choice((2, 3, 16, 17, 33, 70)))
    count = rng.choice((2, shape[-1], rng.randint(2, shape[-1])))
    x = numbers(rng, shape, dtype)
    fn = WAYS[way](ordered(graph_input("x", shape, dtype), count))
    tiles = rng.sample(range(fn.tiles), fn.tiles)
    want = np.argsort(x, axis=-1, kind="stable")[:, :count]
    np.testing.assert_array_equal(found(fn, x, count, tiles), want)


@pytest.mark.parametrize("way", WAYS)
def test_scratch_memory_is_a_small_part_of_a_row(way: str) -> None:
    kernel = ordered(graph_input("x", (2, 100_000), I32), 90_000)
    areas = WAYS[way](kernel).scratch
    assert sum(area.size * area.dtype.size for area in areas) < 100_000 * I32.size / 5


def test_an_operand_that_lies_otherwise_is_stored_in_order_first() -> None:
    x = graph_input("x", (20, 3), I32)
    graph = Graph("order", (("x", x),), (("y", node(ops.Order(4), transpose(x, (1, 0)))),))
    assert [step.kernel.anchor for step in steps_of(graph)] == ["map", "order"]


def test_kernels_that_order_something_else_do_not_fit() -> None:
    kernel = ordered(graph_input("x", (4, 9), I32), 3)
    check(kernel)
    (stage,) = kernel.stages
    wrong = (
        replace(kernel, stages=(stage, stage)),
        replace(kernel, stages=(replace(stage, axes=()),)),
        replace(kernel, stages=(replace(stage, keep=()),)),
        replace(kernel, stages=(replace(stage, value=Call("bits", (stage.value,), F32)),)),
        replace(kernel, cols=0),
        replace(kernel, value=Call("neg", (kernel.value,), I32)),
    )
    for broken in wrong:
        with pytest.raises(CompilerBug):
            check(broken)


def test_what_has_no_order_is_refused() -> None:
    with pytest.raises(UnsupportedDType, match="i32 and i64"):
        node(ops.Order(2), graph_input("x", (5,), F32))
    for count in (0, 6):
        with pytest.raises(ShapeError, match=f"cannot order {count} of 5 elements"):
            node(ops.Order(count), graph_input("x", (5,), I32))
