"""Places values and states in further buffers (annexes) where one buffer is too small.

Input: a program, joints, the largest size of a buffer in words. Output: for each value and state
its buffer and first word there. Annexes are read and written. A step binds up to six of them,
besides the model's own buffer, which keeps inputs, outputs and small tensors. weight_buffers.py
places weights.
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
    """Facts of a section: bytes of each annex, the annex of each state, the most bytes of a
    buffer"""

    bytes: list[int]
    of: list[int]
    most: int


@dataclass(frozen=True)
class States:
    """The annex of each state (0: the model's own buffer) and its first word there, and the words
    of the states' annexes, which come before those of values."""

    of: tuple[int, ...]
    words: tuple[int, ...]
    sizes: tuple[int, ...] = ()

    @property
    def own(self) -> dict[int, int]:
        """First words of the states in the model's own buffer, by state number."""
        of = zip(self.of, self.words, strict=True)
        return {n: word for n, (annex, word) in enumerate(of) if not annex}


@dataclass(frozen=True)
class Annexes:
    """most: the most words of an annex;  sizes: words of each annex"""

    most: int
    sizes: tuple[int, ...]

    def to_facts(self, states: States) -> dict[str, Banked]:
        """The facts of a section about annexes."""
        return {
            "annexes": Banked(
                bytes=[n * WORD for n in self.sizes], of=list(states.of), most=self.most * WORD
            )
        }


def states_apart(program: Program, head: int, most: int) -> States:
    """Puts large states in annexes, and small ones in the model's own buffer from word `head`
    on."""
    sizes = [words_of(s) for s in program.states]
    kept = [n for n, size in enumerate(sizes) if small(size, most)]
    lives = [Life(size, 0, 0) for size in sizes]
    offsets, of, (_, *words) = spread(lives, 0, most, kept)
    begin = (at if annex else head + at for at, annex in zip(offsets, of, strict=True))
    return States(of, tuple(begin), tuple(words))


def arenas_apart(
    program: Program, arenas: Sequence[Arena], states: States, room: int, most: int
) -> tuple[tuple[Arena, ...], Annexes]:
    """The arenas of plans; values go to annexes if they need more than `room` words."""
    found = [
        _apart(plan, arena, room, most, len(states.sizes))
        for plan, arena in zip(program.plans, arenas, strict=True)
    ]
    values = (max(sizes) for sizes in zip_longest(*(sizes for _, sizes in found), fillvalue=0))
    return tuple(arena for arena, _ in found), Annexes(most, (*states.sizes, *values))


def _apart(
    plan: Plan, arena: Arena, room: int, most: int, before: int
) -> tuple[Arena, tuple[int, ...]]:
    """Moves values of one plan to annexes.  before: annexes of states, which come first"""
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
    """Reads states from a section's facts: words has their first words.  Also returns the most
    words of an annex; 0 if there are none."""
    none = Banked(bytes=[], of=[0] * len(words), most=0)
    found: Banked = facts.get("annexes", none)
    sizes = tuple(size // WORD for size in found["bytes"][: max(found["of"], default=0)])
    return States(tuple(found["of"]), tuple(words), sizes), found["most"] // WORD


def require_fits(program: Program, own: int, annexes: Annexes | None, most: int) -> None:
    """Raises MemoryLimit if a buffer has more than `most` words.  own: words of the model's own
    one"""
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
