"""Places values and states in further buffers (annexes) where one buffer is too small.

Input: a program, joints, the largest size of a buffer in words. Output: for each value and state
its buffer and first word there. Annexes are read and written. A step binds up to six of them beside
the model's own buffer, which keeps inputs, outputs and small tensors. weight_buffers.py places
weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, TypedDict

from tilewright.base.errors import MemoryLimit
from tilewright.plan import Plan, Program, State, Value
from tilewright.plan.arena import Life, lives_of, movable, spread
from tilewright.targets.gpu.joined.joints import lasting
from tilewright.targets.wgsl.arenas import Arena, words_of
from tilewright.targets.wgsl.weight_buffers import WORD, small


class Banked(TypedDict):
    """Facts of a section: bytes of the annexes, of each state its annex, and the most bytes"""

    bytes: list[int]
    of: list[int]
    most: int


@dataclass(frozen=True)
class States:
    """Of each state its annex (0: the model's own buffer) and first word there; words of the
    annexes, which come before those of values."""

    of: tuple[int, ...]
    words: tuple[int, ...]
    sizes: tuple[int, ...] = ()

    @property
    def own(self) -> dict[int, int]:
        """The first words of those in the model's own buffer, by their numbers."""
        of = zip(self.of, self.words, strict=True)
        return {n: word for n, (annex, word) in enumerate(of) if not annex}


@dataclass(frozen=True)
class Annexes:
    """most: words that an annex may have;  sizes: those that each has"""

    most: int
    sizes: tuple[int, ...]

    def to_facts(self, states: States) -> dict[str, Banked]:
        """What a section says of them."""
        return {
            "annexes": Banked(
                bytes=[n * WORD for n in self.sizes], of=list(states.of), most=self.most * WORD
            )
        }


def states_apart(program: Program, head: int, most: int) -> States:
    """Large states in annexes, small ones in the model's own buffer from word `head` on."""
    sizes = [words_of(s) for s in program.states]
    kept = [n for n, size in enumerate(sizes) if small(size, most)]
    lives = [Life(size, 0, 0) for size in sizes]
    offsets, of, (_, *words) = spread(lives, 0, most, kept)
    begin = (at if annex else head + at for at, annex in zip(offsets, of, strict=True))
    return States(of, tuple(begin), tuple(words))


def arenas_apart(
    program: Program, arenas: Sequence[Arena], states: States, room: int, most: int
) -> tuple[tuple[Arena, ...], Annexes]:
    """The arenas of plans, whose values lie in annexes where `room` words do not do."""
    found = [
        _apart(plan, arena, room, most, len(states.sizes))
        for plan, arena in zip(program.plans, arenas, strict=True)
    ]
    values = (max(sizes) for sizes in zip_longest(*(sizes for _, sizes in found), fillvalue=0))
    return tuple(arena for arena, _ in found), Annexes(most, (*states.sizes, *values))


def _apart(
    plan: Plan, arena: Arena, room: int, most: int, before: int
) -> tuple[Arena, tuple[int, ...]]:
    """before: annexes of states"""
    inside = movable(plan)
    kept = {n for n, i in enumerate(inside) if plan.values[i].kind in ("input", "output")}
    lives = lives_of(lasting(plan, arena.joints), inside, words_of)
    offsets, of, (words, *sizes) = spread(lives, room, most, kept)
    at = dict(zip(inside, zip(offsets, of, strict=True), strict=True))
    every = [at.get(i, (0, 0)) for i in range(len(plan.values))]
    return (
        replace(
            arena,
            offsets=tuple(offset for offset, _ in every),
            of=tuple(number and number + before for _, number in every),
            words=words,
        ),
        tuple(sizes),
    )


def of_section(facts: Mapping[str, Any], words: Sequence[int]) -> tuple[States, int]:
    """What a section says of states, whose first words are given; the words that an annex may have,
    0 where there are none."""
    none = Banked(bytes=[], of=[0] * len(words), most=0)
    found: Banked = facts.get("annexes", none)
    sizes = tuple(size // WORD for size in found["bytes"][: max(found["of"], default=0)])
    return States(tuple(found["of"]), tuple(words), sizes), found["most"] // WORD


def require_fits(program: Program, own: int, annexes: Annexes | None, most: int) -> None:
    """Raises MemoryLimit where a buffer has more than `most` words.  own: of the model's own"""
    sizes = annexes.sizes if annexes else ()
    values = (v for plan in program.plans for v in plan.values if v.kind != "weight")
    every: list[State | Value] = [*values, *program.states]
    largest = max(every, key=words_of, default=None)
    if largest and words_of(largest) > most:
        what, need = (
            f"{largest.name or 'an intermediate result'} of shape {list(largest.shape)}",
            words_of(largest),
        )
    else:
        what, need = "what inputs, outputs and small tensors share", own
    if max((own, *sizes)) > most:
        raise MemoryLimit(
            f"{what} needs more than one GPU buffer",
            hint="Raise --bank, build smaller buckets, or split what is large in the model",
            bytes=need * WORD,
            limit=most * WORD,
        )
