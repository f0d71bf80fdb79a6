"""Attention of single rows by subgroups (gpu/attention/one_row.py): any schedule, any cache.

The loops run in the interpreter, which finds races; CUDA's text also on the CPU, in warps of 32.  A
software adapter runs WGSL in browser/test_gpu_features.py.
"""

from __future__ import annotations

import re
from random import Random

import numpy as np
import pytest
from helpers.attention import VARIANTS, decoding, random_attention
from helpers.gpu import ByGroups, by_groups, on_cpu
from helpers.graphs import results, run_steps
from helpers.seeds import seeds
from test_attention import assert_same, attentions, compiled, values_of

from tilewright.fusion.f16_operands import with_rounded_attention
from tilewright.graph.node import Graph
from tilewright.kernel.expr import LOWEST
from tilewright.kernel.spec import Kernel
from tilewright.targets.cuda.target import Cuda
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.attention.schedule import (
    AttentionOneRowSchedule,
    AttentionSomeRowsSchedule,
    KeyAssignment,
)
from tilewright.targets.gpu.attention.strategies import ATTENTION_ONE_ROW, ONE_ROW_CANDIDATES
from tilewright.targets.gpu.workgroup_limits import shared_memory_feature
from tilewright.targets.wgsl.target import Wgsl
from tilewright.tuning.candidates import build, space_of

WGSL, CUDA = Wgsl(), Cuda()
FEW = [name for name in VARIANTS if name != "gpt2"]


def kernel_of(heads: int = 32, keys: int = 1024, depth: int = 128) -> Kernel:
    (kernel,) = attentions(compiled(decoding(heads, heads, keys, depth))[1])
    return kernel


@pytest.mark.parametrize("name", FEW)
def test_each_variant(name: str) -> None:
    """By subgroups of 4, of which 4 are a group."""
    check(VARIANTS[name](), AttentionOneRowSchedule(16, 4, 1, 2))


@pytest.mark.seldom(4)
@pytest.mark.parametrize("name", ["decode", "cached", "swapped"])
def test_columns_across_groups(name: str) -> None:
    check(VARIANTS[name](), AttentionOneRowSchedule(32, 8, 2, 1, 2))


def check(graph: Graph, schedule: AttentionOneRowSchedule) -> None:
    values = values_of(graph)
    (want,) = results(graph, values)
    assert_same(by_groups(ATTENTION_ONE_ROW, graph, values, lambda _: schedule), want)


def random_rows(rng: Random, kernel: Kernel) -> AttentionOneRowSchedule:
    """Any schedule that the kernel has lanes and columns enough for."""
    while True:
        width = rng.choice([4, 8, 16, 32])
        made = AttentionOneRowSchedule(
            width * rng.choice([1, 2, 4]),
            width,
            rng.choice([1, 1, 2, 4]),
            rng.choice([1, 2, 3, 8]),
            rng.choice([1, 1, 2]),
        )
        if not made.objection(kernel):
            return made


@pytest.mark.parametrize("seed", seeds(6, nightly=50))
def test_random_attention_under_random_schedules(seed: int) -> None:
    """More rows than are few are not among them."""
    rng = Random(f"head rows {seed}")
    graph = random_attention(rng)
    while not ATTENTION_ONE_ROW.suits(*attentions(compiled(graph)[1])):
        graph = random_attention(rng)
    values = values_of(graph, seed)
    (want,) = results(graph, values)
    got = by_groups(ATTENTION_ONE_ROW, graph, values, lambda kernel: random_rows(rng, kernel))
    assert_same(got, want)


@pytest.mark.parametrize("past", [-1, 0, 15, 16, 31, 32, 66])
def test_keys_that_the_row_does_not_see_are_not_read(past: int) -> None:
    """What lies behind the last one may be anything; a row that sees none is NaN."""
    graph = decoding(2, 1, 67, 32)
    values = values_of(graph)
    values["past"][:] = past
    with np.errstate(invalid="ignore"):
        (want,) = results(graph, values)
    for name in "kv":
        values[name][:, :, max(past, 0) + 1 :] = np.nan
    assert np.isnan(want).all() == (past < 0)
    schedule = AttentionOneRowSchedule(32, 8, 4, 2, 2)
    assert KeyAssignment.of(kernel_of(2, 67, 32), schedule).block == 16
    assert_same(by_groups(ATTENTION_ONE_ROW, graph, values, lambda _: schedule), want)


@pytest.mark.parametrize("past", [-1, 31, 66])
def test_where_halves_are_allowed_a_row_has_one_reciprocal(past: int) -> None:
    graph, schedule = decoding(2, 1, 67, 32), AttentionOneRowSchedule(32, 8, 4, 2, 2)
    values = values_of(graph)
    values["past"][:] = past
    with np.errstate(invalid="ignore"):
        (want,) = results(graph, values)
    packed, steps = compiled(graph)
    execute = ByGroups(ATTENTION_ONE_ROW, lambda _: schedule)
    (got,) = run_steps(packed, steps, values, lambda k, b: execute(with_rounded_attention(k), b))
    assert execute.products == 1
    assert_same(got, want)
    kernel = kernel_of(2, 67, 32)
    exact, quick = (
        str(WGSL.code(k, schedule).body) for k in (kernel, with_rounded_attention(kernel))
    )
    assert exact.count("f32_div(context") == 4
    assert "f32_div(" not in quick


@pytest.mark.parametrize("low", [float("-inf"), LOWEST])
def test_a_row_whose_mask_hides_all_keys(low: float) -> None:
    """-inf everywhere is NaN, as softmax says; the lowest finite number gives an even mean."""
    graph = VARIANTS["decode"]()
    values = values_of(graph)
    values["mask"][:] = low
    with np.errstate(invalid="ignore"):
        (want,) = results(graph, values)
    assert np.isnan(want).all() == np.isinf(low)
    got = by_groups(
        ATTENTION_ONE_ROW, graph, values, lambda _: AttentionOneRowSchedule(16, 8, 2, 4)
    )
    assert_same(got, want)


@pytest.mark.seldom(4)
@pytest.mark.parametrize(
    ("sizes", "past"), [((2, 1, 384, 128), 255), ((2, 2, 384, 64), 256), ((1, 1, 384, 80), 383)]
)
def test_the_first_choice_in_warps_of_32(sizes: tuple[int, int, int, int], past: int) -> None:
    graph = decoding(*sizes)
    values = values_of(graph)
    values["past"][:] = past
    (want,) = results(graph, values)

    def execute(kernel: Kernel, buffers: list[np.ndarray]) -> None:
        (schedule,) = ATTENTION_ONE_ROW.defaults_with_features(kernel)
        on_cpu(CUDA.code(kernel, schedule), buffers)

    packed, steps = compiled(graph)
    (got,) = run_steps(packed, steps, values, execute)
    assert_same(got, want)


def test_devices_without_subgroups_keep_what_they_had() -> None:
    kernel = kernel_of()
    code = WGSL.code(kernel, WGSL.default(kernel, "core"))
    able = WGSL.usable_codes(code, lambda _: True, frozenset())
    assert [type(each.schedule) for each in able] == [
        AttentionOneRowSchedule,
        AttentionSomeRowsSchedule,
    ]
    assert able[0].needs == {"subgroups", "subgroups-32"}
    assert not able[1].needs
    on_cuda = Cuda()
    code = on_cuda.code(kernel, on_cuda.default(kernel, "core"))
    assert AttentionOneRowSchedule in {
        type(each.schedule) for each in on_cuda.usable_codes(code, bool, frozenset())
    }


@pytest.mark.parametrize(
    ("keys", "depth", "rooms"),
    [(1024, 128, [16384]), (3072, 64, [16384]), (4608, 128, [32768]), (100_000, 64, [])],
)
def test_scores_that_do_not_fit_are_for_the_other_form(
    keys: int, depth: int, rooms: list[int]
) -> None:
    found = ATTENTION_ONE_ROW.defaults_with_features(kernel_of(8, keys, depth))
    assert [s.room for s in found] == rooms
    assert all(shared_memory_feature(s.room) <= s.features for s in found)


def test_the_space_has_a_few_for_each_size_of_subgroups() -> None:
    kernel = kernel_of()
    for device, width in (("webgpu-nvidia", 32), ("webgpu-intel-gen-9", 16)):
        schedules = space_of(kernel, CLASSES[device]).schedules
        ours = [s for s in schedules if isinstance(s, AttentionOneRowSchedule)]
        assert isinstance(schedules[0], AttentionSomeRowsSchedule)
        assert len([s for s in ours if s.width == width]) == ONE_ROW_CANDIDATES
        assert {s.width for s in ours} >= {8, 16, 32}
        for schedule in ours:
            assert not WGSL.objection(kernel, schedule)
            assert WGSL.schedule(schedule.to_json()) == schedule


def test_no_text_assigns_to_what_does_not_change() -> None:
    """Registers and indices of a candidate have names of their own, or WGSL refuses it."""
    kernel = kernel_of()
    for schedule in space_of(kernel, CLASSES["webgpu"]).schedules[::3]:
        text = build(kernel, schedule, "wgsl", "core").module.decode()
        fixed = set(re.findall(r"\blet (\w+)", text))
        assert not fixed & set(re.findall(r"^\s*(\w+) = ", text, re.MULTILINE)), schedule


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (AttentionOneRowSchedule(width=24), "width is one of"),
        (AttentionOneRowSchedule(threads=48), "threads is a power of two from width on"),
        (AttentionOneRowSchedule(threads=16), "threads is a power of two from width on"),
        (AttentionOneRowSchedule(threads=512), "at most 256 threads"),
        (AttentionOneRowSchedule(keys=64), "keys divides the 32 threads"),
        (AttentionOneRowSchedule(width=4, keys=4, values=64), "at most 32 vectors together"),
        (AttentionOneRowSchedule(across=3), "across divides the 128 columns"),
        (AttentionOneRowSchedule(threads=16, width=16), "32 threads are needed"),
    ],
)
def test_what_is_no_schedule(schedule: AttentionOneRowSchedule, said: str) -> None:
    assert said in WGSL.objection(kernel_of(), schedule)
