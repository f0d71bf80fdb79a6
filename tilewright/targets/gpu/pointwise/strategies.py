"""The strategies of elementwise kernels and long reductions.

Input: a kernel, the figures of one core, the limits of a workgroup. Output: schedules with expected
costs. `lower_otherwise` computes kernels that no strategy suits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import log2

from tilewright.base.errors import of_kind, required
from tilewright.kernel.form import Ordering, classify
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets import scalar_lowering
from tilewright.targets.gpu.pointwise import f16_copy, maps, top_k
from tilewright.targets.gpu.pointwise.reductions import lower_rows
from tilewright.targets.gpu.pointwise.schedule import (
    ReductionSchedule,
    SingleSchedule,
    VectorMapSchedule,
)
from tilewright.targets.gpu.strategy import UNUSUAL, GroupAlternative, GroupStrategy
from tilewright.targets.gpu.workgroup_limits import SIZES, WORD, Group
from tilewright.targets.lite_space import Core
from tilewright.targets.scalar_lowering import Plain
from tilewright.targets.schedule import Schedule

#: Expected speed of vector maps over maps with a thread for each element.
PACE = 2.0

#: Numbers of threads that are tried, without subgroups and with subgroups of the class's size.
THREADS = (32, 64, 128, 256)

LEAST_THREADS = min(THREADS)


class Maps(GroupStrategy[Schedule]):
    """Maps with four results per thread, as vectors."""

    kinds = (VectorMapSchedule,)

    def suits(self, kernel: Kernel) -> bool:
        return maps.suits(kernel)

    def default(self, kernel: Kernel) -> Schedule:
        return VectorMapSchedule()

    def space(self, kernel: Kernel, core: Core, group: Group) -> Sequence[tuple[Schedule, float]]:
        """Vectors, and a thread for each element."""
        return (self.default(kernel), 1.0), (Plain(), PACE)

    def traffic(self, kernel: Kernel, schedule: Schedule) -> tuple[int, float]:
        """Scratch bytes, none, and words moved, which are the same for both schedules."""
        return 0, 0.0

    def lower(self, kernel: Kernel, schedule: Schedule) -> TileFn:
        own = of_kind(schedule, VectorMapSchedule, "no schedule of a map", kernel=kernel.name)
        return maps.lower(kernel, own)


class Reductions(GroupStrategy[Schedule]):
    """Long reductions by various numbers of threads; by default `lower_rows` chooses the number."""

    kinds = (ReductionSchedule,)

    def suits(self, kernel: Kernel) -> bool:
        """True for kernels of fixed size whose reductions several threads can share."""
        return not kernel.extents and lower_rows(kernel, LEAST_THREADS) is not None

    def default(self, kernel: Kernel) -> Schedule:
        """The schedule that leaves the number of threads to `lower_rows`."""
        return Plain()

    def objection(self, kernel: Kernel, schedule: Schedule) -> str:
        found = schedule.objection(kernel)
        if not found and lower_rows(kernel, *_threads(schedule)) is None:
            return f"the reductions are too short for {_threads(schedule)[0]} threads"
        return found

    def space(self, kernel: Kernel, core: Core, group: Group) -> tuple[tuple[Schedule, float], ...]:
        """The default, then other numbers of threads, without and with subgroups.  The expected
        cost is lower with subgroups and near the default number of threads."""
        same = lower_rows(kernel)
        usual = ReductionSchedule() if same is None else ReductionSchedule(same.threads)
        every_one = (
            ReductionSchedule(threads, width)
            for threads, width in product(THREADS, (0, *SIZES))
            if threads <= group.threads and (same is None or (threads, width) != (usual.threads, 0))
        )

        def cost(s: ReductionSchedule) -> float:
            far = abs(log2(s.threads / usual.threads))
            return float(UNUSUAL ** (far + (0 if s.width else 1) + (s.width != core.warp_width)))

        found = sorted(
            ((s, cost(s)) for s in every_one if not self.objection(kernel, s)),
            key=lambda pair: (pair[1], str(pair[0])),
        )
        return (self.default(kernel), 1.0), *found

    def traffic(self, kernel: Kernel, schedule: Schedule) -> tuple[int, float]:
        """Bytes of shared memory, and words moved, which are the same for all schedules."""
        if not isinstance(schedule, ReductionSchedule):
            return 0, 0.0
        return WORD * len(kernel.stages) * schedule.threads // max(1, schedule.width), 0.0

    def lower(self, kernel: Kernel, schedule: Schedule) -> TileFn:
        fn = lower_rows(kernel, *_threads(schedule))
        return required(fn, "it has no long reductions", kernel=kernel.name)


def _threads(schedule: Schedule) -> tuple[int, int]:
    """Threads of a tile, and threads of a subgroup."""
    own = of_kind(schedule, ReductionSchedule, "no schedule of a reduction")
    return own.threads, own.width


class Single(GroupAlternative[SingleSchedule]):
    """A thread for each tile of any kernel, for comparison.

    It has no candidates, since it leaves most of a GPU idle.  The loops are those of
    targets/scalar_lowering.py.
    """

    kinds = (SingleSchedule,)

    def suits(self, kernel: Kernel) -> bool:
        return True

    def space(
        self, kernel: Kernel, core: Core, group: Group
    ) -> Sequence[tuple[SingleSchedule, float]]:
        return ()

    def traffic(self, kernel: Kernel, schedule: SingleSchedule) -> tuple[int, float]:
        return 0, 0.0

    def lower(self, kernel: Kernel, schedule: SingleSchedule) -> TileFn:
        return f16_copy.lower(kernel) or scalar_lowering.lower(kernel)


MAPS, REDUCTIONS, SINGLE = Maps(), Reductions(), Single()


def lower_otherwise(kernel: Kernel) -> TileFn:
    """The loop nest of one tile of a kernel that no strategy suits."""
    if isinstance(classify(kernel), Ordering):
        return top_k.lower(kernel)
    return f16_copy.lower(kernel) or lower_rows(kernel) or scalar_lowering.lower(kernel)
