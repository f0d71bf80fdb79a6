"""Tensors and states that linear memories hold as f16, and the kernels that convert them.

Input: a program some of whose tensors and states may be compact.  Output: the same, in which
`Buffer.compact` agrees with them.  A kernel that also reads others at such a buffer gets a second
form.  Nothing about targets is decided here: a GPU has its own rule for f16 (`Buffer.as_f16`).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from tilewright.kernel.spec import Kernel
from tilewright.plan import Plan, Program, Step


def with_compact_buffers(program: Program) -> Program:
    """The program, whose kernels know which of their buffers are compact.  A weight that is an
    output itself is not compact."""
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
        kernel = _marked(program.kernels[step.kernel], marked)
        return replace(step, kernel=kernels.setdefault(kernel, len(kernels)))

    plans = tuple(
        replace(plan, steps=tuple(step_of(plan, step) for step in plan.steps))
        for plan in program.plans
    )
    return replace(program, kernels=tuple(kernels), plans=plans, tensors=tensors)


def _marked(kernel: Kernel, numbers: Set[int]) -> Kernel:
    if not numbers:
        return kernel
    buffers = (replace(b, compact=n in numbers) for n, b in enumerate(kernel.buffers))
    return replace(kernel, buffers=tuple(buffers))
