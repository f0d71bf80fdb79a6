"""Products by matrix units of subgroups (targets/gpu/matrices.py): any schedule, the same sums.

Layers of random bytes, weights and epilogues (helpers/integers.py), whose sums are exact, and
products of weights that lie as halves; the graph is the judge.  In the interpreter the first thread
of a subgroup stands for all of it; it finds races between subgroups.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from helpers.gpu import ByGroups, by_groups
from helpers.graphs import results, run_steps, steps_of
from helpers.integers import quantised_graph
from helpers.seeds import seeds

from tilewright.base.dtypes import F32
from tilewright.benchkernel import weight_of
from tilewright.graph.node import Graph, contract, elementwise, evaluate, graph_input
from tilewright.graph.passes import optimise
from tilewright.kernel.loops import render
from tilewright.kernel.spec import Kernel
from tilewright.targets.classes import CLASSES
from tilewright.targets.gpu import matrices
from tilewright.targets.gpu.features import FEATURES, MATRIX, PACKED, SUBGROUPS
from tilewright.targets.gpu.matrices import UNITS, MatrixSchedule
from tilewright.targets.simd.layouts import PACKING
from tilewright.targets.wgsl.api import Wgsl
from tilewright.tuning.candidates import space_of

WGSL = Wgsl()


def products(seed: int) -> list[Kernel]:
    graph, _ = quantised_graph(seed)
    return [s.kernel for s in steps_of(optimise(graph, PACKING)) if matrices.suits(s.kernel)]


LAYERS = [seed for seed in range(40) if products(seed)]


def random_schedule(rng: Random, types: str = "i8-i32") -> MatrixSchedule:
    m, n, k, width = rng.choice([*UNITS[types], (8, 8, 8, 32)])
    one_or_two = [rng.choice([1, 2]) for _ in range(5)]
    return MatrixSchedule(
        types, m, n, k, width, *one_or_two, rng.choice([1, 4]), rng.random() < 0.5,
        rng.random() < 0.5,
    )  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("seed", seeds(2, nightly=15))
def test_any_schedule_gives_the_same_sums(layer: int, seed: int) -> None:
    graph, values = quantised_graph(layer)
    rng = Random(f"matrices {layer} {seed}")
    execute = ByGroups(matrices, lambda _: random_schedule(rng))
    packed = optimise(graph, PACKING)
    got = run_steps(packed, steps_of(packed), values, execute)
    assert execute.products
    for one, wanted in zip(got, results(graph, values), strict=True):
        np.testing.assert_array_equal(one, wanted)


def product_of(m: int, k: int, n: int, bits: int) -> Graph:
    """A product whose weights lie as halves, or have scales that do; what becomes of its sums."""
    weight = weight_of((k, n), 0, bits, scales="f16")
    y = contract("mk,kn->mn", graph_input("x", (m, k), F32), weight)
    return Graph("product", (("x", y.inputs[0]),), (("y", elementwise("neg", y)),))


#: Rows, steps and columns, and bits of a weight: whole tiles, and tiles that reach beyond the ends.
HALVES = [(32, 32, 32, 16), (37, 20, 36, 16), (5, 64, 40, 4), (33, 96, 24, 4), (9, 7, 10, 16)]


@pytest.mark.parametrize("sizes", HALVES)
@pytest.mark.parametrize("seed", seeds(3, nightly=20))
def test_products_of_halves(sizes: tuple[int, int, int, int], seed: int) -> None:
    m, k, n, bits = sizes
    graph, rng = product_of(m, k, n, bits), Random(f"halves {sizes} {seed}")
    x = np.random.default_rng(seed).standard_normal((m, k), np.float32)

    def pick(kernel: Kernel) -> MatrixSchedule:
        while True:
            made = random_schedule(rng, "f16-f32")
            if not made.objection(kernel):
                return made

    got = by_groups(matrices, graph, {"x": x}, pick)
    weight = evaluate([weight_of((k, n), 0, bits, scales="f16")])[0].astype(np.float64)
    # both operands are rounded to 11 bits
    limit = 2.0**-10 * (np.abs(x.astype(np.float64)) @ np.abs(weight)) + 1e-6
    assert (np.abs(got + x.astype(np.float64) @ weight) <= limit).all()


def test_products_of_f32_are_not_rounded() -> None:
    """Only where the model has halves: nobody asked for less elsewhere."""
    x = graph_input("x", (32, 32), F32)
    for weight in (weight_of((32, 32), 0), weight_of((32, 32), 0, 4)):
        graph = Graph("product", (("x", x),), (("y", contract("mk,kn->mn", x, weight)),))
        (step,) = steps_of(optimise(graph, PACKING))
        assert not matrices.suits(step.kernel)
        assert WGSL.objection(step.kernel, MatrixSchedule("f16-f32", 8, 8, 8, 8))


def test_texts_name_the_unit() -> None:
    (kernel,) = products(LAYERS[0])
    schedule = MatrixSchedule("i8-i32", 16, 8, 32, 32, 1, 1, 1, 1)
    code = WGSL.code(kernel, schedule)
    sizes = {"subgroups-32", "subgroup-matrix-i8-i32-16x8x32"}
    assert code.needs == {MATRIX, SUBGROUPS, PACKED} | sizes
    for kind in ("left<i8, 32, 16>", "right<i8, 8, 32>", "result<i32, 8, 16>"):
        assert f"subgroup_matrix_{kind}" in code.body
    assert "matrix result0_0 += left0 * right0" in render(code.loops)


def test_the_space_has_some_for_each_unit() -> None:
    (kernel,) = products(12)
    space = space_of(kernel, CLASSES["webgpu"])
    found = [s for s in space.schedules if isinstance(s, MatrixSchedule)]
    assert {(s.m, s.n, s.k, s.width) for s in found} == set(UNITS["i8-i32"])
    for schedule in found:
        assert schedule.features <= FEATURES
        assert not WGSL.objection(kernel, schedule)
        assert WGSL.schedule(schedule.to_json()) == schedule
    eight = {MATRIX, SUBGROUPS, PACKED, "subgroups-8", "subgroup-matrix-i8-i32-8x8x8"}
    able = [space.schedules[n] for n in space.trial_on(eight)]
    assert {s.m for s in able if isinstance(s, MatrixSchedule)} == {8}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"types": "i8-i8"}, "types is one of"),
        ({"m": 6}, "m and n are multiples"),
        ({"rows": 8, "columns": 4}, "at most 16 results"),
        ({"down": 4, "along": 4}, "at most 256 threads"),
        ({"rows": 4, "columns": 4, "r1": 8}, "shares at most"),
    ],
)
def test_objections(change: dict[str, object], words: str) -> None:
    (kernel,) = products(LAYERS[0])
    assert words in WGSL.objection(kernel, replace(MatrixSchedule(), **change))  # type: ignore[arg-type]
