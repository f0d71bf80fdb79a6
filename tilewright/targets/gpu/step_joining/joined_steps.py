"""Finds joined steps: neighbouring steps of a plan that one dispatch computes.

Input: a plan and its kernels. Output: each group of joined steps, and their common loops. The plan
itself does not change. A host may still run each step alone, for example to time it, or after a
step got another kernel. docs/decisions/0027-joined-steps.md gives the reasons. There are two kinds:

    k written   v written        side by side: short maps that do not depend on each other
    norm   gate   up · gate      a chain (product/chains.py): products of few rows, and their norm
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from tilewright.base.dtypes import F32
from tilewright.kernel.expr import Acc, Call, Const, Expr, Load, dtype_of
from tilewright.kernel.gathers import may_trap
from tilewright.kernel.index import Index, Var, flatten, index
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite, walk
from tilewright.plan import Plan, Step
from tilewright.targets.gpu.pointwise.schedule import SHORT_MAP_ELEMENTS
from tilewright.targets.gpu.product.chains import Chain, make_chain, schedule_for_chain
from tilewright.targets.gpu.product.strategies import FEW_ROWS, lower_chain
from tilewright.targets.gpu.step_joining import horizontal_fusion
from tilewright.targets.gpu.tile.addressing import ProductIndices, operands
from tilewright.targets.protocol import Code
from tilewright.targets.schedule import Schedule
from tilewright.targets.vectors import LANES, are_whole_vectors

#: The most steps side by side.  All are short: a long step gains nothing from being joined.
MOST_SIDE_BY_SIDE = 8

#: Functions of a norm that are cheap enough for every group to compute again.
CHEAP_FUNCTIONS = frozenset(("add", "sub", "mul", "neg", "div", "min", "max"))


@dataclass(frozen=True)
class JoinedSteps:
    """Steps from `first` to `last`, both included.  chain: the chain; None: steps side by side"""

    first: int
    last: int
    chain: Chain | None = None

    @property
    def steps(self) -> range:
        return range(self.first, self.last + 1)


def find_joined_steps(plan: Plan, kernels: Sequence[Kernel]) -> tuple[JoinedSteps, ...]:
    """The joined steps of a plan, in order; a step is in at most one group."""
    found: list[JoinedSteps] = []
    at = 0
    while at < len(plan.steps):
        join = _chain(plan, kernels, at) or _side_by_side(plan, kernels, at)
        found += [join] if join else []
        at = join.last + 1 if join else at + 1
    return tuple(found)


def joined_loops(
    join: JoinedSteps, codes: Sequence[Sequence[Code]]
) -> list[tuple[TileFn, Schedule]]:
    """Loops of joined steps, best first, each with the schedule that says which features it needs.

    codes: the codes of each step, best first
    """
    if join.chain is None:
        default = [each[-1] for each in codes]
        if not all(horizontal_fusion.suits(code.loops) for code in default):
            return []
        return [
            (
                horizontal_fusion.fuse_horizontally([code.loops for code in default]),
                default[0].schedule,
            )
        ]
    found: list[tuple[TileFn, Schedule]] = []
    for code in codes[-1]:
        made = lower_chain(join.chain, code.schedule)
        found += [made] if made else []
    return found


def _side_by_side(plan: Plan, kernels: Sequence[Kernel], at: int) -> JoinedSteps | None:
    """The longest group of independent short maps that begins at step `at`; None if there is
    none."""
    end = at
    while end < min(len(plan.steps), at + MOST_SIDE_BY_SIDE):
        step = plan.steps[end]
        if not _is_short(kernels[step.kernel]) or any(other >= at for other in step.after):
            break
        end += 1
    return JoinedSteps(at, end - 1) if end - at > 1 else None


def _is_short(kernel: Kernel) -> bool:
    plain = not kernel.stages and not kernel.extents and not kernel.buffers[0].as_f16
    return plain and prod(v.extent for v in kernel.axes) <= SHORT_MAP_ELEMENTS


def _chain(plan: Plan, kernels: Sequence[Kernel], at: int) -> JoinedSteps | None:
    """The longest chain that begins at step `at`; None if there is none."""
    norms = 1 if _is_norm(kernels[plan.steps[at].kernel]) else 0
    for products in (2, 1):
        steps = plan.steps[at : at + norms + products]
        if len(steps) < max(2, norms + products):
            continue
        own = [kernels[step.kernel] for step in steps]
        chain = _PossibleChain(plan, steps, own, norms).chain(at + len(steps) - 1)
        if chain:
            return JoinedSteps(at, at + len(steps) - 1, chain)
    return None


@dataclass(frozen=True)
class _PossibleChain:
    """Steps that may form a chain.  norms: 1 if the first step normalises the rows, else 0"""

    plan: Plan
    steps: Sequence[Step]
    kernels: Sequence[Kernel]
    norms: int

    def chain(self, last: int) -> Chain | None:
        """The chain up to step number `last`; None if these steps form none."""
        products = self.kernels[self.norms :]
        if not all(FEW_ROWS.suits(k) and not operands(k).outer for k in products):
            return None
        forwarded = self._forwarded_buffer() if len(products) > 1 else 0
        early = self.steps[:-1]
        hidden = all(map(self._is_hidden, early, self.kernels[:-1], [last] * len(early)))
        if forwarded is None or not hidden or not (self._reads_norm() if self.norms else True):
            return None
        if self.steps[-1].write.value in {read.value for step in early for read in step.reads}:
            return None
        found = make_chain(products, self.kernels[0] if self.norms else None, forwarded)
        return found if schedule_for_chain(found, FEW_ROWS.default(products[-1])) else None

    def _is_hidden(self, step: Step, kernel: Kernel, last: int) -> bool:
        """True for results that only steps of the chain read."""
        value = self.plan.values[step.write.value]
        whole = value.size == kernel.buffers[0].size and not value.as_f16
        return value.kind == "temporary" and whole and value.last <= last

    def _reads_norm(self) -> bool:
        """True if the products read the norm's result as their rows, and nowhere else."""
        norm, made = self.kernels[0], self.steps[0].write
        for step, kernel in zip(self.steps[1:], self.kernels[1:], strict=True):
            ops = operands(kernel)
            (*rows, depth) = (v.extent for v in norm.axes)
            if (prod(rows), depth) != (ops.m.extent, ops.steps) or depth % LANES:
                return False
            row = index(Var("row", ops.m.extent)) if ops.m.extent > 1 else Index()
            step_at = index(Var("step", depth))
            there = ops.row.index.substitute(ProductIndices(ops, {}).row(row, step_at))
            reading = [n for n, a in enumerate(step.accesses) if a.value == made.value]
            if reading != [ops.row.buffer] or step.accesses[reading[0]] != made:
                return False
            if there != row * depth + step_at:
                return False
        return True

    def _forwarded_buffer(self) -> int | None:
        """The buffer through which the second product reads the first one's results.

        None if it does not read each result where it stores its own, or if their rows or kinds of
        weights differ.
        """
        (a, b), (first, second) = self.steps[self.norms :], self.kernels[self.norms :]
        numbers = [n for n, read in enumerate(b.accesses) if read == a.write]
        rows = [s.accesses[operands(k).row.buffer] for s, k in ((a, first), (b, second))]
        if len(numbers) != 1 or rows[0] != rows[1] or not _have_equal_sums(first, second):
            return None
        (forwarded,) = numbers
        others = [n for n, read in enumerate(b.accesses) if read.value == a.write.value]
        inside = {e.buffer for s in second.stages for e in walk(s.value) if isinstance(e, Load)}
        loads = [e for e in walk(second.value) if isinstance(e, Load) and e.buffer == forwarded]
        plain = all(e.index == first.store for e in loads)
        whole = operands(second).n.extent % LANES == 0
        return (
            forwarded if others == numbers and forwarded not in inside and plain and whole else None
        )


@lru_cache(maxsize=1024)
def _is_norm(kernel: Kernel) -> bool:
    """True for kernels that compute each element of a row from cheap reductions over the same
    row."""
    cols = kernel.axes[len(kernel.rows) :]
    fixed = not kernel.extents and not may_trap(kernel) and kernel.dtype == F32
    if not kernel.stages or len(cols) != 1 or not fixed or any(s.keep for s in kernel.stages):
        return False
    if kernel.store != flatten(map(index, kernel.axes), (v.extent for v in kernel.axes)):
        return False
    parts = list(walk(kernel.value))
    moving = [e for e in parts if cols[0] in e.variables]
    again = [e for stage in kernel.stages for e in walk(stage.value)]
    return (
        all(isinstance(e, Acc | Call | Const | Load) and dtype_of(e) == F32 for e in parts)
        and all(are_whole_vectors(e.index, cols[0]) for e in moving if isinstance(e, Load))
        and all(e.fn in CHEAP_FUNCTIONS for e in (*moving, *again) if isinstance(e, Call))
    )


@lru_cache(maxsize=1024)
def _have_equal_sums(a: Kernel, b: Kernel) -> bool:
    """True if two products differ only in what they do with their sums."""
    return a.axes == b.axes and a.store == b.store and _sums(a) == _sums(b)


def _sums(kernel: Kernel) -> object:
    """A key for the sums of a product: operands are numbered in the order in which they occur."""
    numbers: dict[int, int] = {}

    def numbered(e: Expr) -> Expr:
        if not isinstance(e, Load):
            return e
        return replace(e, buffer=numbers.setdefault(e.buffer, len(numbers)))

    (stage,) = kernel.stages
    value = rewrite(stage.value, numbered)
    return replace(stage, value=value), [kernel.buffers[n] for n in numbers]
