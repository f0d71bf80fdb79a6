"""The strategies of elementwise kernels and long reductions.

Input: a kernel, the figures of one core, the limits of a workgroup. Output: schedules with expected
costs. `lower_otherwise` computes kernels that no strategy suits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import log2

from tilewright.base.abi import WORD_BYTES
from tilewright.base.errors import required
from tilewright.kernel.form import TopK, classify
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets import scalar_lowering
from tilewright.targets.gpu.pointwise import f16_copy, maps, top_k
from tilewright.targets.gpu.pointwise.reductions import lower_row_reductions
from tilewright.targets.gpu.pointwise.schedule import (
    SingleSchedule,
    VectorMapSchedule,
    WorkgroupReductionSchedule,
)
from tilewright.targets.gpu.workgroup_limits import SUBGROUP_SIZES, WorkgroupLimits
from tilewright.targets.gpu.workgroup_strategy import (
    UNUSUAL_COST,
    DefaultWorkgroupStrategy,
    WorkgroupStrategy,
)
from tilewright.targets.lite_space import Core
from tilewright.targets.scalar_lowering import Plain

#: Expected speed of vector maps over maps with a thread for each element.
VECTOR_MAP_SPEED = 2.0

#: Numbers of threads that are tried, without subgroups and with subgroups of the class's size.
THREADS = (32, 64, 128, 256)

LEAST_THREADS = min(THREADS)


class VectorMap(DefaultWorkgroupStrategy[VectorMapSchedule]):
    """Maps with four results per thread, as vectors."""

    kind = VectorMapSchedule

    def suits(self, kernel: Kernel) -> bool:
        return maps.suits(kernel)

    def default(self, kernel: Kernel) -> VectorMapSchedule:
        return VectorMapSchedule()

    def space(
        self, kernel: Kernel, core: Core, group: WorkgroupLimits
    ) -> Sequence[tuple[VectorMapSchedule | Plain, float]]:
        """Vectors, and a thread for each element."""
        return (self.default(kernel), 1.0), (Plain(), VECTOR_MAP_SPEED)

    def traffic(self, kernel: Kernel, schedule: VectorMapSchedule) -> tuple[int, float]:
        """Scratch bytes, none, and words moved, which are the same for both schedules."""
        return 0, 0.0

    def lower(self, kernel: Kernel, schedule: VectorMapSchedule) -> TileFn:
        return maps.lower(kernel, schedule)


class WorkgroupReduction(DefaultWorkgroupStrategy[WorkgroupReductionSchedule]):
    """Long reductions by various numbers of threads; by default `lower_row_reductions` chooses the
    number."""

    kind = WorkgroupReductionSchedule

    def suits(self, kernel: Kernel) -> bool:
        """True for kernels of fixed size whose reductions several threads can share."""
        return not kernel.extents and lower_row_reductions(kernel, LEAST_THREADS) is not None

    def default(self, kernel: Kernel) -> Plain:
        """The schedule that leaves the number of threads to `lower_row_reductions`."""
        return Plain()

    def objection(self, kernel: Kernel, schedule: WorkgroupReductionSchedule) -> str:
        found = schedule.objection(kernel)
        if not found and lower_row_reductions(kernel, schedule.threads, schedule.width) is None:
            return f"the reductions are too short for {schedule.threads} threads"
        return found

    def space(
        self, kernel: Kernel, core: Core, group: WorkgroupLimits
    ) -> tuple[tuple[WorkgroupReductionSchedule | Plain, float], ...]:
        """The default, then other numbers of threads, without and with subgroups.  The expected
        cost is lower with subgroups and near the default number of threads."""
        same = lower_row_reductions(kernel)
        default = (
            WorkgroupReductionSchedule()
            if same is None
            else WorkgroupReductionSchedule(same.threads)
        )
        every_one = (
            WorkgroupReductionSchedule(threads, width)
            for threads, width in product(THREADS, (0, *SUBGROUP_SIZES))
            if threads <= group.threads
            and (same is None or (threads, width) != (default.threads, 0))
        )

        def cost(s: WorkgroupReductionSchedule) -> float:
            far = abs(log2(s.threads / default.threads))
            return float(
                UNUSUAL_COST ** (far + (0 if s.width else 1) + (s.width != core.warp_width))
            )

        found = sorted(
            ((s, cost(s)) for s in every_one if not self.objection(kernel, s)),
            key=lambda pair: (pair[1], str(pair[0])),
        )
        return (self.default(kernel), 1.0), *found

    def traffic(self, kernel: Kernel, schedule: WorkgroupReductionSchedule) -> tuple[int, float]:
        """Bytes of shared memory, and words moved, which are the same for all schedules."""
        return WORD_BYTES * len(kernel.stages) * schedule.threads // max(1, schedule.width), 0.0

    def lower(self, kernel: Kernel, schedule: WorkgroupReductionSchedule) -> TileFn:
        fn = lower_row_reductions(kernel, schedule.threads, schedule.width)
        return required(fn, "it has no long reductions", kernel=kernel.name)


class Single(WorkgroupStrategy[SingleSchedule]):
    """A thread for each tile of any kernel, for comparison.

    It has no candidates, since it leaves most of a GPU idle.  The loops are those of
    targets/scalar_lowering.py.
    """

    kind = SingleSchedule

    def suits(self, kernel: Kernel) -> bool:
        return True

    def space(
        self, kernel: Kernel, core: Core, group: WorkgroupLimits
    ) -> Sequence[tuple[SingleSchedule, float]]:
        return ()

    def traffic(self, kernel: Kernel, schedule: SingleSchedule) -> tuple[int, float]:
        return 0, 0.0

    def lower(self, kernel: Kernel, schedule: SingleSchedule) -> TileFn:
        return f16_copy.lower(kernel) or scalar_lowering.lower(kernel)


VECTOR_MAP, WORKGROUP_REDUCTION, SINGLE = VectorMap(), WorkgroupReduction(), Single()


def lower_otherwise(kernel: Kernel) -> TileFn:
    """The loop nest of one tile of a kernel that no strategy suits."""
    if isinstance(classify(kernel), TopK):
        return top_k.lower(kernel)
    return f16_copy.lower(kernel) or lower_row_reductions(kernel) or scalar_lowering.lower(kernel)
