"""Lines of f32 to shared memory as halves, eight at a time: four whole words.

Input: what gives four elements of a line, and where eight of them lie in shared memory.  Output:
statements that read a block into registers, and that write these.  Operands of products, which
may lie in other ways, are in staging.py and lines.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil, prod

from tilewright.base.dtypes import F16, F32
from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Call, Expr, Join, Reg
from tilewright.kernel.index import Index, unflatten
from tilewright.kernel.spec import EIGHT
from tilewright.targets.gpu.staging import LANES, own

#: Four elements at a line and a place in it.
Vector = Callable[[Index, Index], Expr]
#: Where an element lies in shared memory, by its line and its place in it.
Place = Callable[[Index, Index], Index]


def read_eights(b: Builder, name: str, lines: int, width: int, four: Vector) -> None:
    """Registers := this thread's units of so many lines, each with `width` elements."""
    for n, line, at in _units(b, lines, width):
        for half in range(2):
            b.set(f"{name}{n}_{half}", four(line, at + half * LANES))


def write_eights(b: Builder, name: str, lines: int, width: int, area: int, place: Place) -> None:
    """Shared memory := these registers, as halves."""
    for n, line, at in _units(b, lines, width):
        first, second = (Reg(f"{name}{n}_{half}", F32, LANES) for half in range(2))
        b.store(area, place(line, at), eight(first, second))


def eight(first: Expr, second: Expr) -> Expr:
    """Two vectors of four numbers as eight halves."""
    return Join(tuple(Call("cast", (x,), F16, LANES) for x in (first, second)))


def _units(b: Builder, lines: int, width: int) -> Iterator[tuple[int, Index, Index]]:
    """Number, line and first element of each unit; neighbours read neighbours."""
    shape = (lines, width // EIGHT)
    for n in range(ceil(prod(shape) / b.threads)):
        with own(b, b.thread + n * b.threads, prod(shape)) as flat:
            line, at = unflatten(flat, shape)
            yield n, line, at * EIGHT
