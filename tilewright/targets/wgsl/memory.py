"""The memory layout of a model on a device: its own buffer, banks and annexes.

Input: a program and the largest size of a buffer in bytes, or an old section. Output: for each
value its buffer and first word. Most models need one buffer. Weights go to banks
(weight_buffers.py) before states and values go to annexes (value_buffers.py), since a page cannot
exchange kernels that use annexes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.base.sections import Section
from tilewright.plan import Plan, Program
from tilewright.plan.arena import row
from tilewright.targets.protocol import setting
from tilewright.targets.wgsl.arenas import (
    HEAD,
    Arena,
    arenas_of,
    dense_of,
    end_of_weights,
    tensors_read,
    words_of,
)
from tilewright.targets.wgsl.value_buffers import (
    Annexes,
    States,
    arenas_apart,
    of_section,
    require_fits,
    states_apart,
)
from tilewright.targets.wgsl.weight_buffers import BANK, WORD, Banks, banks_of


@dataclass(frozen=True)
class MemoryLayout:
    """at: first word of values in the model's own buffer;  arenas: those of the plans"""

    banks: Banks
    states: States
    at: int
    arenas: tuple[Arena, ...]
    annexes: Annexes | None = None

    @property
    def own(self) -> int:
        """Words of the model's own buffer."""
        return self.at + max((arena.words for arena in self.arenas), default=0)

    @property
    def total(self) -> int:
        """Words of all buffers."""
        return self.own + sum(self.banks.sizes) + sum(self.annexes.sizes if self.annexes else ())

    def places(self, plan: Plan, arena: Arena) -> Iterator[tuple[int, int]]:
        """For each value its first word and its annex (0: none)."""
        for v, offset, annex in zip(plan.values, arena.offsets, arena.of, strict=True):
            if v.kind == "weight":
                yield self.banks.words[v.tensor], 0
            elif v.kind == "state":
                yield self.states.words[v.tensor], self.states.of[v.tensor]
            else:
                yield offset + (0 if annex else self.at), annex

    def to_facts(self) -> dict[str, object]:
        """The facts of a section about the layout."""
        annexes = self.annexes.to_facts(self.states) if self.annexes else {}
        return {
            "memory": {"bytes": self.own * WORD},
            "tensors": [words * WORD for words in self.banks.words],
            "states": [words * WORD for words in self.states.words],
            **self.banks.to_facts(),
            **annexes,
        }


def lay_out(program: Program, settings: Mapping[str, object]) -> MemoryLayout:
    """Makes a layout.  settings: "bank", the most bytes of a buffer if a model needs several

    Raises MemoryLimit if the model does not fit.
    """
    dense, most = dense_of(program), setting(settings, "bank", BANK) // WORD
    sizes = [-(-words_of(t) // dense.get(n, 1)) for n, t in enumerate(program.tensors)]
    arenas = arenas_of(program, settings)
    words, end = row(sizes, HEAD)
    found = _together(program, Banks((0,) * len(sizes), words), end, arenas)
    if found.own > most:
        shapes = [t.shape for t in program.tensors]
        banks, end = banks_of(*tensors_read(program, arenas), sizes, shapes, HEAD, most)
        found = _together(program, banks, end, arenas)
    if found.own > most:
        found = _apart(program, found.banks, states_apart(program, end, most), arenas, most)
        if "bank" in settings:
            require_fits(program, found.own, found.annexes, most)
    return found


def layout_of(program: Program, section: Section, settings: Mapping[str, object]) -> MemoryLayout:
    """Reads the layout of an old section from its facts, so that weights stay where they are."""
    facts = section.facts
    tensors, words = ([at // WORD for at in facts[name]] for name in ("tensors", "states"))
    known = facts.get("banks", {"bytes": [], "of": [0] * len(tensors)})
    sizes = tuple(size // WORD for size in known["bytes"])
    banks = Banks(tuple(known["of"]), tuple(tensors), sizes)
    states, most = of_section(facts, words)
    arenas = arenas_of(program, settings)
    if most:
        return _apart(program, banks, states, arenas, most)
    return MemoryLayout(banks, states, end_of_weights(program, banks, states.own), arenas)


def _together(program: Program, banks: Banks, end: int, arenas: tuple[Arena, ...]) -> MemoryLayout:
    """The layout with states and values in the model's own buffer, after its weights."""
    words, at = row([words_of(s) for s in program.states], end)
    return MemoryLayout(banks, States((0,) * len(words), words), at, arenas)


def _apart(
    program: Program, banks: Banks, states: States, arenas: Sequence[Arena], most: int
) -> MemoryLayout:
    at = end_of_weights(program, banks, states.own)
    own, annexes = arenas_apart(program, arenas, states, most - at, most)
    return MemoryLayout(banks, states, at, own, annexes)
