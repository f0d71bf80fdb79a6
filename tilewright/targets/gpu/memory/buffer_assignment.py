"""Shares a model out to several buffers, if one is too small.

Input: the sizes of tensors, states and values, and what is read together. Output: for each its
buffer and first unit there. A step can read weights from at most one further buffer (a bank), so
all large tensors of a step get the same bank. States and values go to annexes, of which a step can
bind several. Inputs, outputs and small tensors stay in the model's own buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.base.abi import align
from tilewright.base.errors import MemoryLimit
from tilewright.plan import Plan, Value
from tilewright.plan.arena import Lifetime, arena_values, consecutive, lifetimes_of, place_in_arenas

#: Tensors of fewer units, or of less than this part of a buffer, stay in the model's own buffer.
LEAST_LARGE_UNITS, PART = 2**18, 16


@dataclass(frozen=True)
class BufferAssignment:
    """The buffer of each tensor, state or value (0: the model's own buffer) and its first unit
    there; the units of each further buffer."""

    buffers: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...] = ()

    @classmethod
    def in_one(cls, offsets: tuple[int, ...]) -> BufferAssignment:
        """All of them in the model's own buffer."""
        return cls((0,) * len(offsets), offsets)


def assign_banks(
    reads: Sequence[Sequence[int]],
    joined: Sequence[Sequence[int]],
    sizes: Sequence[int],
    shapes: Sequence[Sequence[int]],
    head: int,
    most: int,
    unit: int,
) -> tuple[BufferAssignment, int]:
    """The banks, and the end of the weights in the model's own buffer.

    reads: the tensors that each step reads;  joined: those of steps that one launch may compute,
           which share a bank if they fit
    sizes, shapes: units and shape of each tensor;  head: units before the weights
    most:   units of a buffer;  unit: bytes of a unit

    Raises MemoryLimit if the tensors of one step do not fit a bank.
    """
    of, bank, filled = [0] * len(sizes), 0, most
    ends: list[int] = []
    begins = [0] * len(sizes)
    large = [n for n, size in enumerate(sizes) if not _stays_in_own_buffer(size, most)]
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
                bytes=need * unit,
                limit=most * unit,
            )
        if filled + need > most:
            bank, filled = bank + 1, 0
            ends.append(0)
        for n in group:
            of[n], begins[n] = bank, filled
            filled += align(sizes[n])
        ends[-1] = filled
    kept = [n for n in range(len(sizes)) if not of[n]]
    places, end = consecutive([sizes[n] for n in kept], head)
    for n, place in zip(kept, places, strict=True):
        begins[n] = place
    return BufferAssignment(tuple(of), tuple(begins), tuple(ends)), end


def assign_states(sizes: Sequence[int], head: int, most: int) -> BufferAssignment:
    """Puts large states in annexes of at most `most` units, and small ones in the model's own
    buffer from unit `head` on."""
    kept = [n for n, size in enumerate(sizes) if _stays_in_own_buffer(size, most)]
    offsets, of, (_, *further) = place_in_arenas(
        [Lifetime(size, 0, 0) for size in sizes], 0, most, kept
    )
    begins = (at if annex else head + at for at, annex in zip(offsets, of, strict=True))
    return BufferAssignment(of, tuple(begins), tuple(further))


def assign_values(
    plan: Plan, size_of: Callable[[Value], int], room: int, most: int, before: int
) -> tuple[BufferAssignment, int]:
    """Puts values of a plan in annexes if they need more than `room` units of the model's own
    buffer.  Also returns the units that they take there.

    before: annexes of states, which come first; `sizes` does not include them
    """
    inside = arena_values(plan)
    kept = {n for n, i in enumerate(inside) if plan.values[i].kind in ("input", "output")}
    offsets, of, (own, *further) = place_in_arenas(
        lifetimes_of(plan, inside, size_of), room, most, kept
    )
    at = dict(zip(inside, zip(offsets, of, strict=True), strict=True))
    every = [at.get(i, (0, 0)) for i in range(len(plan.values))]
    numbers = tuple(number and number + before for _, number in every)
    return BufferAssignment(numbers, tuple(offset for offset, _ in every), tuple(further)), own


def _stays_in_own_buffer(size: int, most: int) -> bool:
    """True if a tensor or state always stays in the model's own buffer."""
    return size < min(LEAST_LARGE_UNITS, most // PART)


class _Groups:
    """Groups of tensors, by number, that must share a bank; at first each tensor is alone."""

    def __init__(self, sizes: dict[int, int], most: int) -> None:
        """sizes: of each tensor, and later of the group whose first tensor it is"""
        self._sizes, self._most = sizes, most
        self._first = {n: n for n in sizes}

    def _root(self, n: int) -> int:
        while self._first[n] != n:
            n = self._first[n]
        return n

    def put_together(self, tensors: Sequence[int], *, if_they_fit: bool = False) -> None:
        """Merges the groups of these tensors; tensors that are in no group are ignored."""
        known = [n for n in tensors if n in self._first]
        for n in known[1:]:
            low, high = sorted((self._root(known[0]), self._root(n)))
            total = self._sizes[low] + self._sizes[high]
            if low != high and not (if_they_fit and total > self._most):
                self._first[high], self._sizes[low] = low, total

    def all(self) -> list[list[int]]:
        groups: dict[int, list[int]] = {}
        for n in self._first:
            groups.setdefault(self._root(n), []).append(n)
        return list(groups.values())
