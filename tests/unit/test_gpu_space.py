"""Spaces of WebGPU kernels: sizes, limits, order, code of candidates, bundles with winners."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers.attention import VARIANTS
from modes_factory import given
from test_attention import attentions, compiled

from lab.subjects import matmul, product_kernel
from tilewright.bundle import open_bundle, write
from tilewright.compiler import Options
from tilewright.hosts.reference import run_kernel
from tilewright.kernel import interpreter
from tilewright.kernel.spec import Kernel
from tilewright.targets import target
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.attention.schedule import AttentionSomeRowsSchedule
from tilewright.targets.gpu.product.schedule import (
    FewRowsSchedule,
    RegisterGemmSchedule,
    Sizes,
    SubgroupGemmSchedule,
)
from tilewright.targets.gpu.workgroup_strategy import MOST_SCHEDULES
from tilewright.targets.scalar_lowering import Plain
from tilewright.targets.schedule import Schedule
from tilewright.tuning.candidates import build, space_of
from tilewright.tuning.catalogue import kernels_of
from tilewright.tuning.page_compiler import PageCompiler
from tilewright.tuning.relink import relink

GPUS = [device for device in CLASSES.values() if device.target == "wgsl"]
SHAPES = {
    "K0": ((384, 768), (768, 768)),
    "K2": ((12, 384, 384), (12, 384, 64)),
    "large": ((4096, 4096), (4096, 4096)),
    "small": ((6, 40), (40, 24)),
    "flat": ((4, 4096), (4096, 5)),
}


def kernel_of(name: str) -> Kernel:
    left, right = SHAPES[name]
    text = "mk,kn->mn" if len(left) == 2 else "bmk,bkn->bmn"
    return product_kernel(text, left, right, weight=len(left) == 2)


@pytest.mark.parametrize("name", SHAPES)
def test_spaces_are_small_and_within_the_limits_of_every_class(name: str) -> None:
    kernel = kernel_of(name)
    for device in GPUS:
        found = space_of(kernel, device)
        assert found == space_of(kernel, device)
        first, *others = found.schedules
        assert first == target("wgsl").default(kernel, device.variant)
        assert 1 <= len([s for s in others if not s.features]) < MOST_SCHEDULES
        assert len(set(found.schedules)) == len(found.schedules)
        for schedule in found.schedules:
            assert isinstance(schedule, RegisterGemmSchedule | SubgroupGemmSchedule)
            assert not target("wgsl").objection(kernel, schedule)
            assert schedule.threads <= device.machine.threads
            if isinstance(schedule, RegisterGemmSchedule):
                assert schedule.shared <= device.machine.shared


def test_classes_differ_in_order() -> None:
    """What a core has decides what comes first."""
    large, small = (
        space_of(kernel_of("K0"), CLASSES[id])
        for id in ("webgpu-nvidia-hopper", "webgpu-arm-bifrost")
    )
    assert large.schedules[0] == small.schedules[0]
    assert [large.schedules[n] for n in large.order] != [small.schedules[n] for n in small.order]


def test_most_candidates_are_other_shapes_and_some_other_settings() -> None:
    found = space_of(kernel_of("K0"), CLASSES["webgpu"]).schedules
    shapes = {(s.x0, s.y0, s.x1, s.y1, s.r1) for s in found if isinstance(s, RegisterGemmSchedule)}
    assert len(shapes) >= 20
    assert {s.ahead for s in found if isinstance(s, RegisterGemmSchedule)} == {False, True}


def test_a_walk_that_comes_out_the_same_is_one_candidate() -> None:
    sizes = Sizes.of(kernel_of("K0"))
    found = space_of(kernel_of("K0"), CLASSES["webgpu"]).schedules
    assert all(-(-sizes.rows // s.x1) % s.band == 0 for s in found[1:] if hasattr(s, "x1"))


def test_other_kernels_have_their_default_alone() -> None:
    kernel = product_kernel("mk,kn->mn", (2, 8), (8, 64), weight=True)
    found = space_of(kernel, CLASSES["webgpu-amd"])
    assert [type(schedule) for schedule in found.schedules] == [Plain]
    assert (found.order, found.marks) == ((), ("default",))


def few_rows() -> Kernel:
    return product_kernel("mk,kn->mn", (2, 512), (512, 96), weight=True)


def a_head() -> Kernel:
    (kernel,) = attentions(compiled(VARIANTS["bert"]())[1])
    return kernel


@pytest.mark.parametrize(
    ("made", "kind"), [(few_rows, FewRowsSchedule), (a_head, AttentionSomeRowsSchedule)]
)
def test_spaces_without_a_model_begin_near_the_default(
    made: Callable[[], Kernel], kind: type[Schedule]
) -> None:
    kernel, wgsl = made(), target("wgsl")
    every_way = wgsl.candidates(kernel, CLASSES["webgpu"], 1.0)
    found = [c for c in every_way if c.schedule.tag == kind.tag]
    assert found == [*every_way[: len(found)]]
    assert found[0].schedule == wgsl.default(kernel, "core")
    assert 4 < len(found) <= MOST_SCHEDULES
    assert len({c.schedule for c in found}) == len(found)
    assert [c.cost for c in found] == sorted(c.cost for c in found)
    for candidate in found:
        assert not wgsl.objection(kernel, candidate.schedule)
        assert 0 < candidate.scratch <= 16384
        assert candidate.words > 0


def test_what_waits_for_nobody_is_no_group() -> None:
    alone = RegisterGemmSchedule(x0=4, y0=4, r0=1, x1=4, y1=4, r1=4)
    assert "two threads" in target("wgsl").objection(kernel_of("K0"), alone)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", ["small", "flat"])
def test_every_candidate_computes_the_product(name: str, every: int) -> None:
    kernel = kernel_of(name)
    rng = np.random.default_rng(0)
    buffers = [rng.integers(-4, 5, b.size).astype(np.float32) for b in kernel.buffers]
    run_kernel(kernel, buffers)
    want = buffers[0].copy()
    for schedule in space_of(kernel, CLASSES["webgpu"]).schedules[::every]:
        lists = [b.tolist() for b in buffers]
        lists[0] = [float("nan")] * len(lists[0])
        interpreter.run(target("wgsl").lower(kernel, schedule), lists)
        np.testing.assert_array_equal(lists[0], want)


def test_a_candidate_is_text_with_invocations() -> None:
    kernel = kernel_of("small")
    schedule = RegisterGemmSchedule(4, 4, 4, 8, 32, 8)
    made = build(kernel, schedule, "wgsl", "core")
    assert made.extension == "wgsl"
    assert f"@workgroup_size({schedule.threads})" in made.module.decode()
    assert made.tiles == schedule.threads * 1 * 1
    assert (made.scratch, made.features) == (0, ())


def test_a_page_with_the_compiler_makes_the_same(tmp_path: Path) -> None:
    write(matmul(40, 64, 48, Options(targets=("wgsl",))).contents, tmp_path)
    bundle = open_bundle(tmp_path)
    page = PageCompiler(given(bundle, device="webgpu-apple"))
    (offer,) = page.offers([0])
    (kernel,) = kernels_of(bundle)
    space = space_of(kernel, CLASSES["webgpu-apple"])
    assert (offer["default"], offer["order"], offer["checksum"]) == (
        0, list(space.trial_on(())), space.checksum,
    )  # fmt: skip
    made = page.make(0, 3)
    assert made is not None
    assert made[1] == build(kernel, space.schedules[3], "wgsl", "core").module


def test_a_relinked_bundle_has_the_winner_where_the_tensors_were(tmp_path: Path) -> None:
    device = CLASSES["webgpu-nvidia"]
    write(matmul(40, 64, 48, Options(targets=("wgsl",))).contents, tmp_path / "old")
    old = open_bundle(tmp_path / "old")
    (kernel,) = kernels_of(old)
    schedule = space_of(kernel, device).schedules[3]
    write(relink(old, device, {0: schedule}), tmp_path / "new")
    new = open_bundle(tmp_path / "new")
    before, after = (b.manifest.section("wgsl") for b in (old, new))
    assert (after.memory, after.facts, after.plans) == (before.memory, before.facts, before.plans)
    (code,) = (b.code for b in after.builds)
    module = build(kernel, schedule, "wgsl", "core").module.decode()
    assert module in new.read(code).decode().encode().decode("unicode_escape")
    same = relink(old, device, {0: space_of(kernel, device).schedules[0]})
    assert same.manifest.section("wgsl").builds == before.builds
