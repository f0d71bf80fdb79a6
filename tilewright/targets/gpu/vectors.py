"""Which buffers a kernel reads or writes in vectors.

Input: loops.  Output: numbers of buffers.  Where such a buffer begins matters: at a whole vector.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.kernel.expr import Dot, Load, lanes_of
from tilewright.kernel.loops import For, If, Set, Stmt, Store, TileFn
from tilewright.kernel.tree import walk


def statements(stmts: tuple[Stmt, ...]) -> Iterator[Set | Store]:
    """All that compute a value."""
    for s in stmts:
        match s:
            case For():
                yield from statements(s.body)
            case If():
                yield from statements((*s.then, *s.orelse))
            case Set() | Store():
                yield s


def vectors(stmts: tuple[Stmt, ...]) -> dict[int, int]:
    """The buffers that are read or written in vectors, and of how many lanes at most."""
    found: dict[int, int] = {}

    def note(buffer: int, lanes: int) -> None:
        if lanes > 1:
            found[buffer] = max(lanes, found.get(buffer, 0))

    for s in statements(stmts):
        for x in walk(s.value):
            if isinstance(x, Load):
                note(x.buffer, x.lanes)
        if isinstance(s, Store):
            note(s.buffer, lanes_of(s.value))
    return found


def in_vectors(fn: TileFn) -> bool:
    """Whether the kernel needs its buffers to begin at whole vectors."""
    return any(n < len(fn.buffers) for n in vectors(fn.body))


def packs_bytes(fn: TileFn) -> bool:
    """Whether it computes on vectors of bytes, which are then words."""
    return any(isinstance(x, Dot) for s in statements(fn.body) for x in walk(s.value))
