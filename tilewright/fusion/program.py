"""From fused graphs to the neutral program: distinct kernels, and plans with values, lives and
dependencies.

Input: for each combination of buckets a packed graph with the steps of its kernels; the inputs and
outputs that form states.  Output: a `Program`, and the nodes of its tensors by number.  Targets are
not considered, and only scales and zero points of weights are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from tilewright.base.abi import align
from tilewright.base.dtypes import F32
from tilewright.base.errors import UsageError
from tilewright.base.model_limits import check_limit
from tilewright.fusion.compact_storage import with_compact_buffers
from tilewright.fusion.f16_operands import (
    APART,
    dividing_rows,
    fit_halves,
    of_divided_rows,
    operand_to_round,
    reading_f16,
    rounding_of,
    rows_to_divide,
    sizes_of_rows,
    with_f16_weights,
)
from tilewright.fusion.growing_states import with_growing_states
from tilewright.fusion.kernel_steps import KernelStep
from tilewright.fusion.split_reductions import parts_of
from tilewright.graph import ops
from tilewright.graph.constants import Constants, may_be_compact, narrow
from tilewright.graph.extent_tracing import NO_EXTENTS, Extents
from tilewright.graph.node import Graph, Node, computed, constant_work
from tilewright.kernel.expr import Load
from tilewright.kernel.form import QuantisedContraction, form_as
from tilewright.kernel.index import Var, index
from tilewright.kernel.layout import ROWS, Layout
from tilewright.kernel.spec import Buffer, Kernel
from tilewright.kernel.tree import walk
from tilewright.plan import Access, Extent, Growth, Plan, Program, State, Step, Tensor, Value
from tilewright.plan.dependencies import dependencies


@dataclass(frozen=True)
class BucketPlan:
    """One combination of buckets during compilation."""

    dims: Mapping[str, int]
    graph: Graph
    steps: tuple[KernelStep, ...]
    extents: Extents = NO_EXTENTS


#: Maps each input that is a state to the output that has the state's contents after a run.
States = Mapping[str, str]


def program_of(
    planned: Sequence[BucketPlan],
    states: States | None = None,
    extents: Mapping[str, int] | None = None,
    f16: bool = False,
    compact_states: bool = False,
    growth: Growth | None = None,
    f16_states: bool = False,
) -> tuple[Program, tuple[Node, ...]]:
    """The program, and for each of its tensors the node with the contents of files.

    f16: True if values may be stored as f16 where products round them anyway (f16_operands.py)
    compact_states: True if linear memories hold f32 states as f16 (compact_storage.py)
    growth: how states are to grow, if they can (growing_states.py)
    f16_states: True if all targets hold compact states as f16 (compact_storage.py)

    `UsageError` if a state's input or output does not exist, if they differ in dtype or shape, or
    if the shape differs between buckets or depends on an extent.
    """
    shared = _Shared(states or {}, f16)
    plans = tuple(_Maker(one, shared).plan() for one in planned)
    kept = tuple(Extent(name, bound) for name, bound in (extents or {}).items())
    kernels = with_f16_weights(tuple(shared.kernels), plans)
    kept_states = tuple(
        replace(s, compact=compact_states and s.dtype == F32) for s in shared.states
    )
    made = Program(kernels, plans, tuple(shared.tensors), kept_states, kept)
    if growth is not None:
        made = with_growing_states(made, growth)
    made = with_compact_buffers(made, f16_states)
    offsets = accumulate((align(t.bytes) for t in made.tensors), initial=0)
    tensors = tuple(replace(t, offset=at) for t, at in zip(made.tensors, offsets, strict=False))
    return replace(made, tensors=tensors), tuple(shared.stored)


class _Shared:
    """Parts that all plans share, numbered as they occur.

    stored: for each of `tensors`, the form in which files contain it
    """

    def __init__(self, pairs: States, f16: bool) -> None:
        self.pairs, self.f16 = pairs, f16
        self.kernels: dict[Kernel, int] = {}
        self.tensors: list[Tensor] = []
        self.stored: list[Node] = []
        self.states: list[State] = []
        self._constants = Constants()
        self._numbers: dict[int, int] = {}
        self._work = 0

    def kernel(self, kernel: Kernel) -> int:
        return self.kernels.setdefault(kernel, len(self.kernels))

    def tensor(self, n: Node, layout: Layout = ROWS) -> int:
        """The number of a constant's tensor.  Scales and zero points get numbers before the
        integers that they belong to."""
        key = self._constants.number(n)
        if key not in self._numbers:
            self._work += constant_work(n)
            check_limit(
                "constant_work", self._work, "the work to compute constants", **n.source.facts
            )
            held = narrow(n)
            scale, zero = (None if p is None else self.tensor(p) for p in (held.scale, held.zero))
            self._numbers[key] = len(self.tensors)
            compact = held.dtype == "f16" and may_be_compact(n)
            self.tensors.append(
                Tensor(n.dtype, n.shape, 0, layout, held.dtype, scale, zero, compact)
            )
            self.stored.append(held.value)
        return self._numbers[key]

    def state(self, state: State) -> int:
        known = next((i for i, s in enumerate(self.states) if s.name == state.name), None)
        if known is None:
            self.states.append(state)
            return len(self.states) - 1
        if self.states[known] != state:
            raise UsageError(
                f"The state {state.name!r} has another shape in each bucket",
                hint="A state is kept between runs of all buckets: give its axes fixed sizes",
                state=state.name,
                shapes=[self.states[known].shape, state.shape],
            )
        return known


class _Maker:
    """Makes one plan."""

    def __init__(self, planned: BucketPlan, shared: _Shared) -> None:
        self.shared = shared
        self.dims = dict(planned.dims)
        self.given = planned.steps
        self.stored = {step.output for step in planned.steps}
        self.inputs = dict(planned.graph.inputs)
        self.outputs = dict(planned.graph.outputs)
        self.extents = planned.extents
        self.values: list[Value] = []
        self.numbers: dict[Node, int] = {}
        self.steps: list[Step] = []
        #: Results of copying kernels, by the kernel and the parts of values that it reads.
        self.copies: dict[tuple[Kernel, tuple[Access, ...]], Access] = {}

    def plan(self) -> Plan:
        kept = dict(map(self._pair, self.shared.pairs))
        free = [n for name, n in self.inputs.items() if name not in self.shared.pairs]
        wanted = {
            name: n for name, n in self.outputs.items() if name not in self.shared.pairs.values()
        }
        for name, n in self.inputs.items():
            self._input(name, n)
        for old, new in kept.items():
            if self._in_place(old, new, kept, wanted.values()):
                self.numbers[new] = self.numbers[old]
        for name, n in wanted.items():
            if n not in self.numbers and (n in self.stored or not n.constant):
                self.numbers[n] = self._value(Value("output", n.dtype, n.shape, name))
        for step in self.given:
            self._step(step)
        # A state that is also an output is read before it changes.
        results = [
            self._copied(self.numbers[n], Value("output", n.dtype, n.shape, name))
            if n in kept
            else self._number(n, ROWS)
            for name, n in wanted.items()
        ]
        self._keep(kept)
        inputs = tuple(self.numbers[n] for n in free)
        return Plan(self.dims, self._lived(), self._ordered(), inputs, tuple(results))

    def _pair(self, name: str) -> tuple[Node, Node]:
        """The input and the output that are one state."""
        result = self.shared.pairs[name]
        if name not in self.inputs or result not in self.outputs:
            raise UsageError(
                f"The model has no state {name}={result}",
                hint="A state is named by an input and the output that is its next contents",
                inputs=list(self.inputs),
                outputs=list(self.outputs),
            )
        old, new = self.inputs[name], self.outputs[result]
        if any(self.extents.of(old)):
            raise UsageError(
                f"The state {name!r} has an axis that is an extent",
                hint="A state is kept between runs of all lengths: give its axes fixed sizes",
                state=name,
                shape=list(old.shape),
            )
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise UsageError(
                f"Input {name!r} and output {result!r} cannot be one state",
                hint="Both must have the same dtype and shape",
                input=f"{old.dtype}{list(old.shape)}",
                output=f"{new.dtype}{list(new.shape)}",
            )
        return old, new

    def _input(self, name: str, n: Node) -> None:
        if name in self.shared.pairs:
            number = self.shared.state(State(name, n.dtype, n.shape))
            self.numbers[n] = self._value(Value("state", n.dtype, n.shape, name, number))
        else:
            self.numbers[n] = self._value(Value("input", n.dtype, n.shape, name))

    def _value(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _number(self, n: Node, layout: Layout) -> int:
        if n not in self.numbers:
            if n.constant and n not in self.stored:
                number = self.shared.tensor(n, layout)
                value = Value("weight", n.dtype, n.shape, tensor=number)
            else:
                value = Value("temporary", n.dtype, n.shape)
            self.numbers[n] = self._value(value)
        return self.numbers[n]

    def _step(self, step: KernelStep) -> None:
        nodes = (step.output, *step.inputs)
        layouts = (buffer.layout for buffer in step.kernel.buffers)
        numbers = map(self._number, nodes, layouts)
        write, *reads = map(Access, numbers, step.offsets)
        if reads == [write] and _moves(step.kernel):
            return  # an update in place; the buffer has the other elements already
        kernel, reads = self._rounded(step, reads) if self.shared.f16 else (step.kernel, reads)
        kernel, reads = self._cut(kernel, reads)
        self.steps.append(Step(
            self.shared.kernel(kernel), write, tuple(reads),
            node=step.source.node, op=step.source.op, checks=step.checks,
        ))  # fmt: skip
        self.copies = {
            key: made for key, made in self.copies.items()
            if all(read.value != write.value for read in key[1])
        }  # fmt: skip

    def _cut(self, kernel: Kernel, reads: list[Access]) -> tuple[Kernel, list[Access]]:
        """The kernel that stores the output, and the values that it reads.  If a long reduction was
        split, steps for the other parts are added first."""
        *parts, last = parts_of(kernel)
        for part in parts:
            needed = (reads[n - 1] for n in part.reads)
            reads = [*reads, self._made_of("parts of rows", part.kernel, *needed)]
        return last.kernel, [reads[n - 1] for n in last.reads]

    def _rounded(self, step: KernelStep, reads: list[Access]) -> tuple[Kernel, list[Access]]:
        """The step's kernel and its operands; with an f16 copy of an operand if that is worth
        it."""
        kernel = step.kernel
        rounded, divided = operand_to_round(kernel), rows_to_divide(kernel)
        number = rounded or divided
        if not number or step.offsets[number] % APART:
            return kernel, reads
        before, read, behind = reads[: number - 1], reads[number - 1], reads[number:]
        if rounded:
            copy = self._made_of("as halves", rounding_of(kernel.buffers[number].size), read)
            return reading_f16(kernel, number), [*before, copy, *behind]
        scales = form_as(kernel, QuantisedContraction).weights.scales
        if not all(fit_halves(computed(step.inputs[n - 1])) for n in scales):
            return kernel, reads
        sizes = self._made_of("sizes of rows", sizes_of_rows(kernel), read)
        copy = self._made_of("as halves", dividing_rows(kernel), read, sizes)
        return of_divided_rows(kernel), [*before, copy, *behind, sizes]

    def _made_of(self, name: str, kernel: Kernel, *reads: Access) -> Access:
        """The result of a kernel on values; its step is added once for all steps that read it.
        name: the step's"""
        if (kernel, reads) not in self.copies:
            result = kernel.buffers[0]
            value = Value("temporary", result.dtype, (result.size,), as_f16=result.as_f16)
            made = self.copies[kernel, reads] = Access(self._value(value))
            self.steps.append(Step(self.shared.kernel(kernel), made, reads, node=name))
        return self.copies[kernel, reads]

    def _in_place(
        self, old: Node, new: Node, kept: Mapping[Node, Node], wanted: Iterable[Node]
    ) -> bool:
        """True if the steps that compute the next contents may overwrite the last ones.

        No later step may read the old contents; a step may read the element that it overwrites.
        """
        others = [n for i, n in kept.items() if i is not old]
        if new.constant or isinstance(new.op, ops.Input) or new in others:
            return False
        if old in wanted or old in others:
            return False
        writes = [i for i, step in enumerate(self.given) if step.output is new]
        reads = [i for i, step in enumerate(self.given) if old in step.inputs]
        last = max(reads, default=-1)
        if last < writes[0]:
            return True
        return last == writes[0] and _elementwise(self.given[last], old)

    def _keep(self, kept: Mapping[Node, Node]) -> None:
        """Adds copies into states whose next contents no step has stored in place."""
        moved = {old: self._number(new, ROWS) for old, new in kept.items()}
        sources = {
            old: self._copied(at, Value("temporary", old.dtype, old.shape))
            if kept[old] in kept and kept[old] is not old
            else at
            for old, at in moved.items()
        }
        for old, at in sources.items():
            if at != self.numbers[old]:
                self._copy(at, self.numbers[old])

    def _copied(self, at: int, value: Value) -> int:
        self._copy(at, number := self._value(value))
        return number

    def _copy(self, source: int, target: int) -> None:
        value = self.values[source]
        kernel = self.shared.kernel(_copy_of(Buffer(value.dtype, value.size)))
        self.steps.append(Step(kernel, Access(target), (Access(source),), node=value.name))

    def _lived(self) -> tuple[Value, ...]:
        """The values with the steps between which each is in use.

        Inputs and states live all the time, so that a run leaves inputs unchanged; outputs live to
        the end.
        """
        end = len(self.steps)
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for number, step in enumerate(self.steps):
            for access in step.accesses:
                first.setdefault(access.value, number)
                last[access.value] = number
        lived = []
        for number, value in enumerate(self.values):
            begin, until = first.get(number, -1), last.get(number, end)
            if value.kind in ("input", "weight", "state"):
                begin, until = -1, end
            if value.kind == "output":
                until = end
            lived.append(replace(value, first=begin, last=until))
        return tuple(lived)

    def _ordered(self) -> tuple[Step, ...]:
        """The steps with the steps that each must wait for; weights are never written."""
        kernels = list(self.shared.kernels)
        fixed = {i for i, v in enumerate(self.values) if v.kind == "weight"}
        accesses = []
        for step in self.steps:
            write, *reads = (
                (a.value, a.offset, a.offset + b.size)
                for a, b in zip(step.accesses, kernels[step.kernel].buffers, strict=True)
            )
            accesses.append((write, [r for r in reads if r[0] not in fixed]))
        waits = dependencies(accesses)
        return tuple(replace(s, after=after) for s, after in zip(self.steps, waits, strict=True))


def _elementwise(step: KernelStep, n: Node) -> bool:
    """True if the step reads only the element of `n` that it stores next."""
    kernel = step.kernel
    numbers = {i for i, node in enumerate((step.output, *step.inputs)) if node is n}
    inside = any(
        isinstance(e, Load) and e.buffer in numbers for s in kernel.stages for e in walk(s.value)
    )
    loads = [e for e in walk(kernel.value) if isinstance(e, Load) and e.buffer in numbers]
    plain = all(e.index == kernel.store for e in loads)
    return not inside and plain and not any(step.offsets[i] != step.offsets[0] for i in numbers)


def _moves(kernel: Kernel) -> bool:
    """True if the kernel only copies: each element is loaded and stored at the same index."""
    value = kernel.value
    return not kernel.stages and isinstance(value, Load) and value.index == kernel.store


def _copy_of(buffer: Buffer) -> Kernel:
    """A kernel that copies all elements."""
    axis = Var("a", buffer.size)
    name = f"copy_{buffer.size}"
    value = Load(1, index(axis), buffer.dtype)
    return Kernel(name, (axis,), (), value, index(axis), (buffer, buffer))
