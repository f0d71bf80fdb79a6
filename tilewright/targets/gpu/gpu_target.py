"""The common part of all GPU targets: strategies, defaults and search spaces.

Input: kernels. Output: schedules, loops and candidates. A target adds its source text and the
encoding of its plans (targets/wgsl/target.py, targets/cuda/target.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain

from tilewright.kernel.form import TopK, classify
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.device_class import DeviceClass
from tilewright.targets.gpu.attention import strategies as attention
from tilewright.targets.gpu.matrix import strategies as matrix
from tilewright.targets.gpu.pointwise import strategies as pointwise
from tilewright.targets.gpu.product import strategies as product
from tilewright.targets.gpu.workgroup_strategy import AnyDefaultStrategy, AnyStrategy, limits_of
from tilewright.targets.protocol import Candidate, Code, Facts
from tilewright.targets.scalar_lowering import Plain, PlainTarget
from tilewright.targets.schedule import Schedule
from tilewright.targets.strategy import Search, kinds_by_tag, schedule_of

#: Threads of a group, where a kernel does not need another number.
GROUP_THREADS = 64

#: Strategies that use groups of threads.  A kernel gets the default of the first one that suits it.
STRATEGIES: tuple[AnyDefaultStrategy, ...] = (
    product.REGISTER_GEMM,
    product.FEW_ROWS,
    attention.ATTENTION_SOME_ROWS,
    product.INTEGER_GEMM,
    pointwise.WORKGROUP_REDUCTION,
    pointwise.VECTOR_MAP,
)
#: Strategies that only add candidates, in this order.
ALTERNATIVES: tuple[AnyStrategy, ...] = (
    matrix.MATRIX_GEMM,
    product.F16_GEMM,
    product.FEW_ROWS_INT8,
    attention.ATTENTION_MANY_ROWS,
    attention.ATTENTION_ONE_ROW,
    product.SUBGROUP_GEMM,
)


def workgroup_threads(fn: TileFn) -> int:
    """Threads of a group: those of one tile, or one for each of several tiles."""
    return fn.threads if fn.thread else GROUP_THREADS


class WorkgroupTarget(PlainTarget):
    """A target that computes kernels by groups of threads where that is faster.

    strategies:   a kernel gets the default of the first one that suits it
    alternatives: strategies that add candidates
    others:       strategies that only an explicit schedule selects; they add no candidates
    """

    strategies: tuple[AnyDefaultStrategy, ...] = STRATEGIES
    alternatives: tuple[AnyStrategy, ...] = ALTERNATIVES
    others: tuple[AnyStrategy, ...] = (pointwise.SINGLE,)
    facts: Facts

    @cached_property
    def table(self) -> Mapping[type[Schedule], AnyStrategy]:
        """The strategy of each type of schedule."""
        every = (*self.strategies, *self.alternatives, *self.others)
        return {kind: strategy for strategy in every for kind in strategy.kinds}

    def strategy_of(self, kernel: Kernel) -> AnyDefaultStrategy | None:
        """The strategy for a kernel; None if one thread computes a tile."""
        return next((s for s in self.strategies if s.suits(kernel)), None)

    def default(self, kernel: Kernel, variant: str) -> Schedule:
        strategy = self.strategy_of(kernel)
        return Plain() if strategy is None else strategy.default(kernel)

    def defaults_with_features(self, kernel: Kernel) -> tuple[Schedule, ...]:
        """Schedules to use instead of the default on devices with their features, best first."""
        return tuple(
            s for strategy in self.alternatives for s in strategy.defaults_with_features(kernel)
        )

    def usable_codes(
        self, code: Code, fits: Callable[[TileFn], bool], everywhere: frozenset[str]
    ) -> tuple[Code, ...]:
        """Codes for a kernel's step, best first.  The last needs only features that are
        `everywhere`.

        fits: true if the step's buffers have the alignment that the loops need
        """
        default = self.default(code.kernel, self.variant.name)
        further = self.defaults_with_features(code.kernel) if code.schedule == default else ()
        others = dict.fromkeys((default, Plain()))
        others.pop(code.schedule, None)
        made = (self.code(code.kernel, s) for s in others)
        found = []
        for usable in chain((self.code(code.kernel, s) for s in further), [code], made):
            if fits(usable.loops):
                found.append(usable)
                if usable.needs <= everywhere:
                    break
        return tuple(found)

    def schedule(self, data: Mapping[str, object]) -> Schedule:
        return schedule_of(data, kinds_by_tag(self.table)) if data else Plain()

    def objection(self, kernel: Kernel, schedule: Schedule) -> str:
        strategy = self.table.get(type(schedule))
        if strategy is None:
            return super().objection(kernel, schedule)
        if not strategy.suits(kernel):
            return f"a schedule with the tag {schedule.tag!r} cannot compute {kernel.name}"
        if getattr(schedule, "threads", 0) == 1:
            return "a group has at least two threads, which wait for each other"
        if objection := strategy.objection_to_any(kernel, schedule):
            return objection
        missing = sorted(self.lacking(schedule.features))
        return f"the target {self.name} has no {', '.join(missing)}" if missing else ""

    def lacking(self, needs: frozenset[str]) -> frozenset[str]:
        """The features of `needs` that no device of the target offers to such a kernel."""
        return needs - self.facts.features

    def lower(self, kernel: Kernel, schedule: Schedule) -> TileFn:
        strategy = self.table.get(type(schedule))
        if strategy is None or isinstance(classify(kernel), TopK):
            return pointwise.lower_otherwise(kernel)
        return strategy.lower_any(kernel, schedule)

    def candidates(
        self, kernel: Kernel, device: DeviceClass, relaxation: float
    ) -> Sequence[Candidate]:
        """The candidates of kernels that groups compute; any other kernel has only its default."""
        first, default = self.strategy_of(kernel), self.default(kernel, device.variant)
        if first is None:
            return [Candidate(default, "default", 0.0, 0, 0.0)]
        search = Search(device.core, relaxation)
        asked = (first, *(s for s in self.alternatives if s.suits(kernel)))
        group = limits_of(device)
        every = (c for s in asked for c in s.candidates(kernel, default, group, search))
        initial, *others = (c for c in every if not self.lacking(c.schedule.features))
        return [replace(initial, mark="default"), *others]
