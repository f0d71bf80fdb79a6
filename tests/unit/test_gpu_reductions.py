"""Long reductions by other numbers of threads (gpu/pointwise/reductions.py): space, text.

What they compute is checked in test_kernel_threads.py, on a device in browser/test_gpu_features.py.
"""

from __future__ import annotations

import pytest
from helpers.graphs import steps_of

from tilewright.base.dtypes import F32
from tilewright.graph.node import Graph, graph_input, reduce
from tilewright.graph.passes import optimise
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.pointwise.schedule import WorkgroupReductionSchedule
from tilewright.targets.protocol import PACKING
from tilewright.targets.scalar_lowering import Plain
from tilewright.targets.wgsl.target import Wgsl
from tilewright.tuning.candidates import space_of

WGSL = Wgsl()


def sums(columns: int, rows: int = 300) -> Kernel:
    x = graph_input("x", (rows, columns), F32)
    graph = Graph("sums", (("x", x),), (("y", reduce("sum", x, [1])),))
    (step,) = steps_of(optimise(graph, PACKING))
    return step.kernel


@pytest.mark.parametrize(("columns", "rows"), [(70, 300), (1000, 300), (1000, 10)])
def test_the_space_starts_with_what_the_target_does(columns: int, rows: int) -> None:
    kernel = sums(columns, rows)
    first, *others = space_of(kernel, CLASSES["webgpu-nvidia"]).schedules
    assert first == Plain() == WGSL.default(kernel, "core")
    assert others
    usual = WGSL.code(kernel, first).body
    for schedule in others:
        assert isinstance(schedule, WorkgroupReductionSchedule)
        assert not WGSL.objection(kernel, schedule)
        assert WGSL.schedule(schedule.to_json()) == schedule
        assert schedule.width or WGSL.code(kernel, schedule).body != usual


@pytest.mark.parametrize(
    ("columns", "rows", "threads"),
    [
        (16, 300, 1),
        (48, 50_000, 32),
        (300, 300, 64),
        (384, 300, 128),
        (512, 10, 256),
        (4096, 9, 256),
    ],
)
def test_neighbours_share_a_line_however_many_rows_there_are(
    columns: int, rows: int, threads: int
) -> None:
    assert WGSL.lower(sums(columns, rows), Plain()).threads == threads


@pytest.mark.parametrize(("rows", "threads"), [(300, 64), (3000, 1)])
def test_of_many_columns_each_is_one_threads(rows: int, threads: int) -> None:
    """Threads that compute neighbouring columns read side by side; few columns fill no device."""
    x = graph_input("x", (8, 200, rows), F32)
    (step,) = steps_of(optimise(Graph("s", (("x", x),), (("y", reduce("sum", x, [1])),)), PACKING))
    assert WGSL.lower(step.kernel, Plain()).threads == threads


def test_a_sum_of_one_element() -> None:
    assert WGSL.lower(sums(1), Plain()).threads == 1


def test_subgroups_of_the_class_come_first() -> None:
    for device, width in (("webgpu-nvidia", 32), ("webgpu-intel-gen-9", 16)):
        best = space_of(sums(1000), CLASSES[device]).schedules[1]
        assert isinstance(best, WorkgroupReductionSchedule)
        assert best.width == width


def test_a_kernel_needs_its_subgroups_and_waits_for_no_other() -> None:
    kernel, schedule = sums(1000), WorkgroupReductionSchedule(64, 16)
    code = WGSL.code(kernel, schedule)
    assert code.needs == schedule.features == {"subgroups", "subgroups-16"}
    alone = WGSL.code(kernel, WorkgroupReductionSchedule(32, 32)).body
    assert "var<workgroup>" not in alone
    assert "workgroupBarrier" not in alone


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (WorkgroupReductionSchedule(48), "a power of two"),
        (WorkgroupReductionSchedule(512), "a power of two up to 256"),
        (WorkgroupReductionSchedule(64, 24), "width is 0, or one of"),
        (WorkgroupReductionSchedule(32, 64), "up to threads"),
        (WorkgroupReductionSchedule(128), "too short for 128 threads"),
    ],
)
def test_objections(schedule: WorkgroupReductionSchedule, words: str) -> None:
    assert words in WGSL.objection(sums(100), schedule)
