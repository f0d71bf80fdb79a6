"""The strategies of targets that run one thread with vectors, one row per form of kernel.

Input: a kernel, and a schedule or a machine.  Output: its default schedule, the rules of its space,
its loops.  Callers use only this module; kernel/form.py finds the form of a kernel.

The space has every schedule worth trying on a device, in order, each once, the default first; equal
input gives equal candidates in every process.  It has two parts.  "lite" are the tiles of
targets/lite_space.py, for matrix products.  "extended" are ours: the default with one or two
changes, and the same for other register tiles.  docs/spaces.md explains which settings vary and
why.  A gold question (control sample) is a schedule outside of the space, many times slower than
the default on any device, also on those that were never tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

from tilewright.base.errors import CompilerBug, ensure, required
from tilewright.kernel import form
from tilewright.kernel.form import Contraction, form_as
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.protocol import Candidate, Mark, fixed
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd import (
    attention,
    attention_loops,
    contraction,
    depthwise_int8,
    elementwise,
    inner_product,
    integer_gemm,
    product_space,
    quantised_gemm,
    rowwise,
    top_k,
    transpose,
    windows,
)
from tilewright.targets.simd.contraction import ContractionSchedule
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.space_rules import Rules
from tilewright.targets.strategy import DefaultStrategy, Search, kinds_by_tag, schedule_of

#: The most bytes of scratch memory of a worker, for all schedules but the default.
SCRATCH = 256 * 1024


def candidates(rules: Rules[S], search: Search) -> list[Candidate]:
    """The default, then all others once each: lite candidates in the paper's order, then ours."""
    found: dict[Schedule, Candidate] = {}

    def take(schedules: Iterable[S], mark: Mark) -> None:
        for schedule in schedules:
            normal = rules.normal(schedule)
            scratch = rules.scratch(normal)
            if normal in found or (mark != "default" and scratch > SCRATCH):
                continue
            cost, words = rules.cost(normal), rules.words(normal)
            kept = schedule if mark == "default" else normal
            found[normal] = Candidate(kept, mark, cost, scratch, words, rules.family(normal))

    take([rules.default], "default")
    if fixed(rules.kernel):
        return list(found.values())
    lite = rules.lite(search.core, search.relaxation)
    take((c for s in lite for c in search.settings(s)), "lite")
    take((s for s in rules.extended() if rules.balanced(s)), "extended")
    return list(found.values())


S = TypeVar("S", bound=Schedule)


@dataclass(frozen=True)
class VectorStrategy(Generic[S]):
    """One row of the table: a `DefaultStrategy` (targets/strategy.py) as functions.

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
        self, kernel: Kernel, default: Schedule, machine: Machine, search: Search, /
    ) -> Sequence[Candidate]:
        if not isinstance(default, self.kinds):
            raise CompilerBug(f"it does not start with {default}", kernel=kernel.name)
        return candidates(self.rules(kernel, default, machine), search)


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
CONTRACTION = VectorStrategy[product_space.Either](
    (contraction.ContractionSchedule, inner_product.InnerProductSchedule),
    product_space.lower,
    contraction.default,
    product_space.rules,
)
BLOCKS = VectorStrategy(
    (quantised_gemm.QuantisedSchedule,),
    quantised_gemm.lower,
    quantised_gemm.default,
    quantised_gemm.rules,
)
ATTENTION = VectorStrategy(
    (attention.AttentionSchedule,), attention_loops.lower, attention.default, attention.rules
)
ORDER = VectorStrategy((top_k.TopKSchedule,), top_k.lower, top_k.default, top_k.rules)

TABLE: Mapping[type[form.Form], VectorStrategy[Any]] = {
    form.Contraction: CONTRACTION,
    form.QuantisedContraction: BLOCKS,
    form.IntegerContraction: BYTES,
    form.Attention: ATTENTION,
    form.Windows: WINDOWS,
    form.IntegerWindows: TAPS,
    form.TopK: ORDER,
    form.RowWise: ROWS,
    form.Reduction: REDUCE,
    form.Transposition: TRANSPOSE,
    form.Map: MAP,
}

#: Every type of schedule by the name of its form.
SCHEDULES = kinds_by_tag(kind for row in TABLE.values() for kind in row.kinds)


def strategy_of(kernel: Kernel) -> DefaultStrategy[Any, Machine]:
    """The strategy of a kernel: the row of its form, or the row that this one refers to."""
    strategy = TABLE[type(form.classify(kernel))]
    while not strategy.suits(kernel):
        strategy = required(strategy.otherwise, "no strategy suits it", kernel=kernel.name)
    return strategy


def default_schedule(kernel: Kernel, machine: Machine) -> Schedule:
    """The schedule that a kernel starts with; see `DefaultStrategy.default`."""
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
        return f"its tag is {' or '.join(kind.tag for kind in known)}"
    return schedule.objection(kernel)


def schedule_from_json(data: Mapping[str, object]) -> Schedule:
    """The schedule whose `to_json` gave `data`; see `schedule_of`."""
    return schedule_of(data, SCHEDULES)


#: The least steps of a sum for which products, not the epilogue, take most of the time.
DEEP = 64
#: The least rows and columns for which operands are reused often enough to hide memory latency.
MANY = 16


def slow_schedule(kernel: Kernel, default: Schedule) -> Schedule | None:
    """A schedule with one number per instruction and a single row of four: scalar code, few
    registers.

    A vector instruction multiplies four numbers, and a register tile of 6x8 loads 14 numbers for 48
    products; this schedule loads five for four.  So it needs about ten times as many instructions
    of every kind on any processor.  No two candidates of a space differ as much.

    None where the order is not certain before a measurement: where the device, or loading the
    weights of a product with few rows or columns, can hide the cost of a schedule.
    """
    if not isinstance(default, ContractionSchedule) or default.lanes == 1:
        return None
    roles = form_as(kernel, Contraction).operands
    if roles.steps < DEEP or min(roles.m.extent, roles.n.extent) < MANY:
        return None
    return replace(default, x0=1, y0=4, r0=1, r1=0, lanes=1, stage=False)
