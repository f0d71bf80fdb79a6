"""The strategies of targets that run one thread with vectors, one row per form of kernel.

Input: a kernel, and a schedule or a machine. Output: its default schedule, the rules of its space,
its loops. Callers use only this module; kernel/form.py finds the form of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from tilewright.base.errors import CompilerBug, ensure, required
from tilewright.kernel import form
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.protocol import Candidate
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd import (
    attention,
    attention_loops,
    contraction,
    depthwise_int8,
    elementwise,
    inner_product,
    integer_gemm,
    products,
    quantised,
    rowwise,
    top_k,
    transpose,
    windows,
)
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.search_rules import Rules
from tilewright.targets.simd.space import candidates
from tilewright.targets.strategy import Search, Strategy, kinds_by_form, schedule_of

S = TypeVar("S", bound=Schedule)


@dataclass(frozen=True)
class VectorStrategy(Generic[S]):
    """One row of the table: a `Strategy` (targets/strategy.py) as functions.

    kinds:     the types of its schedules
    lower:     makes the loops of a schedule
    default:   the schedule that tuning starts from, computed without measurements
    rules:     the space around that schedule
    suits:     true if vectors can hold what a kernel of the form computes
    otherwise: the row to use if they cannot
    """

    kinds: tuple[type[S], ...]
    lower: Callable[[Kernel, S], TileFn]
    default: Callable[[Kernel, Machine], S]
    rules: Callable[[Kernel, S, Machine], Rules[S]]
    suits: Callable[[Kernel], bool] = lambda kernel: True
    otherwise: VectorStrategy[Any] | None = None

    def candidates(
        self, kernel: Kernel, usual: Schedule, machine: Machine, search: Search, /
    ) -> Sequence[Candidate]:
        if not isinstance(usual, self.kinds):
            raise CompilerBug(f"it does not start with {usual}", kernel=kernel.name)
        return candidates(self.rules(kernel, usual, machine), search)


#: Schedules of maps and of reductions.
Span: TypeAlias = elementwise.MapSchedule | elementwise.ReduceSchedule

ROWS = VectorStrategy((rowwise.RowwiseSchedule,), rowwise.lower, rowwise.default, rowwise.rules)
REDUCE = VectorStrategy[Span](
    (elementwise.ReduceSchedule,),
    elementwise.lower,
    elementwise.default_reduce,
    elementwise.rules,
    elementwise.vectors_fit,
    otherwise=ROWS,
)
MAP = VectorStrategy[Span](
    (elementwise.MapSchedule,), elementwise.lower, elementwise.default_map, elementwise.rules
)
TRANSPOSE = VectorStrategy(
    (transpose.TransposeSchedule,),
    transpose.lower,
    transpose.default,
    transpose.rules,
    transpose.suits,
    otherwise=MAP,
)
WINDOWS = VectorStrategy(
    (windows.WindowsSchedule,),
    windows.lower,
    windows.default,
    windows.rules,
    windows.suits,
    otherwise=REDUCE,
)
TAPS = VectorStrategy(
    (depthwise_int8.DepthwiseInt8Schedule,),
    depthwise_int8.lower,
    depthwise_int8.default,
    depthwise_int8.rules,
    depthwise_int8.suits,
    otherwise=WINDOWS,
)
BYTES = VectorStrategy(
    (integer_gemm.IntegerSchedule,),
    integer_gemm.lower,
    integer_gemm.default,
    integer_gemm.rules,
    integer_gemm.suits,
    otherwise=REDUCE,
)
CONTRACTION = VectorStrategy[products.Either](
    (contraction.ContractionSchedule, inner_product.InnerProductSchedule),
    products.lower,
    contraction.default,
    products.rules,
)
BLOCKS = VectorStrategy(
    (quantised.BlocksSchedule,), quantised.lower, quantised.default, quantised.rules
)
ATTENTION = VectorStrategy(
    (attention.AttentionSchedule,), attention_loops.lower, attention.default, attention.rules
)
ORDER = VectorStrategy((top_k.TopKSchedule,), top_k.lower, top_k.default, top_k.rules)

TABLE: Mapping[type[form.Form], VectorStrategy[Any]] = {
    form.Contraction: CONTRACTION,
    form.BlockContraction: BLOCKS,
    form.ByteContraction: BYTES,
    form.Attention: ATTENTION,
    form.Windows: WINDOWS,
    form.ByteWindows: TAPS,
    form.Ordering: ORDER,
    form.RowWise: ROWS,
    form.Reduction: REDUCE,
    form.Transposition: TRANSPOSE,
    form.Map: MAP,
}

#: Every type of schedule by the name of its form.
SCHEDULES = kinds_by_form(TABLE.values())


def strategy_of(kernel: Kernel) -> Strategy[Any, Machine]:
    """The strategy of a kernel: the row of its form, or the row that this one refers to."""
    strategy = TABLE[type(form.classify(kernel))]
    while not strategy.suits(kernel):
        strategy = required(strategy.otherwise, "no strategy suits it", kernel=kernel.name)
    return strategy


def default_schedule(kernel: Kernel, machine: Machine) -> Schedule:
    """The schedule that a kernel starts with; see `Strategy.default`."""
    schedule: Schedule = strategy_of(kernel).default(kernel, machine)
    return schedule


def lower(kernel: Kernel, schedule: Schedule) -> TileFn:
    """The loop nest of one tile of `kernel`, for a schedule without an objection."""
    strategy = strategy_of(kernel)
    known = type(schedule) in strategy.kinds
    ensure(known, "it cannot run so", kernel=kernel.name, schedule=schedule)
    return strategy.lower(kernel, schedule)


def objection(kernel: Kernel, schedule: Schedule) -> str:
    """What is wrong with a schedule from outside; "" if code can be made from it."""
    known = strategy_of(kernel).kinds
    if type(schedule) not in known:
        return f"its form is {' or '.join(kind.form for kind in known)}"
    return schedule.objection(kernel)


def schedule_from_json(data: Mapping[str, object]) -> Schedule:
    """The schedule whose `to_json` gave `data`; see `schedule_of`."""
    return schedule_of(data, SCHEDULES)
