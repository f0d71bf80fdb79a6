"""The graph of a language model that was exported to ONNX, for any number of new tokens.

Input: a model whose caches grow, and how many tokens the caches shall hold.  Output: graphs as
docs/decoders.md describes them: `input_ids` and `seqlens_k` in, the last token's `logits`
out, caches of a fixed size as states.  Mask and positions are computed from `seqlens_k`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np

from tilewright.base.dtypes import F32, I32, I64
from tilewright.base.errors import UsageError
from tilewright.frontend import arithmetic as al
from tilewright.frontend.exports.key_masks import NewRows, with_compared_keys
from tilewright.frontend.exports.past_rows import PastImport, Size
from tilewright.frontend.exports.signature import MASK, POSITIONS, GrowingCache, signature_of
from tilewright.frontend.float16_types import nodes_in_f16, outputs_of
from tilewright.frontend.importer import value_of
from tilewright.frontend.language.decoder import (
    IDS,
    LAST,
    LOGITS,
    ROWS,
    SharedInputs,
    rows_asked,
)
from tilewright.frontend.read import Model, TensorDecl, load
from tilewright.frontend.subgraphs import Visible
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    broadcast,
    cast,
    constant,
    gather,
    iota,
    node,
    reshape,
    slice_,
    with_pick_source,
)
from tilewright.graph.rounding import with_rounded_outputs

#: Rows of the room that a run must leave, so that the model can be imported with fewer past rows.
SPARE = 3
#: More tokens than any model was trained for.
MOST = 1 << 24


class ExportedModel:
    """A file as a source of graphs.

    room:      tokens that the caches hold; by default as many as the model allows, at most `most`
    most_rows: the largest number of new tokens of a graph
    narrow:    the type of each cache that is f16 or bf16
    in_f16:    names of nodes that compute in f16
    """

    def __init__(
        self, source: str | Path | Model, room: int = 0, most: int = MOST, trained: int = MOST
    ) -> None:
        """trained: how many tokens the model was trained for, as other files say

        Raises InvalidModel, UnsupportedOp, UnsupportedDType, UsageError.
        """
        self.model = load(source)
        self.signature = signature_of(self.model)
        trained = min(trained, *_rotations(self.model), MOST)
        self.room, self.name = room or min(trained, most), self.model.name
        if not SPARE < self.room <= trained:
            raise UsageError(
                f"the model cannot have a context of {self.room} tokens",
                hint=f"Ask for {SPARE + 1} to {max(trained, SPARE + 1)}", context=self.room,
            )  # fmt: skip
        self.most_rows = self.room - SPARE
        caches = self.signature.caches
        self.inputs = (IDS, LAST, *(c.input for c in caches))
        self.states: Mapping[str, str] = {c.input: c.output for c in caches}
        kinds = outputs_of(self.model)
        self.narrow = {
            name: kind
            for c in caches if (kind := kinds.get(c.output, c.widened_from))
            for name in (c.input, c.output)
        }  # fmt: skip
        self.in_f16 = nodes_in_f16(self.model)
        self._input = SharedInputs()

    @cached_property
    def words(self) -> int:
        """How many tokens the model has logits for."""
        declared = next(o for o in self.model.skeleton.graph.output if o.name == LOGITS)
        dims = declared.type.tensor_type.shape.dim
        if dims and dims[-1].HasField("dim_value"):
            return int(dims[-1].dim_value)
        return dict(self.graph().outputs)[LOGITS].shape[-1]

    def graph(
        self, dims: Mapping[str, int] | None = None, shapes: Mapping[str, object] | None = None
    ) -> Graph:
        """The model for `dims[ROWS]` new tokens."""
        rows = rows_asked(dims, shapes)
        if not 0 < rows <= self.most_rows:
            raise UsageError(
                f"{rows} new tokens do not fit the context of {self.room}, of which {SPARE} must "
                "stay free",
                hint=f"Choose smaller sizes with --buckets {ROWS}=1,8",
            )  # fmt: skip
        ids, last = self._input(IDS, (1, rows), I64), self._input(LAST, (1,), I32)
        past = al.apply("max", al.sub(reshape(last, ()), rows - 1), 0)
        known = NewRows(last, past, rows, self.room)
        states = {c.input: self._state(c) for c in self.signature.caches}
        made = self._imported(known, ids, states)
        values = made.values
        logits = of_last(value_of(values, LOGITS), last, rows)
        outputs = {c.output: value_of(values, c.output) for c in self.signature.caches}
        inputs = ((IDS, ids), (LAST, last), *states.items())
        graph = Graph(self.name, inputs, ((LOGITS, cast(logits, F32)), *outputs.items()))
        graph = with_compared_keys(graph, known, made.scored)
        declared = {values[n]: kind for n, kind in self.model.types.items() if n in values}
        kinds = {name: kind for name, kind in self.narrow.items() if name in outputs}
        return with_rounded_outputs(graph, kinds, declared)

    def _imported(self, known: NewRows, ids: Node, states: Mapping[str, Node]) -> PastImport:
        rows, full = known.rows, self.room - known.rows
        model = self.model
        weights: Visible = {name: model.constant(t) for name, t in model.weights.items()}
        decls = {decl.name: decl for decl in model.inputs}
        weights |= {name: self._constant(decls[name]) for name in self.signature.constants}
        sizes = [Size(past, weights | self._at(past, rows, decls)) for past in (full, full - 1, 1)]
        keys = al.apply("le", cast(iota((1, self.room), 1), I32), reshape(known.last, (1, 1)))
        place = al.add(reshape(known.past, (1, 1)), cast(iota((1, rows), 1), I32))
        values = weights | {IDS: cast(ids, decls[IDS].dtype)}
        if self.signature.mask:
            values[MASK] = cast(keys, decls[MASK].dtype)
        if self.signature.positions:
            values[POSITIONS] = cast(place, decls[POSITIONS].dtype)
        for c in self.signature.caches:
            values[c.input] = slice_(states[c.input], (0,) * 4, (1, c.heads, full, c.width))
        made = PastImport(
            model, cast(known.past, I64), states, sizes[0], (sizes[1], sizes[2]), values
        )
        made.run(model.nodes)
        return made

    def _at(self, past: int, rows: int, decls: Mapping[str, TensorDecl]) -> Visible:
        """The model's inputs at a number of past rows."""
        shapes = {IDS: (1, rows), POSITIONS: (1, rows), MASK: (1, past + rows)}
        made = {
            name: self._input(name, shape, decls[name].dtype)
            for name, shape in shapes.items() if name in decls
        }  # fmt: skip
        for c in self.signature.caches:
            made[c.input] = self._input(c.input, (1, c.heads, past, c.width), F32, c.widened_from)
        return made

    def _constant(self, decl: TensorDecl) -> Node:
        shape = tuple(n if isinstance(n, int) else 1 for n in decl.dims or ())
        return constant(np.full(shape, self.signature.constants[decl.name]), decl.dtype)

    def _state(self, c: GrowingCache) -> Node:
        return self._input(c.input, (1, c.heads, self.room, c.width), F32, c.widened_from)


def _rotations(model: Model) -> Iterator[int]:
    """How many positions the tables of GroupQueryAttention have."""
    for each in model.nodes:
        if each.op_type == "GroupQueryAttention" and len(each.input) > 7:
            name = each.input[7]
            yield from model.weights[name].dims[:1] if name in model.weights else ()


# ---- the last token ------------------------------------------------------------------------------


def of_last(logits: Node, last: Node, rows: int) -> Node:
    """[1, 1, words]: those of the last token, which in a padded prompt is not in the last row."""
    if logits.rank != 3 or logits.shape[1] != rows:
        return logits
    row = reshape(al.apply("min", cast(last, I64), rows - 1), (1,))
    return _picked(logits, 1, row) if rows > 1 else logits


def _picked(n: Node, axis: int, row: Node) -> Node:
    """gather(n, row) along an axis, taken below the last product, so that it is of one row."""
    shape = tuple(1 if i == axis else extent for i, extent in enumerate(n.shape))
    match n.op:
        case ops.Elementwise():
            return node(n.op, *(_picked(i, axis, row) for i in n.inputs), source=n.source)
        case ops.Broadcast():
            inner = n.inputs[0]
            kept = inner if inner.shape[axis] == 1 else _picked(inner, axis, row)
            return broadcast(kept, shape)
        case ops.Transpose(perm):
            return node(n.op, _picked(n.inputs[0], perm[axis], row), source=n.source)
        case ops.Reshape():
            below = _same_axis(n.inputs[0].shape, n.shape, axis)
            if below is not None:
                return reshape(_picked(n.inputs[0], below, row), shape)
        case ops.Contract(a, b, out):
            letter = out[axis]
            if (letter in a) != (letter in b):
                parts = (
                    _row(x, names.index(letter), row) if letter in names else x
                    for x, names in zip(n.inputs, (a, b), strict=True)
                )
                return node(n.op, *parts, source=n.source)
    return _row(n, axis, row)


def _row(n: Node, axis: int, row: Node) -> Node:
    return gather(n, row, axis, with_pick_source(0))


def _same_axis(before: ops.Shape, after: ops.Shape, axis: int) -> int | None:
    """The axis of an operand that a reshape keeps as `axis`, if there is one."""
    ahead, extent = int(np.prod(after[:axis])), after[axis]
    found = (i for i, n in enumerate(before) if n == extent and int(np.prod(before[:i])) == ahead)
    return next(found, None)
