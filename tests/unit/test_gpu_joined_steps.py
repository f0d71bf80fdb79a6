"""Neighbouring steps that one dispatch computes (gpu/step_joining/joined_steps.py): as exact as by
themselves, under any schedule, and only where nobody else reads what is not stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest
from helpers.gpu import random_few_rows
from helpers.graphs import gelu, layer_norm, results
from helpers.joined_steps import planned, run_joined
from helpers.llama import TINY, Sizes, llama
from helpers.seeds import seeds

from tilewright.base.dtypes import BY_NUMPY, F32, I64
from tilewright.compiler import Compiled, Options, compile_model
from tilewright.frontend import load
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    broadcast,
    cast,
    constant,
    contract,
    elementwise,
    gather,
    graph_input,
    node,
    reduce,
    reshape,
    scalar_like,
)
from tilewright.kernel.loops import TileFn
from tilewright.plan.arena import with_joined_lifetimes
from tilewright.targets.gpu.product.schedule import FewRowsInt8Schedule, FewRowsSchedule
from tilewright.targets.gpu.product.strategies import lower_chain
from tilewright.targets.gpu.step_joining.horizontal_fusion import fuse_horizontally
from tilewright.targets.gpu.step_joining.joined_steps import JoinedSteps, find_joined_steps
from tilewright.targets.gpu.vector_buffers import vectors
from tilewright.targets.scalar_lowering import lower as plainly
from tilewright.targets.wgsl.emit import WORDS


def weight(name: str, value: np.ndarray, loose: str = "") -> Node:
    kind = BY_NUMPY[value.dtype.name]
    return node(ops.Weight(name, value.shape, kind, lambda: value, "", loose))


@dataclass(frozen=True)
class Case:
    """rows x depth times depth x columns, once, or twice with a gate between them.

    norm: "rms", "layer", or "" for none;  bits: of the weights, 32 or 4
    """

    rows: int = 1
    depth: int = 256
    columns: int = 24
    norm: str = "rms"
    gated: bool = True
    bits: int = 4
    loose: str = "i8"

    def graph(self) -> tuple[Graph, dict[str, np.ndarray]]:
        rng = np.random.default_rng(self.depth + self.columns)
        given = {"x": rng.standard_normal((self.rows, self.depth)).astype("f4")}
        x = rows = graph_input("x", (self.rows, self.depth), F32)
        scale = weight("scale", 1 + 0.1 * rng.standard_normal(self.depth).astype("f4"))
        if self.norm == "layer":
            rows = layer_norm(x, scale, weight("bias", given["x"][0] / 8))
        elif self.norm:
            mean = reduce("sum", elementwise("mul", x, x), [-1])
            mean = elementwise("mul", mean, scalar_like(1 / self.depth, mean))
            root = elementwise("sqrt", elementwise("add", mean, scalar_like(1e-5, mean)))
            rows = elementwise("mul", elementwise("div", x, root), scale)
        else:
            rows = elementwise("exp", x)
        y = contract("mk,nk->mn", rows, self.weights(rng, "first"))
        if self.gated:
            other = contract("mk,nk->mn", rows, self.weights(rng, "second"))
            y = elementwise("mul", gelu(y), other)
        shift = weight("shift", rng.standard_normal(self.columns).astype("f4"))
        return Graph("chain", (("x", x),), (("y", elementwise("add", y, shift)),)), given

    def weights(self, rng: np.random.Generator, name: str) -> Node:
        shape = (self.columns, self.depth)
        if self.bits == 32:
            return weight(name, rng.standard_normal(shape).astype("f4") / self.depth**0.5)
        blocks = (self.columns, self.depth // 32, 32)
        whole = rng.integers(0, 16, blocks).astype("u1")
        scale = ((rng.random((*blocks[:2], 1)) + 0.5) * 0.3 / self.depth**0.5).astype("f4")
        centred = elementwise("sub", cast(weight(f"{name}q", whole), F32), constant(8.0, F32))
        wide = broadcast(weight(f"{name}s", scale, self.loose), blocks)
        return reshape(elementwise("mul", centred, wide), shape)


CASES = {
    "norm and gate": Case(),
    "norm": Case(gated=False),
    "gate": Case(norm=""),
    "layer norm": Case(norm="layer", columns=20),
    "three rows": Case(rows=3, depth=288),
    "two rows, one product": Case(rows=2, gated=False, columns=18),
    "many columns": Case(depth=288, columns=76),
    "f32": Case(bits=32, depth=128),
    "f32, three rows": Case(rows=3, bits=32, depth=96, norm="layer"),
}


def random_rounded(rng: Random) -> FewRowsInt8Schedule:
    unit, r1 = rng.choice([8, 16]), rng.choice([0, 0, 96])
    return FewRowsInt8Schedule(
        **vars(random_few_rows(rng)), unit=unit, r1=r1, ahead=rng.random() < 0.5
    )


def lowered(join: JoinedSteps, pick: Callable[[], FewRowsSchedule]) -> TileFn:
    """A chain under the first schedule that fits it.

    The norm's reductions have an area to themselves: each thread writes an element there, and in
    WGSL no two may write to one vector.
    """
    assert join.chain
    while not (found := lower_chain(join.chain, pick())):
        pass
    made, schedule = found
    assert isinstance(schedule, FewRowsSchedule)
    if join.chain.norm:
        assert len(made.buffers) not in vectors(made.body)
        assert made.scratch[0].size == schedule.threads
    return made


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", seeds(1, nightly=10))
def test_chains_under_any_schedule(name: str, seed: int) -> None:
    graph, given = CASES[name].graph()
    rng = Random(f"chain {name} {seed}")
    (want,) = results(graph, given)
    (got,) = run_joined(graph, given, lambda join: lowered(join, lambda: random_few_rows(rng)))
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    if CASES[name].bits == 4:
        (got,) = run_joined(graph, given, lambda join: lowered(join, lambda: random_rounded(rng)))
        assert np.linalg.norm(got - want) < 0.02 * np.linalg.norm(want)
        assert np.abs(got - want).max() > 0


@pytest.mark.parametrize("name", CASES)
def test_a_chain_is_one_dispatch(name: str) -> None:
    case = CASES[name]
    program, _ = planned(case.graph()[0])
    (plan,) = program.plans
    (join,) = find_joined_steps(plan, program.kernels)
    assert join.chain
    assert join.last == len(plan.steps) - 1
    assert len(join.chain.products) == 1 + case.gated
    assert bool(join.chain.norm) == bool(case.norm)


def test_what_others_read_is_stored() -> None:
    """A norm, or a first product, that is an output stays a step."""
    graph, _ = CASES["norm and gate"].graph()
    products = [n for n in graph.nodes() if isinstance(n.op, ops.Contract)]
    for read, left in ((products[0].inputs[0], 2), (products[0], 1), (products[1], 1)):
        program, _ = planned(replace(graph, outputs=(*graph.outputs, ("more", read))))
        (plan,) = program.plans
        chains = [join.chain for join in find_joined_steps(plan, program.kernels) if join.chain]
        assert all(len(chain.products) <= left for chain in chains)
        assert left == 1 or not any(chain.norm for chain in chains)


@pytest.mark.parametrize(
    "case",
    [Case(rows=4, norm=""), Case(columns=3, norm=""), Case(depth=64, norm="")],
    ids=["many rows", "few columns", "few steps"],
)
def test_other_products_stay_steps(case: Case) -> None:
    program, _ = planned(case.graph()[0])
    assert not any(j.chain for j in find_joined_steps(program.plans[0], program.kernels))


# ---- side by side --------------------------------------------------------------------------------


def maps() -> tuple[Graph, dict[str, np.ndarray]]:
    """Kernels whose registers have other types, one of which reads at an index that it has read."""
    rng = np.random.default_rng(3)
    given = {
        "x": rng.standard_normal((5, 7)).astype("f4"),
        "ids": np.array([4, 0, 4]),
        "n": rng.integers(-9, 9, (6,)),
    }
    x, ids = graph_input("x", (5, 7), F32), graph_input("ids", (3,), I64)
    n = graph_input("n", (6,), I64)
    outputs = {
        "a": gelu(x),
        "b": gather(x, ids, 0),
        "c": elementwise("mul", elementwise("add", n, n), elementwise("add", n, n)),
    }
    return Graph("maps", (("x", x), ("ids", ids), ("n", n)), tuple(outputs.items())), given


def test_maps_side_by_side() -> None:
    graph, given = maps()
    program, _ = planned(graph)
    (plan,) = program.plans
    (join,) = find_joined_steps(plan, program.kernels)
    assert (join.first, join.last) == (0, len(plan.steps) - 1)
    functions = [plainly(program.kernels[step.kernel]) for step in plan.steps]
    got = run_joined(graph, given, lambda _: fuse_horizontally(functions))
    for value, want in zip(got, results(graph, given), strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-6)


def test_maps_that_wait_for_each_other_are_not_joined() -> None:
    x = graph_input("x", (8,), F32)
    first = node(ops.Realize(), elementwise("exp", x))
    graph = Graph("two", (("x", x),), (("y", elementwise("add", first, x)),))
    program, _ = planned(graph)
    assert len(program.plans[0].steps) == 2
    assert not find_joined_steps(program.plans[0], program.kernels)


# ---- models --------------------------------------------------------------------------------------


def compiled(sizes: Sizes, **options: bool) -> Compiled:
    built = Options(targets=("wgsl",), buckets={"n": (1, 8)}, states=sizes.states, **options)
    return compile_model(load(llama(sizes)), built)


WIDE = replace(TINY, width=256, hidden=288, block=32, room=32)
MODELS = {
    "4 bits": (WIDE, {}),
    "bytes": (WIDE, {"bytes": True}),
    "halves": (WIDE, {"halves": True}),
    "8 bits": (replace(WIDE, bits=8), {}),
    "f32": (replace(WIDE, bits=32), {}),
    "plain": (replace(WIDE, plain=True), {}),
}
#: Of a layer: norm and product, keys and values written, attention, product, gate, product.
MOST = 6


def dispatches(made: Compiled, plan: int) -> int:
    """Of a run, as the section says and its steps have them."""
    section = made.made["wgsl"].section
    calls = json.loads(section.builds[0].plans[plan].data)
    found = int(section.plans[plan]["dispatches"])
    assert found == len(calls) - sum(c["joined"]["steps"] - 1 for c in calls if "joined" in c)
    return found


@pytest.mark.seldom(4)
@pytest.mark.parametrize("name", MODELS)
def test_a_layer_is_few_dispatches(name: str) -> None:
    sizes, options = MODELS[name]
    one, two = (compiled(replace(sizes, layers=n), **options) for n in (1, 2))
    assert dispatches(two, 0) - dispatches(one, 0) <= MOST
    assert len(two.program.plans[0].steps) - len(one.program.plans[0].steps) == 11


def test_values_of_a_join_do_not_share_memory() -> None:
    """In the plan's arena: what one of its steps reads, and what another one writes."""
    made = compiled(WIDE)
    (build,) = made.made["wgsl"].section.builds
    for number, plan in enumerate(made.program.plans):
        calls = json.loads(build.plans[number].data)
        for join in find_joined_steps(plan, made.program.kernels):
            places = {}
            steps = plan.steps[join.first : join.last + 1]
            for step, call in zip(steps, calls[join.first : join.last + 1], strict=True):
                kernel = made.program.kernels[step.kernel]
                for a, word, b in zip(step.accesses, call["words"], kernel.buffers, strict=True):
                    size = b.size * WORDS[b.dtype.name]
                    if plan.values[a.value].kind != "weight":
                        places.setdefault(a.value, set()).add((word, word + size))
            spans = [(v, *span) for v, own in places.items() for span in own]
            for v, first, last in spans:
                assert not any(w != v and a < last and first < z for w, a, z in spans)


def test_lives_last_as_long_as_joins_need() -> None:
    program, _ = planned(CASES["norm and gate"].graph()[0])
    (plan,) = program.plans
    found = find_joined_steps(plan, program.kernels)
    own = with_joined_lifetimes(plan, [join.steps for join in found])
    for before, value in zip(plan.values, own.values, strict=True):
        assert value.first <= before.first
        assert value.last >= before.last
        if value.kind == "temporary" and found[0].first <= before.first <= found[0].last:
            assert (value.first, value.last) == (found[0].first, found[0].last)
    assert replace(own, values=plan.values) == plan
