"""The first word of each buffer: the memory of values while a plan runs, and the parts around it.

Input: a program, its banks.  Output: words.  A joint keeps the memory of its values until it ends
(targets/gpu/joined/joints.py).  api.py decides which texts run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.base.abi import align
from tilewright.plan import Plan, Program, State, Step, Tensor, Value
from tilewright.plan.arena import arena_of
from tilewright.targets.gpu.gpu_target import halves_of
from tilewright.targets.gpu.joined.joints import Joint, joints, lasting
from tilewright.targets.protocol import setting
from tilewright.targets.wgsl.emit import WORDS
from tilewright.targets.wgsl.packed_bytes import EACH, byte_tensors
from tilewright.targets.wgsl.weight_buffers import Banks

#: Words before everything else; the first one reports an index out of range.  All parts begin at
#: multiples of 64 words, as bindings must (base/abi.py; its unit is a word here).
HEAD = 64


@dataclass(frozen=True)
class Arena:
    """A plan's joints, and the first word of each of its values; `words` of all.

    of: the annex of each value (value_buffers.py); 0: the model's own buffer, to which `words`
        refers
    """

    joints: tuple[Joint, ...]
    offsets: tuple[int, ...]
    words: int
    of: tuple[int, ...]


def arenas_of(program: Program, settings: Mapping[str, object]) -> tuple[Arena, ...]:
    """The arenas of all plans.  settings: "joined", false to run each step by itself"""
    joined = setting(settings, "joined", True)
    found = [joints(plan, program.kernels) if joined else () for plan in program.plans]
    return tuple(
        Arena(own, *arena_of(lasting(plan, own), words_of), (0,) * len(plan.values))
        for plan, own in zip(program.plans, found, strict=True)
    )


#: For each of several steps, or joints, the tensors that it reads.
Reads = list[list[int]]


def tensors_read(program: Program, arenas: Sequence[Arena]) -> tuple[Reads, Reads]:
    """The tensors that each step reads, and those that each joint reads."""

    def weights(plan: Plan, steps: Sequence[Step]) -> list[int]:
        values = (plan.values[a.value] for step in steps for a in step.reads)
        return [v.tensor for v in values if v.kind == "weight"]

    each = [weights(plan, (step,)) for plan in program.plans for step in plan.steps]
    pairs = zip(program.plans, arenas, strict=True)
    together = [
        weights(plan, plan.steps[joint.first : joint.last + 1])
        for plan, arena in pairs
        for joint in arena.joints
    ]
    return each, together


def end_of_weights(program: Program, banks: Banks, states: Mapping[int, int]) -> int:
    """The first word after weights and states in the model's own buffer.

    states: first words of the states there, by state number
    """
    dense, ends = dense_of(program), [HEAD]
    for value in (v for plan in program.plans for v in plan.values if v.kind == "weight"):
        if not banks.of[value.tensor]:
            size = -(-words_of(value) // each_of(value, dense))
            ends.append(align(banks.words[value.tensor] + size))
    ends += [align(at + words_of(program.states[n])) for n, at in states.items()]
    return max(ends)


def dense_of(program: Program) -> dict[int, int]:
    """Weights with several elements in a word (f16 or bytes), with the number of elements."""
    return dict.fromkeys(halves_of(program), 2) | dict.fromkeys(byte_tensors(program), EACH)


def each_of(value: Value, dense: Mapping[int, int]) -> int:
    """Elements of a value in a word, or in the words that one element of the dtype usually
    takes."""
    if value.kind == "weight":
        return dense.get(value.tensor, 1)
    return 2 if value.halves else 1


def words_of(tensor: Tensor | State | Value) -> int:
    """Words of a tensor, state or value; a weight must not be in `dense_of`."""
    words = tensor.bytes // tensor.dtype.size * WORDS[tensor.dtype.name]
    return words // 2 if isinstance(tensor, Value) and tensor.halves else words
