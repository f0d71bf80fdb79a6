"""Imports a model for padded rows: what follows the last token changes no token's result.

Input: a model, its operands, and how many of the rows are tokens, a run-time number.  Output: graph
nodes by the tensors' names.  Attention hides padding by the model's own masks.  One other operator
combines all rows: DynamicQuantizeLinear finds the range of their numbers.  Its rows of padding are
zero, which changes no range.  Other operators that combine rows are refused.

Which axes are rows is found by importing the model at two sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx import NodeProto

from tilewright.base.dtypes import I32
from tilewright.base.errors import UnsupportedOp
from tilewright.frontend import arithmetic as al
from tilewright.frontend.exports.past_rows import COUNTING
from tilewright.frontend.importer import step
from tilewright.frontend.read import Model
from tilewright.frontend.structure_checks import describe
from tilewright.frontend.subgraphs import Visible
from tilewright.graph.node import ModelNode, Node, cast, reshape, with_source

#: Operators that take the range of all numbers, zero included.
RANGES = frozenset({"DynamicQuantizeLinear"})
#: Axes of rows: each with the number of its kind of rows.
Axes = tuple[tuple[int, int], ...]
#: Counts of each kind of rows at two sizes.
Trials = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class PaddedRows:
    """last: index of the last token, a run-time number;  count: of rows, padding included"""

    last: Node
    count: int


def open_axes(small: Node, large: Node, trials: Trials) -> Axes:
    """The axes of one tensor at two sizes that are rows."""
    kinds = {pair: kind for kind, pair in enumerate(zip(*trials, strict=True))}
    pairs = enumerate(zip(small.shape, large.shape, strict=False))
    return tuple((axis, kinds[pair]) for axis, pair in pairs if pair in kinds)


def padded_operands(
    nodes: Sequence[NodeProto], small: Visible, large: Visible, trials: Trials
) -> Mapping[str, Axes]:
    """Operands whose padding must be zero, by name.  Raises UnsupportedOp."""
    found: dict[str, Axes] = {}
    for each in nodes:
        if not each.input or each.input[0] not in small:
            continue
        name, result = each.input[0], next(filter(None, each.output), "")
        axes = open_axes(small[name], large[name], trials)
        if each.op_type in RANGES and axes:
            found[name] = axes
        elif each.op_type in COUNTING and axes:
            kept = open_axes(small[result], large[result], trials)
            if len(kept) < len(axes):
                raise UnsupportedOp(
                    f"{each.op_type} over all tokens is not supported",
                    hint="Export the model without it: its padding would count",
                    node=describe(each), op=each.op_type,
                )  # fmt: skip
    return found


def import_padded(
    model: Model, values: Visible, padded: Mapping[str, Axes], rows: Sequence[PaddedRows],
    known: Mapping[str, Node] | None = None,
) -> Visible:  # fmt: skip
    """All tensors of the model.

    values: of inputs by name;  padded: as of `padded_operands`;  rows: by their kind
    known:  results to take in place of those of the model's nodes
    """
    made: Visible = {name: model.constant(tensor) for name, tensor in model.weights.items()}
    made |= values
    for each in model.nodes:
        if each.op_type in RANGES and each.input[0] in padded:
            name = each.input[0]
            with with_source(ModelNode(describe(each), each.op_type)):
                tokens = _tokens(made[name], padded[name], rows)
            given = made | {name: tokens}
            step(model, each, given)
            made |= {result: given[result] for result in each.output if result in given}
        else:
            step(model, each, made)
        if known:
            made |= {name: known[name] for name in each.output if name in known}
    return made


def _tokens(x: Node, axes: Axes, rows: Sequence[PaddedRows]) -> Node:
    """The tensor with zeros in rows of padding."""
    for axis, kind in axes:
        line = tuple(x.shape[axis] if i == axis else 1 for i in range(x.rank))
        last = reshape(rows[kind].last, (1,) * x.rank)
        token = al.apply("le", cast(al.position_along(line, axis), I32), last)
        x = al.where(token, x, 0.0)
    return x
