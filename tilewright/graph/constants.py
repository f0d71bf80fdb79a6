"""Constants that reach memory: which ones do, and when two of them are the same.

Input: nodes without run-time inputs.  Output: a number for each, equal for equal computations, also
in graphs that were imported separately (one per bucket), so that buckets share their weights.
Names do not matter: two subgraphs may give one name to different weights.

A constant that is made by counting and is larger than all weights is computed by kernels, not
stored.

    where(column <= row, 0, -inf) of [1024, 1024]: three calls, no table     a[1024, 1] + b[1, 1024]
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.base.dtypes import BOOL, F32, I8, I16, I32, I64, U8
from tilewright.base.scalars import SCALARS
from tilewright.graph import ops
from tilewright.graph.node import Graph, Node, fact, literal, toposort

#: Constants of up to so many elements are tables in any case.
SMALL = 2**14
#: Others are, if they have no more than so many times the elements of the tables they are made of,
GROWTH = 4
#: or if computing an element takes more calls.
CALLS = 24

_COUNTED = frozenset((BOOL, F32, I8, I16, I32, I64, U8))


class _Made(NamedTuple):
    """How kernels get an element: calls, and the elements of the tables that these read.

    counted: whether they compute it, and load it from no table of its own
    """

    calls: int
    tables: int
    counted: bool


@fact(lambda n: n.inputs if n.constant and isinstance(n.op, (*ops.VIEWS, ops.Elementwise)) else ())
def _made(n: Node, operands: list[_Made]) -> _Made:
    if isinstance(n.op, ops.Iota) or literal(n) is not None:
        return _Made(0, 0, n.size > SMALL)
    fn = n.op.fn if isinstance(n.op, ops.Elementwise) else ""
    own = bool(fn)
    calls, tables = sum(o.calls for o in operands) + own, sum(o.tables for o in operands)
    large = n.size > max(SMALL, GROWTH * tables) and bool(operands)
    counted = large and calls <= CALLS and (not own or _is_cheap(n, fn))
    passed = counted or isinstance(n.op, ops.VIEWS)
    return _Made(calls, tables, counted) if passed else _Made(0, n.size, False)


def _is_cheap(n: Node, fn: str) -> bool:
    """True if any target computes the call for about as much as a load, and exactly."""
    exact = fn != "nibble" and not SCALARS[fn].ulp
    return exact and all(x.dtype in _COUNTED for x in (n, *n.inputs))


def counted(graph: Graph) -> frozenset[Node]:
    """The constants that kernels compute; none that has fewer elements than all weights."""
    constants = [n for n in graph.nodes() if n.constant]
    weights = sum(n.size for n in constants if isinstance(n.op, ops.Weight))
    return frozenset(n for n in constants if n.size > weights and _made(n).counted)


class Constants:
    """Numbers for constants: equal for equal ones."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._known: dict[Node, int] = {}

    def number(self, n: Node) -> int:
        if n not in self._known:
            for m in toposort([n], lambda m: (i for i in m.inputs if i not in self._known)):
                self._known[m] = self._numbers.setdefault(self._key(m), len(self._numbers))
        return self._known[n]

    def _key(self, n: Node) -> object:
        """The digest of the elements, or the computation and its operands' numbers."""
        if isinstance(n.op, (ops.Weight, ops.Constant)):
            return (n.dtype.name, n.shape, n.op.digest)
        return (type(n.op).__name__, ops.attributes(n.op), tuple(self._known[i] for i in n.inputs))
