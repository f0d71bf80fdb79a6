"""Where the weights of a model lie: in its own buffer, or in further ones (banks).

Input: a program, the words of each tensor, the most words of a buffer.  Output: for each tensor its
bank and first word there.  A step reads weights from at most one bank, beside the model's own
buffer; so tensors that a step reads together lie together.  Small ones stay in the model's buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.alignment import align
from tilewright.base.errors import MemoryLimit
from tilewright.plan import Program
from tilewright.plan.arena import row

WORD = 4
#: Bytes of a buffer where a model needs several.  Adapters of desktops bind at least this much.
BANK = 2**30
#: Tensors of fewer words, or of less than this part of a bank, stay in the model's own buffer.
LEAST, PART = 2**18, 16


@dataclass(frozen=True)
class Banks:
    """Per tensor the bank (0: the model's own buffer) and the first word there; the words of each
    further bank."""

    of: tuple[int, ...]
    words: tuple[int, ...]
    sizes: tuple[int, ...] = ()

    def to_facts(self) -> dict[str, dict[str, list[int]]]:
        """What a section says of them; nothing where one buffer has all."""
        if not self.sizes:
            return {}
        return {"banks": {"bytes": [n * WORD for n in self.sizes], "of": list(self.of)}}


def banks_of(program: Program, sizes: Sequence[int], head: int, most: int) -> tuple[Banks, int]:
    """The banks, and the words of the model's own buffer that tensors leave behind them.

    sizes: words of each tensor;  head: words before them;  most: words of a buffer
    Raises MemoryLimit where tensors that a step reads together need more.
    """
    of, bank, filled = [0] * len(sizes), 0, most
    ends: list[int] = []
    words = [0] * len(sizes)
    for group in _together(program, sizes, min(LEAST, most // PART)):
        need = sum(align(sizes[n]) for n in group)
        if need > most:
            raise MemoryLimit(
                "weights that one kernel reads need more than one GPU buffer",
                hint="Quantise the largest tensor of the model, or split it",
                bytes=need * WORD,
                limit=most * WORD,
            )
        if filled + need > most:
            bank, filled = bank + 1, 0
            ends.append(0)
        for n in group:
            of[n], words[n] = bank, filled
            filled += align(sizes[n])
        ends[-1] = filled
    small = [n for n in range(len(sizes)) if not of[n]]
    places, end = row([sizes[n] for n in small], head)
    for n, place in zip(small, places, strict=True):
        words[n] = place
    return Banks(tuple(of), tuple(words), tuple(ends)), end


def _together(program: Program, sizes: Sequence[int], least: int) -> list[list[int]]:
    """The large tensors, those that a step reads together in one list, by their numbers."""
    first = list(range(len(sizes)))

    def root(n: int) -> int:
        while first[n] != n:
            n = first[n]
        return n

    for plan in program.plans:
        for step in plan.steps:
            values = (plan.values[a.value] for a in step.reads)
            tensors = [v.tensor for v in values if v.kind == "weight" and sizes[v.tensor] >= least]
            for n in tensors[1:]:
                low, high = sorted((root(tensors[0]), root(n)))
                first[high] = low
    groups: dict[int, list[int]] = {}
    for n, size in enumerate(sizes):
        if size >= least:
            groups.setdefault(root(n), []).append(n)
    return list(groups.values())
