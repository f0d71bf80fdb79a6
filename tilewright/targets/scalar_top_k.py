"""The positions of a row's smallest integers in order (top-k), by one thread: a tournament tree.

Input: a kernel of the form `TopK`.  Output: the loop nest of one tile, which is a row.  A node
holds the smallest of the 16 entries below it, with its position.  The root is the next result.
Then only the nodes above that position are recomputed, from the entries that come later in the
order.

    24,000 numbers -> 1,500 nodes -> 94 -> 6 -> 1;  each result reads 16 + 16 + 16 + 6 entries
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.base.dtypes import BOOL, I32
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import Call, Expr, IndexValue, Load, Reg, dtype_of, identity
from tilewright.kernel.extents import limited_first, points
from tilewright.kernel.form import TopK, form_as
from tilewright.kernel.index import Index, index, unflatten
from tilewright.kernel.loops import Scratch, TileFn
from tilewright.kernel.spec import Kernel

#: Children of a node.
FAN = 16


def lower(kernel: Kernel) -> TileFn:
    """Loops with one tile for each row.  Work: n to build the tree, and 16 log n for each
    result."""
    form = form_as(kernel, TopK)
    rows = limited_first(kernel, kernel.rows)
    b = Builder({}, points(kernel, rows), kernel)
    at: Values = dict(zip(rows, unflatten(b.tile, tuple(v.extent for v in rows)), strict=True))
    tree = _Tree(b, form, at, _levels(form.along.extent), len(kernel.buffers))
    tree.grow()
    with b.loop("next", Index(), index(form.first.extent)) as place:
        won = tree.take()
        b.store(0, kernel.store.substitute({**at, form.first: place}), won)
        tree.replace(won)
    return b.finish(kernel, tree.scratch)


def before(key: Expr, place: Expr, other: Expr, there: Expr) -> Expr:
    """Whether a number comes before another one: it is smaller, or equal with a smaller
    position."""
    earlier = Call("and", (Call("eq", (key, other), BOOL), Call("lt", (place, there), BOOL)), BOOL)
    return Call("or", (Call("lt", (key, other), BOOL), earlier), BOOL)


def _levels(count: int) -> tuple[int, ...]:
    """The sizes of the tree's levels: numbers first, then nodes, up to the root."""
    found = [count]
    while found[-1] > 1:
        found.append(-(-found[-1] // FAN))
    return tuple(found)


@dataclass(frozen=True)
class _Tree:
    """The tree of one row.  Level 0 is the row; each higher level has areas of numbers and
    positions.

    at:     index values of the row
    counts: nodes of each level
    first:  number of the first area
    """

    b: Builder
    form: TopK
    at: Values
    counts: tuple[int, ...]
    first: int

    @property
    def key(self) -> Reg:
        return Reg("key", dtype_of(self.form.value))

    @property
    def place(self) -> Reg:
        return Reg("place", I32)

    @property
    def scratch(self) -> tuple[Scratch, ...]:
        pairs = ((Scratch(self.key.dtype, n), Scratch(I32, n)) for n in self.counts[1:])
        return tuple(area for pair in pairs for area in pair)

    def node(self, level: int, number: Index) -> tuple[Expr, Expr]:
        """The number that a node holds, and its position in the row."""
        if level == 0:
            value = self.form.value.substitute({**self.at, self.form.along: number})
            return value, IndexValue(number, I32)
        area = self.first + 2 * (level - 1)
        return Load(area, number, self.key.dtype), Load(area + 1, number, I32)

    def store(self, level: int, number: Index) -> None:
        area = self.first + 2 * (level - 1)
        self.b.store(area, number, self.key)
        self.b.store(area + 1, number, self.place)

    def grow(self) -> None:
        """Computes all nodes from the lowest level up; among equal numbers the first one wins."""
        b = self.b
        for level, count in enumerate(self.counts[1:]):
            with b.loop("node", Index(), index(count)) as number:
                begin, end = self._children(level, number)
                self._set(self.node(level, begin))
                with b.loop("child", begin + 1, end, extent=self.counts[level]) as child:
                    self._better(level, child, lambda key, place: Call("lt", (key, self.key), BOOL))
                self.store(level + 1, number)

    def take(self) -> Reg:
        """The position of the smallest number; it and the number stay in registers."""
        key, place = self.node(len(self.counts) - 1, Index())
        last, won = self._last
        self.b.set(last.name, key)
        self.b.set(won.name, place)
        return won

    def replace(self, won: Reg) -> None:
        """Recomputes the tree above the position that won, from the leaves up: each node gets the
        smallest of its numbers that follow the winner in order."""
        b, count = self.b, self.counts[0]
        at = b.read(won, count) if count > FAN else Index()
        for level in range(len(self.counts) - 1):
            number = b.let(at // FAN ** (level + 1), "node")
            begin, end = self._children(level, number)
            b.set(self.key.name, identity("min", self.key.dtype, 1))
            b.set(self.place.name, IndexValue(index(count), I32))
            with b.loop("child", begin, end, extent=self.counts[level]) as child:
                self._better(level, child, self._next if level == 0 else self._earlier)
            self.store(level + 1, number)

    @property
    def _last(self) -> tuple[Reg, Reg]:
        return Reg("last", self.key.dtype), Reg("won", I32)

    def _earlier(self, key: Expr, place: Expr) -> Expr:
        return before(key, place, self.key, self.place)

    def _next(self, key: Expr, place: Expr) -> Expr:
        """Whether a number comes before the best so far, among those that are not results yet."""
        return Call("and", (before(*self._last, key, place), self._earlier(key, place)), BOOL)

    def _children(self, level: int, number: Index) -> tuple[Index, Index]:
        begin = self.b.let(number * FAN, "begin")
        return begin, self.b.let_min(begin + FAN, index(self.counts[level]))

    def _set(self, node: tuple[Expr, Expr]) -> None:
        for reg, value in zip((self.key, self.place), node, strict=True):
            self.b.set(reg.name, value)

    def _better(self, level: int, child: Index, wins: Callable[[Expr, Expr], Expr]) -> None:
        """Takes a child's number and position if `wins` says so."""
        key, place = self.node(level, child)
        read = Reg("child", self.key.dtype)
        self.b.set(read.name, key)
        here = Reg("there", I32)
        self.b.set(here.name, place)
        won = Reg("wins", BOOL)
        self.b.set(won.name, wins(read, here))
        self._set(
            (
                Call("where", (won, read, self.key), read.dtype),
                Call("where", (won, here, self.place), I32),
            )
        )
