"""Tensors that every memory holds as f16: which they stay, and the kernels that convert them.

Input: a program some of whose tensors may be compact.  Output: the same, in which `Buffer.compact`
and `Tensor.compact` agree.  A kernel that also reads other tensors at such a buffer gets a second
form.  Nothing about targets is decided here: a GPU has its own rule for f16 (`Buffer.halves`).
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.kernel.spec import Kernel
from tilewright.plan import Plan, Program, Step


def with_compact_buffers(program: Program) -> Program:
    """The program, whose kernels know which of their buffers are compact."""
    outside = {p.values[n].tensor for p in program.plans for n in p.outputs if _is_weight(p, n)}
    tensors = tuple(
        replace(t, compact=t.compact and n not in outside) for n, t in enumerate(program.tensors)
    )
    if not any(t.compact for t in tensors):
        return replace(program, tensors=tensors)
    compact = {n for n, t in enumerate(tensors) if t.compact}
    kernels: dict[Kernel, int] = {}

    def step_of(plan: Plan, step: Step) -> Step:
        marked = {
            n for n, access in enumerate(step.accesses)
            if _is_weight(plan, access.value) and plan.values[access.value].tensor in compact
        }  # fmt: skip
        kernel = _marked(program.kernels[step.kernel], marked)
        return replace(step, kernel=kernels.setdefault(kernel, len(kernels)))

    plans = tuple(
        replace(plan, steps=tuple(step_of(plan, step) for step in plan.steps))
        for plan in program.plans
    )
    return replace(program, kernels=tuple(kernels), plans=plans, tensors=tensors)


def _is_weight(plan: Plan, value: int) -> bool:
    return plan.values[value].kind == "weight"


def _marked(kernel: Kernel, numbers: set[int]) -> Kernel:
    if not numbers:
        return kernel
    buffers = (replace(b, compact=n in numbers) for n, b in enumerate(kernel.buffers))
    return replace(kernel, buffers=tuple(buffers))
