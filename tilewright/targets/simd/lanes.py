"""Moves values between the lanes of vectors: 4x4 transposes, and reductions across lanes.

Input: four vectors of four lanes, or a register. Output: expressions; intermediate steps are added
to a builder.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.scalars import COMBINE
from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Call, Expr, Lane, Reg, Shuffle, dtype_of, lanes_of

LOW, HIGH = (0, 4, 1, 5), (2, 6, 3, 7)
FIRST, LAST = (0, 1, 4, 5), (2, 3, 6, 7)


def transposed(b: Builder, rows: Sequence[Expr]) -> list[Expr]:
    """Four vectors: vector i holds lane i of each row, in order."""
    named = [_named(b, f"row{i}", row) for i, row in enumerate(rows)]
    pairs = [
        _named(b, f"pair{i}{j}", Shuffle(named[2 * i], named[2 * i + 1], half))
        for i in range(2)
        for j, half in enumerate((LOW, HIGH))
    ]
    low, high = (pairs[0], pairs[2]), (pairs[1], pairs[3])
    return [Shuffle(*half, picks) for half in (low, high) for picks in (FIRST, LAST)]


def lane_sums(rows: Sequence[Expr]) -> Expr:
    """A vector: lane i is the sum of the lanes of row i."""

    def halves(a: Expr, b: Expr) -> Expr:
        return _sum(Shuffle(a, b, LOW), Shuffle(a, b, HIGH))

    first, last = halves(rows[0], rows[1]), halves(rows[2], rows[3])
    return _sum(Shuffle(first, last, FIRST), Shuffle(first, last, LAST))


def across_lanes(op: str, acc: Reg) -> Expr:
    """One scalar from the lanes of a register, which are combined pairwise."""
    parts: list[Expr] = [Lane(acc, i) for i in range(acc.lanes)]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [Call(COMBINE[op], pair, acc.dtype) for pair in pairs]
    return parts[0]


def _sum(a: Expr, b: Expr) -> Call:
    return Call("add", (a, b), dtype_of(a), lanes_of(a))


def _named(b: Builder, stem: str, value: Expr) -> Reg:
    reg = Reg(f"{stem}{dtype_of(value)}", dtype_of(value), lanes_of(value))
    b.set(reg.name, value)
    return reg
