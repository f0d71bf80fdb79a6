"""Products whose rows subgroups share (subgroup_gemm.py): any schedule gives the same sums.

Whole numbers, so that any order of the reduction gives the same bits.  The loops run in the
interpreter; CUDA's text also on the CPU, in warps of 32.  A software adapter runs WGSL in
browser/test_gpu_features.py.
"""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from helpers import blocks
from helpers.gpu import by_groups, on_cpu, random_shuffles
from helpers.graphs import results, run_steps, steps_of
from helpers.seeds import seeds
from test_gpu_tiles import CONVOLUTIONS, PRODUCTS, made

from lab.subjects import product_kernel
from tilewright.base.dtypes import F32
from tilewright.graph.node import Graph, graph_input, reduce
from tilewright.graph.passes import optimise
from tilewright.hosts.reference import run_kernel
from tilewright.kernel.layout import Packing, Panels
from tilewright.kernel.spec import Kernel
from tilewright.targets.cuda.target import Cuda
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.pointwise.schedule import WorkgroupReductionSchedule
from tilewright.targets.gpu.product.schedule import (
    RegisterGemmSchedule,
    SubgroupGemmSchedule,
    steps_per_load,
)
from tilewright.targets.gpu.product.strategies import SUBGROUP_GEMM, SUBGROUP_GEMM_CANDIDATES
from tilewright.targets.gpu.workgroup_limits import SUBGROUPS_FEATURE, subgroup_feature
from tilewright.targets.protocol import PACKING
from tilewright.targets.schedule import Schedule
from tilewright.targets.wgsl.target import Wgsl
from tilewright.tuning.candidates import build, space_of

WGSL, CUDA = Wgsl(), Cuda()
ROWS = replace(PACKING, floats=Panels(4096))
#: Steps that come with one read, where that is not one.
TOGETHER = {"transposed-b-in-vectors": 4, "strided-sums": 4}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [*PRODUCTS, *CONVOLUTIONS])
@pytest.mark.parametrize("packing", [PACKING, ROWS], ids=["panels", "rows"])
@pytest.mark.parametrize("seed", seeds(3, nightly=20))
def test_any_schedule_gives_the_same_product(name: str, packing: Packing, seed: int) -> None:
    graph, values = made(name)
    (want,) = results(graph, values)
    rng = Random(f"shuffles {name}{seed}")

    def pick(kernel: Kernel) -> Schedule:
        return random_shuffles(rng, steps_per_load(kernel))

    got = by_groups(SUBGROUP_GEMM, graph, values, pick, packing)
    np.testing.assert_array_equal(got, want)


LARGE = [n for n, case in blocks.CASES.items() if case.rows >= 4 and case.columns >= 4]


@pytest.mark.parametrize("name", LARGE)
def test_weights_of_few_bits(name: str) -> None:
    graph, values = blocks.made(name)
    rng = Random(f"shuffles {name}")
    got = by_groups(SUBGROUP_GEMM, graph, values, lambda _: random_shuffles(rng, least=8))
    np.testing.assert_array_equal(got, results(graph, values)[0])


@pytest.mark.seldom(4)
@pytest.mark.parametrize("unrolled", [False, True])
@pytest.mark.parametrize("name", ["weight", "inputs-in-vectors", "transposed-a", "conv"])
def test_warps_of_32(name: str, unrolled: bool) -> None:
    """Two above each other, two side by side."""
    graph, values = made(name)
    (want,) = results(graph, values)
    schedule = SubgroupGemmSchedule(32, 3, 4, 4, 6, 256, 1, unrolled)

    def execute(kernel: Kernel, buffers: list[np.ndarray]) -> None:
        if SUBGROUP_GEMM.suits(kernel):
            on_cpu(CUDA.code(kernel, schedule), buffers)
        else:
            run_kernel(kernel, buffers)

    packed = optimise(graph, PACKING)
    (got,) = run_steps(packed, steps_of(packed), values, execute)
    np.testing.assert_array_equal(got, want)


def product(m: int = 384, k: int = 768, n: int = 768) -> Kernel:
    return product_kernel("mk,kn->mn", (m, k), (k, n), weight=True)


def test_nobody_waits_and_nothing_is_shared() -> None:
    code = WGSL.code(product(), SubgroupGemmSchedule(16, 8, 8, 4, 16, 128, 1, unrolled=True))
    assert "workgroupBarrier" not in code.body
    assert "var<workgroup>" not in code.body


def test_what_lies_beyond_the_ends_is_asked_for() -> None:
    """Of rows, steps and columns, wherever there are some."""
    exact = WGSL.code(product(16, 32, 64), SubgroupGemmSchedule(16, 8, 4, 4, 16, 64)).body
    assert "select(" not in str(exact)
    for sizes, count in (((17, 32, 64), 8), ((16, 33, 64), 8 + 4), ((16, 32, 60), 4)):
        text = str(WGSL.code(product(*sizes), SubgroupGemmSchedule(16, 8, 4, 4, 16, 64)).body)
        assert text.count("select(") == count


def test_devices_without_subgroups_are_offered_none() -> None:
    kernel = product()
    space = space_of(kernel, CLASSES["webgpu-nvidia"])
    tags = {n: s.tag for n, s in enumerate(space.schedules)}
    for features in ([], [SUBGROUPS_FEATURE], [subgroup_feature(32)]):
        assert "shuffle" not in {tags[n] for n in space.trial_on(features)}
    able = space.trial_on([SUBGROUPS_FEATURE, subgroup_feature(32)])
    ours = [space.schedules[n] for n in able if tags[n] == "shuffle"]
    assert len(ours) == SUBGROUP_GEMM_CANDIDATES
    assert {s.features for s in ours} == {frozenset({SUBGROUPS_FEATURE, subgroup_feature(32)})}


def test_what_runs_untuned_is_what_it_was() -> None:
    kernel = product()
    assert isinstance(WGSL.default(kernel, "core"), RegisterGemmSchedule)
    code = WGSL.code(kernel, WGSL.default(kernel, "core"))
    assert [c.schedule.tag for c in WGSL.usable_codes(code, lambda _: True, frozenset())] == [
        "group"
    ]
    winner = WGSL.code(kernel, SubgroupGemmSchedule())
    able = WGSL.usable_codes(winner, lambda _: True, frozenset())
    assert [c.schedule.tag for c in able] == ["shuffle", "group"]


@pytest.mark.parametrize("device", ["webgpu", "webgpu-nvidia", "webgpu-intel-gen-9", "cuda"])
@pytest.mark.parametrize("sizes", [(384, 768, 768), (13, 37, 70), (64, 64, 24)])
def test_they_come_after_the_tiles(device: str, sizes: tuple[int, int, int]) -> None:
    kernel, class_ = product(*sizes), CLASSES[device]
    target = WGSL if device.startswith("webgpu") else CUDA
    found = target.candidates(kernel, class_, 1.0)
    ours = [c for c in found if isinstance(c.schedule, SubgroupGemmSchedule)]
    tiles = [c for c in found if c.schedule.tag == "group"]
    assert found == [*tiles, *ours]
    assert len({c.schedule for c in ours}) == len(ours)
    assert ours or sizes[2] < 64
    for c in ours:
        assert c.cost > max(t.cost for t in tiles)
        assert not target.objection(kernel, c.schedule)
        assert target.schedule(c.schedule.to_json()) == c.schedule
        assert c.schedule.threads <= class_.machine.threads
        assert (c.scratch, c.words > 0) == (0, True)


def test_narrow_products_have_no_lanes_without_columns() -> None:
    kernel = product(64, 64, 24)
    widths = {s.width for s in _ours(kernel, "webgpu")}
    assert widths == {4, 8}
    assert not _ours(product(64, 64, 6), "webgpu")


def _ours(kernel: Kernel, device: str) -> list[SubgroupGemmSchedule]:
    schedules = space_of(kernel, CLASSES[device]).schedules
    return [s for s in schedules if isinstance(s, SubgroupGemmSchedule)]


def test_no_text_assigns_to_what_does_not_change() -> None:
    """Registers and indices of a candidate have names of their own, or WGSL refuses it."""
    kernel = product(37, 61, 130)
    for schedule in _ours(kernel, "webgpu-intel-gen-9"):
        text = build(kernel, schedule, "wgsl", "core").module.decode()
        fixed = set(re.findall(r"\blet (\w+)", text))
        assert not fixed & set(re.findall(r"^\s*(\w+) = ", text, re.MULTILINE)), schedule


def test_on_cuda_only_threads_of_a_warp_have_what_others_have() -> None:
    """Its groups of 128 threads only multiply matrices, whatever kernel asks for them."""
    kernel = product()
    for device in ("cuda", "cuda-sm-90"):
        assert {s.width for s in _ours(kernel, device)} == {32}
        for schedule in _ours(kernel, device):
            assert (
                "__shfl_sync(0xffffffffu, own0, "
                in build(kernel, schedule, "cuda", CLASSES[device].variant).module.decode()
            )
    assert "has no subgroups-128" in CUDA.objection(kernel, SubgroupGemmSchedule(128, y1=512))
    assert "has no subgroups-16" in CUDA.objection(kernel, SubgroupGemmSchedule(16, y1=64))
    row = sums()
    assert "has no subgroups-128" in CUDA.objection(row, WorkgroupReductionSchedule(128, 128))
    widths = {getattr(c.schedule, "width", 0) for c in CUDA.candidates(row, CLASSES["cuda"], 1.0)}
    assert widths == {0, 32}


def sums() -> Kernel:
    x = graph_input("x", (300, 1000), F32)
    graph = Graph("sums", (("x", x),), (("y", reduce("sum", x, [1])),))
    (step,) = steps_of(optimise(graph, PACKING))
    return step.kernel


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (SubgroupGemmSchedule(24, y1=96), "width is one of"),
        (SubgroupGemmSchedule(y0=6, y1=192), "y0 is a multiple of 4"),
        (SubgroupGemmSchedule(x1=12), "x1 one of x0"),
        (SubgroupGemmSchedule(y1=64), "y1 one of y0 * width"),
        (SubgroupGemmSchedule(r0=6), "r0 divides width"),
        (SubgroupGemmSchedule(4, y1=16, r0=8), "r0 divides width"),
        (SubgroupGemmSchedule(x0=16, x1=16, y0=16, y1=512), "at most 128 sums"),
        (SubgroupGemmSchedule(64, 16, 8, 4, 16, 512, unrolled=True), "at most 1024 vectors"),
        (SubgroupGemmSchedule(x1=128), "at most 256 threads"),
        (SubgroupGemmSchedule(unrolled=3), "unrolled is one of"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_schedule(schedule: SubgroupGemmSchedule, said: str) -> None:
    assert said in WGSL.objection(product(), schedule)


@pytest.mark.parametrize("name", TOGETHER)
def test_steps_that_come_together_are_used_together(name: str) -> None:
    (step,) = steps_of(optimise(made(name)[0], PACKING))
    assert steps_per_load(step.kernel) == TOGETHER[name]
    schedule = SubgroupGemmSchedule(4, 4, 4, 2, 4, 16)
    assert "multiple of the 4 steps" in schedule.objection(step.kernel)
    assert not replace(schedule, r0=4).objection(step.kernel)


def test_other_kernels_have_none() -> None:
    few = product_kernel("mk,kn->mn", (2, 512), (512, 96), weight=True)
    assert "'shuffle'" in WGSL.objection(few, SubgroupGemmSchedule(4, y1=16))
    assert not _ours(few, "webgpu")
