"""How dispatches find their buffers: where values lie while a plan runs, and where it all begins.

Input: a program, its banks.  Output: words.  Values keep their places as long as joins need them
(targets/gpu/joins.py).  Which texts run is api.py's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.alignment import align
from tilewright.plan import Plan, Program, State, Step, Tensor, Value
from tilewright.plan.arena import arena_of
from tilewright.targets.gpu.joins import Join, joins, lasting
from tilewright.targets.gpu.target import halves_of
from tilewright.targets.gpu.tiles import LANES
from tilewright.targets.wgsl.banks import Banks
from tilewright.targets.wgsl.emit import WORDS

#: Words before everything else: the first tells of an index out of range.  All that follows begins
#: at multiples of 64 words, as bindings must (base/alignment.py counts words here).
HEAD = 64


@dataclass(frozen=True)
class Lying:
    """Where the buffers of a dispatch lie: the first word of each, and its bank."""

    words: list[int]
    banks: list[int]

    @classmethod
    def together(cls, parts: Sequence[Lying]) -> Lying:
        """The buffers of all, one after the other."""
        return cls([w for p in parts for w in p.words], [b for p in parts for b in p.banks])

    @property
    def apart(self) -> frozenset[int]:
        """Those in a bank."""
        return frozenset(n for n, bank in enumerate(self.banks) if bank)

    @property
    def whole(self) -> bool:
        """Whether all begin at whole vectors."""
        return not any(word % LANES for word in self.words)

    @property
    def fields(self) -> dict[str, Any]:
        bank = max(self.banks)
        return {"words": self.words} | ({"bank": bank} if bank else {})


@dataclass(frozen=True)
class Arena:
    """A plan's joins, and where its values lie then, in words; `words` of all."""

    joins: tuple[Join, ...]
    offsets: tuple[int, ...]
    words: int


def arenas_of(program: Program) -> tuple[Arena, ...]:
    found = [joins(plan, program.kernels) for plan in program.plans]
    return tuple(
        Arena(own, *arena_of(lasting(plan, own), words_of))
        for plan, own in zip(program.plans, found, strict=True)
    )


#: For each of several steps, or joins, the tensors that it reads.
Reads = list[list[int]]


def tensors_read(program: Program, arenas: Sequence[Arena]) -> tuple[Reads, Reads]:
    """The tensors that each step reads, and those that each join reads."""

    def weights(plan: Plan, steps: Sequence[Step]) -> list[int]:
        values = (plan.values[a.value] for step in steps for a in step.reads)
        return [v.tensor for v in values if v.kind == "weight"]

    each = [weights(plan, (step,)) for plan in program.plans for step in plan.steps]
    pairs = zip(program.plans, arenas, strict=True)
    together = [
        weights(plan, plan.steps[join.first : join.last + 1])
        for plan, arena in pairs
        for join in arena.joins
    ]
    return each, together


def end_of_weights(program: Program, banks: Banks, states: Sequence[int]) -> int:
    """The word behind weights and states in the model's own buffer."""
    halves, ends = halves_of(program), [HEAD]
    for value in (v for plan in program.plans for v in plan.values if v.kind == "weight"):
        if not banks.of[value.tensor]:
            size = -(-words_of(value) // (1 + in_halves(value, halves)))
            ends.append(align(banks.words[value.tensor] + size))
    ends += [align(at + words_of(s)) for at, s in zip(states, program.states, strict=True)]
    return max(ends)


def in_halves(value: Value, tensors: frozenset[int]) -> bool:
    """Whether a value lies as halves."""
    return value.halves or (value.kind == "weight" and value.tensor in tensors)


def words_of(tensor: Tensor | State | Value) -> int:
    """How many words it takes, a weight if not as halves."""
    words = tensor.bytes // tensor.dtype.size * WORDS[tensor.dtype.name]
    return words // 2 if isinstance(tensor, Value) and tensor.halves else words
