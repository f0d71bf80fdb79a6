"""The one table of this kind of target: how kernels of each form run on one thread with vectors.

Input: a kernel, and a schedule or a machine.  Output: its first schedule, the rules of its space,
its loops.  Whoever wants any of these asks here; the forms themselves are found in kernel/form.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from tilewright.base.errors import InputError
from tilewright.kernel import form
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd import (
    attention,
    attention_loops,
    bytes,
    contraction,
    depth,
    elementwise,
    order,
    products,
    quantised,
    rows,
    taps,
    transpose,
    windows,
)
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.rules import Rules


@dataclass(frozen=True)
class Way:
    """One row of the table.

    loops:     the types of schedules, and what makes loops of each
    default:   a good first choice, from arithmetic alone; tuning starts here
    rules:     what the space around that choice varies
    suits:     whether vectors can hold what a kernel of the form computes
    otherwise: how it runs if they cannot
    """

    loops: Mapping[type[Schedule], Callable[[Kernel, Any], TileFn]]
    default: Callable[[Kernel, Machine], Schedule]
    rules: Callable[[Kernel, Any, Machine], Rules[Any]]
    suits: Callable[[Kernel], bool] = lambda kernel: True
    otherwise: Way | None = None


ROWS = Way({rows.RowsSchedule: rows.lower}, rows.default, rows.rules)
REDUCE = Way(
    {elementwise.ReduceSchedule: elementwise.lower},
    elementwise.default_reduce,
    elementwise.rules,
    elementwise.vectors_fit,
    otherwise=ROWS,
)
MAP = Way({elementwise.MapSchedule: elementwise.lower}, elementwise.default_map, elementwise.rules)
TRANSPOSE = Way(
    {transpose.TransposeSchedule: transpose.lower},
    transpose.default,
    transpose.rules,
    transpose.suits,
    otherwise=MAP,
)
WINDOWS = Way(
    {windows.WindowsSchedule: windows.lower},
    windows.default,
    windows.rules,
    windows.suits,
    otherwise=REDUCE,
)
TAPS = Way({taps.TapsSchedule: taps.lower}, taps.default, taps.rules, taps.suits, otherwise=WINDOWS)
BYTES = Way(
    {bytes.BytesSchedule: bytes.lower}, bytes.default, bytes.rules, bytes.suits, otherwise=REDUCE
)
CONTRACTION = Way(
    {contraction.ContractionSchedule: contraction.lower, depth.DepthSchedule: depth.lower},
    contraction.default,
    products.rules,
)
BLOCKS = Way({quantised.BlocksSchedule: quantised.lower}, quantised.default, quantised.rules)
ATTENTION = Way(
    {attention.AttentionSchedule: attention_loops.lower}, attention.default, attention.rules
)
ORDER = Way({order.OrderSchedule: order.lower}, order.default, order.rules)

TABLE: Mapping[type[form.Form], Way] = {
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
SCHEDULES: Mapping[str, type[Schedule]] = {
    kind.form: kind for way in TABLE.values() for kind in way.loops
}


def way_of(kernel: Kernel) -> Way:
    """How a kernel runs: the row of its form, or where that leads."""
    way = TABLE[type(form.classify(kernel))]
    while not way.suits(kernel):
        assert way.otherwise is not None, f"{kernel.name}: no way to run it"
        way = way.otherwise
    return way


def default_schedule(kernel: Kernel, machine: Machine) -> Schedule:
    """A good first choice; see `Way.default`."""
    return way_of(kernel).default(kernel, machine)


def lower(kernel: Kernel, schedule: Schedule) -> TileFn:
    """The loop nest of one tile of `kernel` under a schedule that meets no objection."""
    loops = way_of(kernel).loops
    assert type(schedule) in loops, f"{kernel.name} cannot run as {schedule}"
    return loops[type(schedule)](kernel, schedule)


def objection(kernel: Kernel, schedule: Schedule) -> str:
    """What is wrong with a schedule from outside; "" if code can be made from it."""
    known = way_of(kernel).loops
    if type(schedule) not in known:
        return f"its form is {' or '.join(kind.form for kind in known)}"
    return schedule.objection(kernel)


def schedule_from_json(data: Mapping[str, Any]) -> Schedule:
    """The schedule of which `to_json` gave this data; `InputError` if it gives no such data.

    Fields that are left out have their defaults; `objection` says whether the values will do.
    """
    kind = SCHEDULES.get(str(data.get("form")))
    if kind is None:
        raise InputError(
            f"No schedule has the form {data.get('form')!r}",
            hint=f"It is one of {', '.join(sorted(SCHEDULES))}",
            schedule=dict(data),
        )
    known = {field.name for field in fields(kind)}
    values = {name: value for name, value in data.items() if name != "form"}
    unknown = sorted(values.keys() - known)
    if unknown:
        raise InputError(
            f"A schedule of the form {kind.form} has no {', '.join(unknown)}",
            hint=f"It has {', '.join(sorted(known))}",
            schedule=dict(data),
        )
    return kind(**values)
