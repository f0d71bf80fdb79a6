"""States that grow by blocks of rows: which they are, and the kernels that read and write them.

Input: a program whose states are matrices of rows, all with the same number of rows, and how they
are to grow.  Output: the same, in which rows lie in blocks (`RowBlocks`): a block has the same rows
of all states, so memory for further rows is added behind.  A program some of whose kernels touch
rows that need not exist stays as it is: only attention that ends at its mask may read such states,
and only updates may write them.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.kernel.attention_masks import last_seen
from tilewright.kernel.expr import Expr, Load
from tilewright.kernel.form import Attention, classify
from tilewright.kernel.index import Gathered, Index, Var, index
from tilewright.kernel.layout import RowBlocks
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite, walk
from tilewright.plan import Growth, Plan, Program, State, Step


def with_growing_states(program: Program, growth: Growth) -> Program:
    """The program with states that grow; without change if they cannot."""
    states = program.states
    rooms = {s.shape[-2] if len(s.shape) > 1 else 0 for s in states}
    if len(rooms) != 1 or rooms.pop() <= growth.rows:
        return program
    grown = tuple(replace(s, rows=growth.rows) for s in states)
    made = replace(program, states=grown, growth=growth)
    _, block = made.block_places
    layouts = [RowBlocks(s.rows, s.block, block // s.each) for s in grown]
    kernels: dict[Kernel, int] = {}
    plans: list[Plan] = []
    for plan in program.plans:
        if not all(_fits(program, plan, step) for step in plan.steps):
            return program
        steps = [_step(made, layouts, plan, step, kernels) for step in plan.steps]
        plans.append(replace(plan, steps=tuple(steps)))
    return replace(made, kernels=tuple(kernels), plans=tuple(plans))


def _touched(plan: Plan, step: Step) -> dict[int, int]:
    """The kernel's buffers that are states, with the states' numbers."""
    values = (plan.values[access.value] for access in step.accesses)
    return {n: v.tensor for n, v in enumerate(values) if v.kind == "state"}


def _fits(program: Program, plan: Plan, step: Step) -> bool:
    """Whether the step reads and writes only rows that a run needs."""
    kernel, touched = program.kernels[step.kernel], _touched(plan, step)
    if not touched:
        return True
    if any(step.accesses[n].offset for n in touched):
        return False
    if 0 in touched:
        return len(touched) == 1 and _appends(kernel)
    form = classify(kernel)
    if not isinstance(form, Attention) or last_seen(form) is None:
        return False
    exprs = (*(stage.value for stage in kernel.stages), kernel.value)
    loads = (e for value in exprs for e in walk(value) if isinstance(e, Load))
    return all(e in (form.k, form.v) for e in loads if e.buffer in touched)


def _appends(kernel: Kernel) -> bool:
    """Whether a kernel writes rows at a run-time number."""
    moving = any(isinstance(atom, Gathered) for atom, _ in kernel.store.terms)
    return not kernel.stages and moving


def _step(
    program: Program, layouts: list[RowBlocks], plan: Plan, step: Step, kernels: dict[Kernel, int]
) -> Step:
    """The step with a kernel for blocks of rows."""
    kernel = program.kernels[step.kernel]
    for n, number in _touched(plan, step).items():
        kernel = _in_blocks(kernel, n, program.states[number], layouts[number])
    return replace(step, kernel=kernels.setdefault(kernel, len(kernels)))


def _in_blocks(kernel: Kernel, number: int, state: State, layout: RowBlocks) -> Kernel:
    """The kernel, whose buffer `number` is a state in blocks."""
    if number == 0:
        kernel = _rows_apart(kernel, state.shape[-1])
    blocks = -(-state.shape[-2] // layout.rows)
    made = replace(kernel.buffers[number], size=blocks * layout.size, layout=layout)
    buffers = (*kernel.buffers[:number], made, *kernel.buffers[number + 1 :])
    if number == 0:
        return replace(kernel, store=_place(kernel.store, state.shape, layout), buffers=buffers)

    def moved(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.buffer != number:
            return e
        return e.at(_place(e.index, state.shape, layout))

    stages = tuple(replace(s, value=rewrite(s.value, moved)) for s in kernel.stages)
    return replace(kernel, stages=stages, value=rewrite(kernel.value, moved), buffers=buffers)


def _rows_apart(kernel: Kernel, columns: int) -> Kernel:
    """The kernel, no axis of which walks columns of several rows (collapse.py joins such axes)."""
    joined = next(
        (v for v in kernel.axes if v.extent > columns and kernel.store.coefficient(v) == 1), None
    )
    if joined is None:
        return kernel
    row, column = Var(f"{joined.name}r", joined.extent // columns), Var(joined.name, columns)
    at = {joined: index(row) * columns + index(column)}
    axes = tuple(a for v in kernel.axes for a in ((row, column) if v == joined else (v,)))
    value, store = kernel.value.substitute(at), kernel.store.substitute(at)
    return replace(kernel, axes=axes, value=value, store=store)


def _place(at: Index, shape: tuple[int, ...], layout: RowBlocks) -> Index:
    """The offset, in blocks, of the element at an offset in the whole state."""
    room, columns = shape[-2:]
    row, inside = at // columns % room, at // (room * columns) * layout.rows
    inside = (inside + row % layout.rows) * columns + at % columns
    return row // layout.rows * layout.step + inside
