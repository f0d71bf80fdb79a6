"""Attention becomes one kernel, whatever the exporter wrote, and means what the graph means.

Input: the variants of helpers/attention.py and random ones.  Tolerance: 2e-5 of the largest value,
since scores, exponentials and sums each round a few times.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from helpers.attention import VARIANTS, Maker, mixed, random_attention, scored
from helpers.graphs import (
    bert_layer,
    default_of,
    interpreted,
    results,
    run_steps,
    softmax,
    steps_of,
)
from helpers.loop_check import check_loops
from helpers.schedules import scheduled
from helpers.seeds import seeds

from tilewright.base.dtypes import F32
from tilewright.fusion.kernel_specs import KernelStep
from tilewright.graph.node import (
    Graph,
    broadcast,
    constant,
    contract,
    elementwise,
    graph_input,
    reduce,
)
from tilewright.graph.passes import optimise
from tilewright.kernel.form import Attention, form_as
from tilewright.kernel.spec import Kernel
from tilewright.targets.protocol import PACKING
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.strategies import default_schedule, lower


def values_of(graph: Graph, seed: int = 3) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(seed)
    return {name: numbers.standard_normal(n.shape).astype("f4") for name, n in graph.inputs}


def compiled(graph: Graph) -> tuple[Graph, tuple[KernelStep, ...]]:
    packed = optimise(graph, PACKING)
    return packed, steps_of(packed)


def attentions(steps: tuple[KernelStep, ...]) -> list[Kernel]:
    return [s.kernel for s in steps if s.kernel.anchor == "attention"]


def assert_same(got: np.ndarray, want: np.ndarray) -> None:
    scale = float(np.abs(want[np.isfinite(want)]).max(initial=1.0))
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5 * scale)


@pytest.mark.parametrize("name", VARIANTS)
def test_each_variant_is_one_kernel_that_stores_no_scores(name: str) -> None:
    graph = VARIANTS[name]()
    packed, steps = compiled(graph)
    (kernel,) = attentions(steps)
    roles = form_as(kernel, Attention)
    rows = np.prod([v.extent for v in kernel.rows])
    assert all(s.output.size < rows * roles.keys.extent for s in steps), "stores the scores"
    values = values_of(graph)
    for got, want in zip(run_steps(packed, steps, values), results(graph, values), strict=True):
        assert_same(got, want)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("keys", [4096, 4], ids=["one-block", "online"])
@pytest.mark.parametrize("cache", ["", "k", "kv"])
def test_each_variant_by_interpreted_loops(name: str, keys: int, cache: str) -> None:
    graph = VARIANTS[name]()
    packed, steps = compiled(graph)
    values = values_of(graph)

    def pick(kernel: Kernel) -> Schedule:
        chosen = default_of(kernel)
        special = kernel.anchor == "attention"
        return replace(chosen, y1=keys, cache=cache) if special else chosen

    for s in steps:
        check_loops(lower(s.kernel, pick(s.kernel)))
    (want,), (got,) = results(graph, values), run_steps(packed, steps, values, interpreted(pick))
    assert_same(got, want)


@pytest.mark.parametrize("seed", seeds(25, nightly=75))
def test_random_attention_under_random_schedules(seed: int) -> None:
    rng = Random(f"attention{seed}")
    graph = random_attention(rng)
    packed, steps = compiled(graph)
    assert len(attentions(steps)) == 1
    values = values_of(graph, seed)

    def pick(kernel: Kernel) -> Schedule:
        return scheduled(
            kernel,
            x0=rng.randint(1, 6),
            y0=rng.choice((4, 8, 16)),
            r0=rng.randint(1, 5),
            x1=rng.choice((1, 4, 6, 12, 100)),
            y1=rng.choice((3, 4, 8, 20, 4096)),
            cache=rng.choice(("", "k", "v", "kv")),
        )

    (want,) = results(graph, values)
    assert_same(run_steps(packed, steps, values)[0], want)
    assert_same(run_steps(packed, steps, values, interpreted(pick))[0], want)


def test_probabilities_that_leave_the_model_are_not_fused() -> None:
    m = Maker()
    q, k, v = m.qkv()
    p = softmax(scored(q, k))
    fused = m.finish(mixed(p, v))
    graph = Graph("both", fused.inputs, (*fused.outputs, ("p", p)))
    packed, steps = compiled(graph)
    assert not attentions(steps)
    values = values_of(graph)
    for got, want in zip(run_steps(packed, steps, values), results(graph, values), strict=True):
        assert_same(got, want)


def test_layers_of_a_model_share_one_kernel() -> None:
    _, steps = compiled(bert_layer())
    assert len(attentions(steps)) == 1
    assert {s.kernel.anchor for s in steps} == {"contract", "rowwise", "attention"}


@pytest.mark.parametrize("low", [float("-inf"), -3.4028234663852886e38])
@pytest.mark.parametrize("keys", [4096, 4], ids=["one-block", "online"])
def test_rows_without_any_key(low: float, keys: int) -> None:
    """-inf everywhere is NaN, as softmax says; the lowest finite number gives an even mean."""
    graph = VARIANTS["bert"]()
    packed, steps = compiled(graph)
    values = values_of(graph)
    values["mask"][0], values["mask"][1, ..., :6] = low, low
    with np.errstate(invalid="ignore"):
        (want,) = results(graph, values)
    pick = lambda k: scheduled(k, y1=keys)  # noqa: E731
    (got,) = run_steps(packed, steps, values, interpreted(pick))
    assert np.isnan(want[0]).all() == np.isinf(low)
    assert_same(got, want)


@pytest.mark.parametrize(("rows", "keys"), [(384, 384), (1, 100000), (64, 4096), (1500, 1500)])
def test_scratch_of_the_default_schedule_stays_in_l2(rows: int, keys: int) -> None:
    m = Maker(1)
    q, k, v = (m.head(n, size, 2, 64) for n, size in (("q", rows), ("k", keys), ("v", keys)))
    (kernel,) = attentions(compiled(m.finish(mixed(softmax(scored(q, k)), v)))[1])
    machine = Machine()
    fn = lower(kernel, default_schedule(kernel, machine))
    assert sum(s.size * s.dtype.size for s in fn.scratch) <= machine.l2
    assert fn.tiles >= 2


def test_scores_of_queries_divided_by_zero_stay_where_they_are() -> None:
    """No number can be taken out of such a product."""
    q, k, v = (graph_input(name, (2, 8, 16), F32) for name in "qkv")
    nothing = elementwise("div", q, broadcast(constant(0.0, F32), q.shape))
    s = contract("bqd,bkd->bqk", nothing, k)
    e = elementwise("exp", elementwise("sub", s, broadcast(reduce("max", s, [2]), s.shape)))
    p = elementwise("div", e, broadcast(reduce("sum", e, [2]), s.shape))
    y = contract("bqk,bkd->bqd", p, v)
    graph = Graph("zero", (("q", q), ("k", k), ("v", v)), (("y", y),))
    assert len(attentions(compiled(graph)[1])) == 1


@pytest.mark.parametrize("past", [-3, 0, 9, 31, 60])
@pytest.mark.parametrize("keys", [4096, 16, 7], ids=["one-block", "online", "odd"])
def test_keys_that_no_row_sees_are_not_read(past: int, keys: int) -> None:
    """What lies behind the last one may be anything; with less than no past the first rows see
    nothing, and are NaN."""
    graph = VARIANTS["cached"]()
    packed, steps = compiled(graph)
    values = values_of(graph)
    values["past"][:] = past
    with np.errstate(invalid="ignore"):
        (want,) = results(graph, values)
    for name in "kv":
        values[name][:, :, past + want.shape[1] :] = np.nan
    assert np.isnan(want).any() == (past < 0)

    def pick(kernel: Kernel) -> Schedule:
        chosen = default_of(kernel)
        return replace(chosen, y1=keys) if kernel.anchor == "attention" else chosen

    (got,) = run_steps(packed, steps, values, interpreted(pick))
    assert_same(got, want)
