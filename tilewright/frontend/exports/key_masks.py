"""Recognises what a model computes from the number of tokens alone: its masks of attention.

Input: a graph with `seqlens_k`.  Output: an equal graph whose masks are the comparison that
attention kernels know: a key is seen if it is not behind the row's position (and inside the
window).  Exporters write masks in many ways, so a mask is not recognised by its form: it is
computed for several numbers of tokens and compared.  A mask of another kind is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from tilewright.base.dtypes import I32
from tilewright.base.errors import UnsupportedOp
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operators.transformer import HIDDEN, visible_keys
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    broadcast,
    cast,
    evaluate,
    literal,
    node,
    reshape,
    toposort,
    with_source,
)
from tilewright.graph.ops import Array

#: Scores below this are hidden: models use the lowest f32 or f16, or -10000.
LOW = -9e3
#: Ops that cost nothing worth saving; all others are computed from few numbers again and again.
CHEAP = (*ops.VIEWS, ops.Elementwise, ops.Input, ops.Constant, ops.Iota)


@dataclass(frozen=True)
class NewRows:
    """last: index of the last valid key, an input;  past: rows before the new ones, made of it
    rows, room: the new rows and all keys"""

    last: Node
    past: Node
    rows: int
    room: int

    def numbers(self) -> tuple[int, ...]:
        """Values of `last` that show what depends on it, padded first runs among them."""
        n, room = self.rows, self.room
        found = {0, n // 2, n - 1, n, n + 1, (n + room) // 2, room - 2, room - 1}
        return tuple(sorted(x for x in found if 0 <= x < room))

    def visible(self, last: int, mask: Mask) -> Array:
        """[rows, room]: which keys each row sees; rows behind the last token are nobody's."""
        position = max(last - self.rows + 1, 0) + np.arange(self.rows)[:, None]
        keys = np.arange(self.room)[None]
        if mask.padding:
            return np.broadcast_to(keys <= last, (self.rows, self.room))
        return (keys <= position) & ((keys > position - mask.window) | (mask.window < 0))


@dataclass(frozen=True)
class Mask:
    """window: how many keys a row sees, its own included; -1: all
    padding: it hides only keys behind the last token
    plain:   it changes no score of a key that is seen"""

    window: int = -1
    padding: bool = False
    plain: bool = True


def with_compared_keys(graph: Graph, rows: NewRows, scored: Iterable[Node]) -> Graph:
    """Raises UnsupportedOp for a mask that is not such a comparison, and for scores without one.

    scored: the operands of softmaxes over all keys
    """
    alone = _from_last(graph, rows.last)
    late = [n for n in graph.nodes() if n not in alone and not n.constant]
    found = {n: masked for n in late if (masked := _masked(n, alone, rows)) is not None}
    bare = [n for n in scored if found.keys().isdisjoint(toposort([n], _computed_from))]
    if bare and rows.rows > 1:
        raise _unknown("attention hides no keys", bare[0])
    made: dict[Node, Node] = {}
    for n in graph.nodes():
        inputs = tuple(made[i] for i in n.inputs)
        counted = _counted(n, rows) if n in alone else None
        if counted is not None:
            made[n] = counted
        elif n in found:
            scores, mask = found[n]
            kept = made[scores] if mask.plain else node(n.op, *inputs, source=n.source)
            made[n] = _compared(kept, rows, mask, n)
        elif all(a is b for a, b in zip(inputs, n.inputs, strict=True)):
            made[n] = n
        else:
            made[n] = node(n.op, *inputs, source=n.source)
        if n in bare:  # a model of one token at a time sees all keys that there are
            made[n] = _compared(made[n], rows, Mask(), n)
    outputs = tuple((name, made[n]) for name, n in graph.outputs)
    return Graph(graph.name, graph.inputs, outputs)


def _computed_from(n: Node) -> tuple[Node, ...]:
    """The operands of a function of single elements."""
    return n.inputs if isinstance(n.op, (ops.Elementwise, *ops.VIEWS)) else ()


def _unknown(message: str, n: Node) -> UnsupportedOp:
    return UnsupportedOp(
        message,
        hint="Supported are masks that hide keys behind the token's position, with or without a "
        "window. Export the model with onnxruntime-genai's model builder",
        **n.source.facts, shape=n.shape,
    )  # fmt: skip


def _from_last(graph: Graph, last: Node) -> frozenset[Node]:
    """The nodes that follow from `last` and constants."""
    found = {last}
    for n in graph.nodes():
        if any(i in found for i in n.inputs) and all(i in found or i.constant for i in n.inputs):
            found.add(n)
    return frozenset(found)


def _counted(n: Node, rows: NewRows) -> Node | None:
    """The positions of the new rows, or a number that is `last` and some more, without the sums
    over masks that models compute them by."""
    if isinstance(n.op, CHEAP) or n.dtype.kind != "int" or n.size not in (1, rows.rows):
        return None
    values = _values(n, rows)
    if n.size == 1:
        more = {int(value.item()) - last for last, value in values.items()}
        made = al.add(cast(rows.last, n.dtype), more.pop())
        return None if more else reshape(made, n.shape)
    for last, value in values.items():
        valid = min(last + 1, rows.rows)
        line = max(last - rows.rows + 1, 0) + np.arange(rows.rows)
        if not np.array_equal(value.ravel()[:valid], line[:valid]):
            return None
    line_of = al.add(cast(rows.past, n.dtype), cast(al.position_along((rows.rows,), 0), n.dtype))
    return reshape(line_of, n.shape)


@lru_cache(maxsize=4)  # all layers share a mask
def _values(n: Node, rows: NewRows) -> dict[int, Array]:
    """By values of `last`."""
    name = getattr(rows.last.op, "name", "")
    return {x: evaluate([n], {name: np.array([x], np.int32)})[0] for x in rows.numbers()}


def _masked(n: Node, alone: frozenset[Node], rows: NewRows) -> tuple[Node, Mask] | None:
    """The scores that a node masks, and how."""
    if not isinstance(n.op, ops.Elementwise) or n.shape[-2:] != (rows.rows, rows.room):
        return None
    if n.op.fn == "add":
        for scores, mask in (n.inputs, n.inputs[::-1]):
            if mask in alone and scores not in alone:
                values = _values(_inside(mask), rows)
                # embeddings and positions may be as wide as the room
                if any((v < LOW).any() for v in values.values()):
                    plain = all((v[v >= LOW] == 0).all() for v in values.values())
                    shown = {x: v >= LOW for x, v in values.items()}
                    return scores, replace(_mask(n, shown, rows), plain=plain)
    if n.op.fn == "where" and n.inputs[0] in alone:
        condition, yes, no = n.inputs
        for scores, other, seen in ((yes, no, True), (no, yes, False)):
            number = literal(other)
            if number is not None and number < LOW:
                values = _values(_inside(condition), rows)
                return scores, _mask(n, {x: v == seen for x, v in values.items()}, rows)
    return None


def _inside(n: Node) -> Node:
    """What is repeated."""
    while isinstance(n.op, ops.Broadcast):
        n = n.inputs[0]
    return n


def _mask(n: Node, seen: Mapping[int, Array], rows: NewRows) -> Mask:
    """The mask that hides as a node does."""
    full = seen[rows.room - 1]
    width = int(np.count_nonzero(full.reshape(-1, full.shape[-1])[-1]))
    for mask in Mask(), Mask(window=width), Mask(padding=True):
        if all(_is(rows.visible(last, mask), found, last) for last, found in seen.items()):
            return mask
    raise _unknown("attention hides keys in a way that is not supported", n)


def _is(wanted: Array, found: Array, last: int) -> bool:
    """Whether they agree in the rows of tokens."""
    whole = np.broadcast_to(found, (*found.shape[:-2], *wanted.shape))
    return bool((whole == wanted)[..., : last + 1, :].all())


def _compared(scores: Node, rows: NewRows, mask: Mask, n: Node) -> Node:
    """The scores where a key is seen."""
    with with_source(n.source):
        if mask.padding:
            keys = cast(al.position_along((rows.rows, rows.room), 1), I32)
            seen = al.apply("le", keys, reshape(rows.last, (1, 1)))
        else:
            seen = visible_keys(rows.past, rows.rows, rows.room, mask.window)
        shape = (*(1,) * (scores.rank - 2), rows.rows, rows.room)
        return al.where(broadcast(reshape(seen, shape), scores.shape), scores, HIDDEN)
