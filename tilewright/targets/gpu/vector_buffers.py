"""Finds the buffers that a kernel reads or writes as vectors, and the alignment that they need.

Input: the loops of a kernel. Output: numbers of buffers. Such a buffer must begin at a whole
vector.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.base.abi import WORD_BYTES
from tilewright.base.dtypes import F16
from tilewright.kernel.expr import Dot, Load, lanes_of
from tilewright.kernel.loops import AsyncCopy, Set, Stmt, Store, TileFn, every_statement
from tilewright.kernel.tree import walk


def statements(stmts: tuple[Stmt, ...]) -> Iterator[Set | Store | AsyncCopy]:
    """All statements that compute a value or copy one."""
    return (s for s in every_statement(stmts) if isinstance(s, Set | Store | AsyncCopy))


def vectors(stmts: tuple[Stmt, ...]) -> dict[int, int]:
    """The buffers that are read or written as vectors, with their largest number of lanes."""
    found: dict[int, int] = {}

    def note(buffer: int, lanes: int) -> None:
        if lanes > 1:
            found[buffer] = max(lanes, found.get(buffer, 0))

    for s in statements(stmts):
        if isinstance(s, AsyncCopy):
            note(s.source, s.lanes)
            continue
        for x in walk(s.value):
            if isinstance(x, Load):
                note(x.buffer, x.lanes)
        if isinstance(s, Store):
            note(s.buffer, lanes_of(s.value))
    return found


def stored_singly(fn: TileFn) -> frozenset[int]:
    """The buffers to which single elements are written."""
    found = (s for s in statements(fn.body) if isinstance(s, Store) and s.buffer < len(fn.buffers))
    return frozenset(s.buffer for s in found if lanes_of(s.value) == 1)


def alignments(fn: TileFn) -> dict[int, int]:
    """The alignment in bytes of each buffer that needs more than its elements' alignment."""
    found = {n: lanes for n, lanes in vectors(fn.body).items() if n < len(fn.buffers)}
    sizes = {n: F16.size if fn.buffers[n].as_f16 else fn.buffers[n].dtype.size for n in found}
    return {n: min(lanes * sizes[n], 4 * WORD_BYTES) for n, lanes in found.items()}


def needs_whole_vectors(fn: TileFn) -> bool:
    """True if a buffer of the kernel must begin at a whole vector."""
    return any(n < len(fn.buffers) for n in vectors(fn.body))


def packs_bytes(fn: TileFn) -> bool:
    """True if the kernel computes on vectors of bytes, which are then words."""
    values = (s.value for s in statements(fn.body) if not isinstance(s, AsyncCopy))
    return any(isinstance(x, Dot) for value in values for x in walk(value))
