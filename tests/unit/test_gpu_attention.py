"""Attention by groups of threads (gpu/attention/some_rows.py): any schedule gives the context."""

from __future__ import annotations

import re
from random import Random

import numpy as np
import pytest
from helpers.attention import VARIANTS, Maker, mixed, random_attention, scored
from helpers.gpu import by_groups
from helpers.graphs import results, softmax
from helpers.seeds import seeds
from test_attention import assert_same, attentions, compiled, values_of

from lab.subjects import steps_of
from tilewright.base.dtypes import F32
from tilewright.graph.node import Graph, contract, graph_input
from tilewright.kernel.expr import LOWEST
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.attention.schedule import AttentionSomeRowsSchedule
from tilewright.targets.gpu.attention.strategies import ATTENTION_SOME_ROWS
from tilewright.tuning.candidates import build, space_of


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", VARIANTS)
def test_each_variant(name: str) -> None:
    graph = VARIANTS[name]()
    values = values_of(graph)
    (want,) = results(graph, values)
    assert_same(by_groups(ATTENTION_SOME_ROWS, graph, values, ATTENTION_SOME_ROWS.default), want)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", seeds(25, nightly=75))
def test_random_attention_under_random_schedules(seed: int) -> None:
    rng = Random(f"attention{seed}")
    graph = random_attention(rng)
    values = values_of(graph, seed)

    def pick(kernel: Kernel) -> AttentionSomeRowsSchedule:
        """Any that the kernel has threads enough for."""
        while True:
            threads = rng.choice([16, 32, 64])
            made = AttentionSomeRowsSchedule(
                rng.choice([1, 4, 8]),
                threads * rng.choice([1, 2]),
                threads,
                rng.choice([1, 2, 4]),
                rng.choice([1, 1, 2, 4]),
            )
            if not made.objection(kernel):
                return made

    (want,) = results(graph, values)
    assert_same(by_groups(ATTENTION_SOME_ROWS, graph, values, pick), want)


@pytest.mark.parametrize("low", [float("-inf"), LOWEST])
@pytest.mark.parametrize("y1", [16, 32], ids=["online", "one-block"])
def test_rows_without_any_key(low: float, y1: int) -> None:
    """-inf everywhere is NaN, as softmax says; the lowest finite number gives an even mean."""
    graph = VARIANTS["bert"]()
    values = values_of(graph)
    values["mask"][0], values["mask"][1, ..., :6] = low, low
    with np.errstate(invalid="ignore"):
        (want,) = results(graph, values)
    assert np.isnan(want[0]).all() == np.isinf(low)
    assert_same(
        by_groups(
            ATTENTION_SOME_ROWS, graph, values, lambda _: AttentionSomeRowsSchedule(4, y1, 16)
        ),
        want,
    )


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (AttentionSomeRowsSchedule(x1=6), "multiple of 4"),
        (AttentionSomeRowsSchedule(threads=48, y1=48), "power of two"),
        (AttentionSomeRowsSchedule(y1=100), "multiple of it"),
        (AttentionSomeRowsSchedule(across=3), "across divides"),
        (AttentionSomeRowsSchedule(threads=512, y1=512), "at most 256 threads"),
        (AttentionSomeRowsSchedule(x1=16, y1=512), "at most 16384 bytes"),
        (AttentionSomeRowsSchedule(threads=1, y1=4), "power of two"),
    ],
)
def test_what_is_no_schedule(schedule: AttentionSomeRowsSchedule, said: str) -> None:
    (kernel,) = attentions(compiled(VARIANTS["bert"]())[1])
    assert said in schedule.objection(kernel)


@pytest.mark.parametrize(("rows", "keys"), [(384, 384), (1, 100000), (64, 4096), (1500, 1500)])
def test_a_default_fits_any_length(rows: int, keys: int) -> None:
    m = Maker(1)
    q, k, v = m.qkv(rows, keys)
    graph = m.finish(mixed(softmax(scored(q, k)), v))
    (kernel,) = attentions(compiled(graph)[1])
    assert ATTENTION_SOME_ROWS.suits(kernel)
    schedule = ATTENTION_SOME_ROWS.default(kernel)
    assert not schedule.objection(kernel)
    assert schedule.x1 == (1 if rows == 1 else 4)


@pytest.mark.parametrize("past", [-3, 0, 9, 31, 50, 60])
def test_keys_that_no_row_sees_are_not_read(past: int) -> None:
    """What lies behind the last one, in blocks of their own, may be anything; with less than no
    past the first rows see nothing, and are NaN."""
    graph = VARIANTS["cached"]()
    values = values_of(graph)
    values["past"][:] = past
    with np.errstate(invalid="ignore"):
        (want,) = results(graph, values)
    first = -(-(past + want.shape[1]) // 16) * 16
    for name in "kv":
        values[name][:, :, first:] = np.nan
    assert np.isnan(want).any() == (past < 0)
    assert_same(
        by_groups(
            ATTENTION_SOME_ROWS, graph, values, lambda _: AttentionSomeRowsSchedule(4, 16, 16)
        ),
        want,
    )


@pytest.mark.parametrize("rows", [1, 16])
def test_no_text_assigns_to_what_does_not_change(rows: int) -> None:
    """Registers and indices of a candidate have names of their own, or WGSL refuses it."""
    q, k, v = (graph_input(n, (2, m, 8), F32) for n, m in (("q", rows), ("k", 2048), ("v", 2048)))
    context = contract("hmn,hnd->hmd", softmax(contract("hmd,hnd->hmn", q, k)), v)
    graph = Graph("g", (("q", q), ("k", k), ("v", v)), (("y", context),))
    (kernel,) = {s.kernel for s in steps_of(graph) if ATTENTION_SOME_ROWS.suits(s.kernel)}
    space = space_of(kernel, CLASSES["webgpu"])
    heads = [s for s in space.schedules if isinstance(s, AttentionSomeRowsSchedule)]
    assert max(s.y1 // s.threads for s in heads) >= 8
    for schedule in heads:
        text = build(kernel, schedule, "wgsl", "core").module.decode()
        fixed = set(re.findall(r"\blet (\w+)", text))
        assert not fixed & set(re.findall(r"^\s*(\w+) = ", text, re.MULTILINE)), schedule
