"""Blocks of a reduction: the part of a sum's steps whose operands stay in the nearest cache.

Input: the summed axes, steps per pass and per block.  Output: `BlockedReduction`: which loops run
outside the register tiles and which inside, and one `CacheBlock` inside those loops.  It emits no
arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from tilewright.base.errors import ensure
from tilewright.kernel.builder import Builder, Values, nest
from tilewright.kernel.expr import Bound
from tilewright.kernel.index import Index, Var, flatten, index


@dataclass(frozen=True)
class CacheBlock:
    """One block: the values of the axes outside it, and its part of the innermost axis.

    start:  first step of the innermost axis
    passes: how many times `unroll` steps follow
    number: of the block, in [0, BlockedReduction.count)
    piece:  of the innermost axis, in [0, BlockedReduction.pieces)
    end:    steps of the innermost axis, where they are known at run time only
    """

    values: Values
    start: Index
    passes: Index
    number: Index
    piece: Index
    end: Index | None = None


@dataclass(frozen=True)
class BlockedReduction:
    """How a reduction is split.

    outside: axes whose loops run block by block
    inside:  axes whose loops run inside a block; `inner`, the last axis, in passes of `unroll`
    pieces:  parts of the innermost axis, each of `passes` passes but for the last
    """

    outside: tuple[Var, ...]
    inside: tuple[Var, ...]
    inner: Var
    unroll: int
    pieces: int
    passes: int

    @property
    def whole(self) -> int:
        """Passes over all of the innermost axis."""
        return self.inner.extent // self.unroll

    @property
    def rest(self) -> int:
        """Steps that fill no pass; they belong to the last piece."""
        return self.inner.extent % self.unroll

    @property
    def count(self) -> int:
        return prod(v.extent for v in self.outside) * self.pieces

    @property
    def steps(self) -> int:
        """The most steps along the innermost axis that a block holds."""
        return self.passes * self.unroll + self.rest

    @property
    def points(self) -> int:
        """The most steps that a block holds."""
        return prod(v.extent for v in self.inside) * self.steps

    @contextmanager
    def loop(self, b: Builder, values: Values) -> Iterator[CacheBlock]:
        """The loops over all blocks.  An axis that ends at run time is not divided into blocks."""
        if b.limited(self.inner):
            ensure(self.count == 1, "an end at run time, and several blocks", axis=self.inner)
            yield self.whole_of(values, b.end(self.inner), b)
            return
        with (
            nest(b, self.outside, values) as found,
            b.loop("kb", Index(), index(self.pieces)) as piece,
        ):
            shape = (*(v.extent for v in self.outside), self.pieces)
            number = flatten((*(found[v] for v in self.outside), piece), shape)
            first = b.let(piece * self.passes, "k")
            passes = index(self.passes)
            if self.whole % self.passes:
                passes = b.let_min(passes, first * -1 + self.whole, "ke")
            yield CacheBlock(found, first * self.unroll, passes, number, piece)

    def whole_of(self, values: Values, end: Index, b: Builder) -> CacheBlock:
        """One block up to a run-time end."""
        zero = Index()
        return CacheBlock(values, zero, b.let(end // self.unroll, "passes"), zero, zero, end)

    def is_first(self, block: CacheBlock) -> Bound:
        return Bound(block.number, 1)

    def is_last(self, block: CacheBlock) -> Bound:
        return Bound(block.number * -1 + (self.count - 1), 1)

    def is_last_piece(self, block: CacheBlock) -> Bound:
        return Bound(block.piece * -1 + (self.pieces - 1), 1)


def blocks(axes: tuple[Var, ...], unroll: int, most: int) -> BlockedReduction:
    """At most about `most` steps per block (0: all), in equal pieces of the innermost axis."""
    *outer, inner = axes or (Var("one", 1),)
    unroll = max(1, min(unroll, inner.extent))
    whole = inner.extent // unroll
    if most and inner.extent > most:
        pieces = -(-whole // max(1, most // unroll))
        passes = -(-whole // pieces)
        return BlockedReduction(tuple(outer), (), inner, unroll, -(-whole // passes), passes)
    inside: list[Var] = []
    size = inner.extent
    while outer and (not most or size * outer[-1].extent <= most):
        size *= outer[-1].extent
        inside.insert(0, outer.pop())
    return BlockedReduction(tuple(outer), tuple(inside), inner, unroll, 1, whole)
