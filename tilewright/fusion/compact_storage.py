"""Tensors and states that linear memories hold as f16, and the kernels that convert them.

Input: a program some of whose tensors and states may be compact.  Output: the same, in which
`Buffer.compact` agrees with them.  A kernel that also reads others at such a buffer gets a second
form.  Nothing about targets is decided here: a GPU has its own rule for f16 weights
(`Buffer.as_f16`), and the caller says whether all targets hold compact states as f16.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from tilewright.kernel.spec import Kernel
from tilewright.plan import Plan, Program, Step, Value


def with_compact_buffers(program: Program, f16_states: bool = False) -> Program:
    """The program, whose kernels know which of their buffers are compact.  A weight that is an
    output itself is not compact.

    f16_states: True if compact states are also f16 on GPUs (`Buffer.as_f16`, `Value.as_f16`)
    """
    outside = {
        plan.values[n].tensor for plan in program.plans for n in plan.outputs
        if plan.values[n].kind == "weight"
    }  # fmt: skip
    tensors = tuple(
        replace(t, compact=t.compact and n not in outside) for n, t in enumerate(program.tensors)
    )
    compact = {("weight", n) for n, t in enumerate(tensors) if t.compact}
    compact |= {("state", n) for n, s in enumerate(program.states) if s.compact}
    if not compact:
        return replace(program, tensors=tensors)
    kernels: dict[Kernel, int] = {}

    def step_of(plan: Plan, step: Step) -> Step:
        values = [plan.values[access.value] for access in step.accesses]
        marked = {n for n, v in enumerate(values) if (v.kind, v.tensor) in compact}
        halves = {n for n in marked if f16_states and values[n].kind == "state"}
        kernel = _marked(program.kernels[step.kernel], marked, halves)
        return replace(step, kernel=kernels.setdefault(kernel, len(kernels)))

    def value_of(value: Value) -> Value:
        held = f16_states and value.kind == "state" and (value.kind, value.tensor) in compact
        return replace(value, as_f16=True) if held else value

    plans = tuple(
        replace(
            plan,
            values=tuple(map(value_of, plan.values)),
            steps=tuple(step_of(plan, step) for step in plan.steps),
        )
        for plan in program.plans
    )
    return replace(program, kernels=tuple(kernels), plans=plans, tensors=tensors)


def _marked(kernel: Kernel, numbers: Set[int], halves: Set[int]) -> Kernel:
    """The kernel with compact buffers; `halves` of them are states that GPUs hold as f16."""
    if not numbers:
        return kernel
    buffers = (
        replace(b, compact=n in numbers, as_f16=b.as_f16 or n in halves)
        for n, b in enumerate(kernel.buffers)
    )
    return replace(kernel, buffers=tuple(buffers))
