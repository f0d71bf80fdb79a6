"""Places weights in the model's own buffer or in further buffers (banks).

Input: the weights that each step reads, the words of each tensor, the largest size of a buffer.
Output: for each tensor its bank and first word there. A step can read weights from at most one
bank, besides the model's own buffer, so all large tensors of a step get the same bank. Small ones
stay in the model's own buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.abi import align
from tilewright.base.errors import MemoryLimit
from tilewright.plan.arena import row

WORD = 4
#: Default bytes of a buffer if a model needs several.  Desktop adapters bind at least this much.
BANK = 2**30
#: Tensors of fewer words, or of less than this part of a bank, stay in the model's own buffer.
LEAST, PART = 2**18, 16


@dataclass(frozen=True)
class Banks:
    """The bank of each tensor (0: the model's own buffer) and its first word there; the words of
    each further bank."""

    of: tuple[int, ...]
    words: tuple[int, ...]
    sizes: tuple[int, ...] = ()

    def to_facts(self) -> dict[str, dict[str, list[int]]]:
        """The facts of a section about banks; empty if one buffer is enough."""
        if not self.sizes:
            return {}
        return {"banks": {"bytes": [n * WORD for n in self.sizes], "of": list(self.of)}}


def banks_of(
    reads: Sequence[Sequence[int]],
    joined: Sequence[Sequence[int]],
    sizes: Sequence[int],
    shapes: Sequence[Sequence[int]],
    head: int,
    most: int,
) -> tuple[Banks, int]:
    """The banks, and the end of the weights in the model's own buffer, in words.

    reads: the tensors that each step reads;  joined: those of steps that one dispatch may compute,
           which share a bank if they fit
    sizes, shapes: words and shape of each tensor;  head: words before the weights
    most:   words of a buffer

    Raises MemoryLimit if the tensors of one step do not fit a bank.
    """
    of, bank, filled = [0] * len(sizes), 0, most
    ends: list[int] = []
    words = [0] * len(sizes)
    large = [n for n, size in enumerate(sizes) if not small(size, most)]
    groups = _Groups({n: align(sizes[n]) for n in large}, most)
    for tensors in reads:
        groups.put_together(tensors)
    for tensors in joined:
        groups.put_together(tensors, if_they_fit=True)
    for group in groups.all():
        need = sum(align(sizes[n]) for n in group)
        if need > most:
            largest = max(group, key=sizes.__getitem__)
            raise MemoryLimit(
                "weights that one kernel reads need more than one GPU buffer, the largest of shape "
                f"{list(shapes[largest])}",
                hint="Raise --bank, or quantise that tensor or split it in the model",
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
    kept = [n for n in range(len(sizes)) if not of[n]]
    places, end = row([sizes[n] for n in kept], head)
    for n, place in zip(kept, places, strict=True):
        words[n] = place
    return Banks(tuple(of), tuple(words), tuple(ends)), end


def small(words: int, most: int) -> bool:
    """True if a tensor or state always stays in the model's own buffer."""
    return words < min(LEAST, most // PART)


class _Groups:
    """Groups of tensors, by number, that must share a bank; at first each tensor is alone."""

    def __init__(self, words: dict[int, int], most: int) -> None:
        """words: of each tensor, and later of the group whose first tensor it is"""
        self._words, self._most = words, most
        self._first = {n: n for n in words}

    def _root(self, n: int) -> int:
        while self._first[n] != n:
            n = self._first[n]
        return n

    def put_together(self, tensors: Sequence[int], *, if_they_fit: bool = False) -> None:
        """Merges the groups of these tensors; tensors that are in no group are ignored."""
        known = [n for n in tensors if n in self._first]
        for n in known[1:]:
            low, high = sorted((self._root(known[0]), self._root(n)))
            total = self._words[low] + self._words[high]
            if low != high and not (if_they_fit and total > self._most):
                self._first[high], self._words[low] = low, total

    def all(self) -> list[list[int]]:
        groups: dict[int, list[int]] = {}
        for n in self._first:
            groups.setdefault(self._root(n), []).append(n)
        return list(groups.values())
