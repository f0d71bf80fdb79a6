"""Decides which weights are stored as f16: every kernel that reads such a weight must allow it.

Input: the kernels and plans of a program.  Output: its kernels.  If one kernel reads a weight as
f32 (a loop over its slices, or an output), it is f32 for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilewright.kernel.spec import Kernel
from tilewright.plan import Plan

#: A read may begin at multiples of so many elements: whole vectors of words.
APART = 8

#: A tensor's number, and who reads it: a kernel and a buffer, or None.
_Read = tuple[int, tuple[int, int] | None]


def agreed(kernels: Sequence[Kernel], plans: Sequence[Plan]) -> tuple[Kernel, ...]:
    """The kernels, with `Buffer.halves` only where all readers of a tensor have it."""
    made = list(kernels)
    reads = {read for plan in plans for read in _reads(plan)}
    while True:
        wide = {t for t, who in reads if who is None or not made[who[0]].buffers[who[1]].halves}
        wrong = {who for t, who in reads if t in wide and who is not None}
        wrong = {(k, b) for k, b in wrong if made[k].buffers[b].halves}
        if not wrong:
            return tuple(made)
        for k, b in wrong:
            buffers = list(made[k].buffers)
            buffers[b] = replace(buffers[b], halves=False)
            made[k] = replace(made[k], buffers=tuple(buffers))


def _reads(plan: Plan) -> Iterator[_Read]:
    weights = {n: v.tensor for n, v in enumerate(plan.values) if v.kind == "weight"}
    for step in plan.steps:
        for buffer, access in enumerate(step.accesses):
            if access.value in weights:
                whole = access.offset % APART == 0
                yield weights[access.value], (step.kernel, buffer) if whole else None
    for number in plan.outputs:
        if number in weights:
            yield weights[number], None
