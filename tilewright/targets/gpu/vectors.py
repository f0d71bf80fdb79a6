"""Which buffers a kernel reads or writes in vectors.

Input: loops.  Output: numbers of buffers.  Where such a buffer begins matters: at a whole vector.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.base.dtypes import F16
from tilewright.kernel.expr import Dot, Load, lanes_of
from tilewright.kernel.loops import CopyAhead, For, If, Set, Stmt, Store, TileFn
from tilewright.kernel.tree import walk

WORD = 4


def statements(stmts: tuple[Stmt, ...]) -> Iterator[Set | Store | CopyAhead]:
    """All that compute a value, or copy some."""
    for s in stmts:
        match s:
            case For():
                yield from statements(s.body)
            case If():
                yield from statements((*s.then, *s.orelse))
            case Set() | Store() | CopyAhead():
                yield s


def vectors(stmts: tuple[Stmt, ...]) -> dict[int, int]:
    """The buffers that are read or written in vectors, and of how many lanes at most."""
    found: dict[int, int] = {}

    def note(buffer: int, lanes: int) -> None:
        if lanes > 1:
            found[buffer] = max(lanes, found.get(buffer, 0))

    for s in statements(stmts):
        if isinstance(s, CopyAhead):
            note(s.source, s.lanes)
            continue
        for x in walk(s.value):
            if isinstance(x, Load):
                note(x.buffer, x.lanes)
        if isinstance(s, Store):
            note(s.buffer, lanes_of(s.value))
    return found


def alignments(fn: TileFn) -> dict[int, int]:
    """The bytes of which the begin of a buffer is a multiple, where more is asked of it than of its
    elements."""
    found = {n: lanes for n, lanes in vectors(fn.body).items() if n < len(fn.buffers)}
    sizes = {n: F16.size if fn.buffers[n].halves else fn.buffers[n].dtype.size for n in found}
    return {n: min(lanes * sizes[n], 4 * WORD) for n, lanes in found.items()}


def in_vectors(fn: TileFn) -> bool:
    """Whether the kernel needs its buffers to begin at whole vectors."""
    return any(n < len(fn.buffers) for n in vectors(fn.body))


def packs_bytes(fn: TileFn) -> bool:
    """Whether it computes on vectors of bytes, which are then words."""
    values = (s.value for s in statements(fn.body) if not isinstance(s, CopyAhead))
    return any(isinstance(x, Dot) for value in values for x in walk(value))
