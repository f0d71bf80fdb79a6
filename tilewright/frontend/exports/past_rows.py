"""Imports a model whose caches grow as one whose caches have a fixed size.

Input: a model with a dimension of past rows.  Output: graph nodes by the tensors' names.  The axis
of all keys (past and new ones) is as long as the room, and rows after the new ones are unused.  So
joining a cache and new rows becomes `Update` at the number of past rows, a run-time number.  It
knows no names of inputs; signature.py has those.

Shapes need sizes, so the model is imported at several numbers of past rows.  Each value that
follows from shapes alone is then of one of these kinds:

    fixed  equal at all sizes, or the same elements and more of them, as positions of all keys are
    linear integers that grow with the number of past rows, as positions of new rows do: a shape
           reads the number at the room's size, everything else gets it computed at run time
    other  such as a causal mask: the node is imported again, with its operands at run time
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from onnx import GraphProto, NodeProto

from tilewright.base.dtypes import I32, I64
from tilewright.base.errors import InvalidModel, UnsupportedOp
from tilewright.frontend import arithmetic as al
from tilewright.frontend.importer import step, value_of
from tilewright.frontend.read import Model
from tilewright.frontend.structure_checks import describe
from tilewright.frontend.subgraphs import CONTROL, Visible
from tilewright.graph import ops
from tilewright.graph.node import (
    ModelNode,
    Node,
    cast,
    computed,
    constant,
    gather,
    node,
    pad,
    reshape,
    with_source,
)
from tilewright.graph.ops import Array

#: Operands that are shapes or axes, by operator: they need the size that the room has.
SIZES: Mapping[str, frozenset[int]] = {
    "Reshape": frozenset({1}),
    "Expand": frozenset({1}),
    "Tile": frozenset({1}),
    "Split": frozenset({1}),
    "Slice": frozenset({1, 2, 3, 4}),
    "Unsqueeze": frozenset({1}),
    "Squeeze": frozenset({1}),
    "Pad": frozenset({1}),
    "GroupQueryAttention": frozenset({6}),
}  # fmt: skip

#: Operators whose caches have a fixed room already.
CACHED = frozenset({"GroupQueryAttention"})

#: Operators that would count unused rows, if they reduce the axis of all keys.
COUNTING = frozenset({
    "ReduceMean", "ReduceProd", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ArgMax",
    "ArgMin", "TopK", "LayerNormalization", "Conv", "Flatten",
})  # fmt: skip

NEWER = (
    "Export the model with onnxruntime-genai's model builder, or with a newer version of its "
    "exporter"
)

Kind = Literal["fixed", "linear", "other"]


@dataclass(frozen=True)
class Size:
    """The model at one number of past rows, as it would be without this module."""

    past: int
    values: Visible


@dataclass
class PastImport:
    """One import.

    past:   how many rows the caches hold, i64, a run-time number
    caches: by the name of the model's input the state of fixed room
    full:   the operands where past and new rows fill the room;  fewer: the same with less past rows
    values: the run-time operands, then also what is made of them
    scored: operands of softmaxes over all keys
    """

    model: Model
    past: Node
    caches: Mapping[str, Node]
    full: Size
    fewer: tuple[Size, Size]
    values: Visible
    scored: list[Node] = field(default_factory=list)
    _kinds: dict[str, Kind] = field(default_factory=dict)
    _later: Visible = field(default_factory=dict)

    def run(self, nodes: Sequence[NodeProto]) -> None:
        """Imports the nodes in order.  Raises what `import_model` does."""
        for each in nodes:
            if each.op_type == "If" and not each.domain:
                self._branch(each)
                continue
            if self._is_shared(each):
                continue
            for size in self._sizes:
                self._step(each, size.values)
            self._check(each)
            special = _SPECIAL.get(each.op_type)
            if special is None or not special(self, each):
                self._plain(each)
            for name in filter(None, each.output):
                self._classify(each, name)

    @property
    def _sizes(self) -> tuple[Size, ...]:
        return (self.full, *self.fewer)

    # ---- one node --------------------------------------------------------------------------------

    def _step(self, each: NodeProto, values: Visible, other: Visible | None = None) -> None:
        """other: operands in place of the values of their names"""
        reads = values if each.op_type in CONTROL else filter(values.__contains__, each.input)
        given = {name: values[name] for name in reads} | (other or {})
        if each.op_type in CACHED:
            given |= {n: self.caches[n] for n in each.input if n in self.caches}
        step(self.model, each, given)
        values.update((name, given[name]) for name in each.output if name in given)

    def _is_shared(self, each: NodeProto) -> bool:
        """True for a node that is the same at all sizes, such as one of weights: it is imported
        once."""
        all_values = (self.values, *(size.values for size in self._sizes))
        if each.op_type in CONTROL or any(
            len({id(values.get(name)) for values in all_values}) > 1 for name in each.input
        ):
            return False
        self._step(each, self.values)
        for name in filter(None, each.output):
            for values in all_values:
                values[name] = self.values[name]
        return True

    def _plain(self, each: NodeProto) -> None:
        """The node over run-time operands; if it has none, over those of the room's size."""
        if all(self.values[name].constant for name in each.input if name):
            for name in filter(None, each.output):
                self.values[name] = self.full.values[name]
            return
        self._at_run_time(each)

    def _at_run_time(self, each: NodeProto) -> None:
        sizes = SIZES.get(each.op_type, frozenset())
        late = {
            name: self._run_time(name)
            for at, name in enumerate(each.input)
            if at not in sizes and self._kinds.get(name) == "linear"
        }
        self._step(each, self.values, late)

    def _run_time(self, name: str) -> Node:
        """A linear value: that at the room's size, less what grows with the missing past rows."""
        if name not in self._later:
            whole, growth = self._line(name)
            missing = al.sub(self.past, self.full.past)
            late = al.add(al.mul(constant(growth, I64), missing), constant(whole, I64))
            self._later[name] = cast(late, self.full.values[name].dtype)
        return self._later[name]

    def _classify(self, each: NodeProto, name: str) -> None:
        """The kind of a result; one of another kind is imported again."""
        found = [size.values[name] for size in self._sizes if name in size.values]
        if len(found) < len(self._sizes) or self.values.get(name) is not found[0]:
            return  # it is computed at run time already
        if not all(n.constant for n in found) or all(n is found[0] for n in found):
            return
        kind = self._kind(name, found)
        self._kinds[name] = kind
        if kind != "other":
            return
        if not any(self._kinds.get(read) == "linear" for read in each.input):
            raise UnsupportedOp(
                f"{each.op_type} makes a tensor that depends on the number of past tokens in a way "
                "that is not supported",
                hint=NEWER, node=describe(each), op=each.op_type,
            )  # fmt: skip
        self._at_run_time(each)

    def _kind(self, name: str, found: Sequence[Node]) -> Kind:
        shapes = {n.shape for n in found}
        arrays = [n.value if n.value is not None else computed(n) for n in found]
        least = np.min([n.shape for n in found], axis=0) if found[0].rank else ()
        cut = [a[tuple(slice(int(extent)) for extent in least)] for a in arrays]
        if all(np.array_equal(c, cut[0], equal_nan=c.dtype.kind == "f") for c in cut):
            return "fixed"
        if len(shapes) == 1 and arrays[0].dtype.kind == "i":
            whole, growth = self._line(name)
            pairs = zip(self._sizes, arrays, strict=True)
            if all(np.array_equal(whole + growth * (s.past - self.full.past), a) for s, a in pairs):
                return "linear"
        return "other"

    def _line(self, name: str) -> tuple[Array, Array]:
        """The value at the room's size, and how much it grows with each past row."""
        first, second = (
            np.asarray(computed(size.values[name])).astype(np.int64) for size in self._sizes[:2]
        )
        return first, (first - second) // (self.full.past - self.fewer[0].past)

    # ---- operators with a rule of their own ------------------------------------------------------

    def _concat(self, each: NodeProto) -> bool:
        """Past and new rows: the new ones are written behind the past ones."""
        axis = next(int(a.i) for a in each.attribute if a.name == "axis")
        extents = [[s.values[name].shape[axis] for name in each.input] for s in self._sizes]
        grown = [at for at, column in enumerate(zip(*extents, strict=True)) if len({*column}) > 1]
        if not grown:
            return False
        before, *new = each.input
        if grown != [0] or len(new) != 1:
            raise UnsupportedOp(
                "new rows can be joined only behind the past ones",
                hint="Export the model with its new keys behind the past ones",
                node=describe(each), op=each.op_type,
            )  # fmt: skip
        with with_source(ModelNode(describe(each), each.op_type)):
            rows = self._operand(new[0])
            whole = self.caches.get(before)
            if whole is None:
                old = self._operand(before)
                after = [0] * old.rank
                after[axis] = rows.shape[axis]
                whole = pad(old, [0] * old.rank, after)
            at = al.add(self.past, extents[0][0] - self.full.past)
            along = al.axis_of(axis, rows.rank)
            made = node(ops.Update(along), whole, rows, reshape(cast(at, I32), ()))
        self.values[each.output[0]] = made
        return True

    def _operand(self, name: str) -> Node:
        if self._kinds.get(name) == "linear":
            return self._run_time(name)
        return value_of(self.values, name)

    def _slice(self, each: NodeProto) -> bool:
        """A slice that begins behind the past rows reads at run-time positions."""
        starts = [_starts(each, size.values) for size in self._sizes]
        moving = [axis for axis in starts[0] if len({s[axis] for s in starts}) > 1]
        if not moving:
            return False
        (axis, *more), shape = moving, self.full.values[each.output[0]].shape
        first = {s[axis] - size.past for s, size in zip(starts, self._sizes, strict=True)}
        counts = {size.values[each.output[0]].shape[axis] for size in self._sizes}
        if more or len(first) > 1 or len(counts) > 1:
            raise UnsupportedOp(
                "a slice that depends on the number of past tokens is supported for new rows only",
                hint=NEWER, node=describe(each), op=each.op_type,
            )  # fmt: skip
        with with_source(ModelNode(describe(each), each.op_type)):
            x = self._operand(each.input[0])
            at = al.add(reshape(self.past, (1,)), first.pop())
            made = gather(x, al.add(at, al.position_along((shape[axis],), 0)), axis)
            for other, start in starts[0].items():
                made = made if other == axis else al.take(made, other, start, shape[other])
        self.values[each.output[0]] = made
        return True

    def _branch(self, each: NodeProto) -> None:
        """The branch that is taken at all sizes, as if it stood there alone."""
        (condition,) = each.input
        taken = {
            bool(al.known_number(value_of(size.values, condition), "the condition"))
            for size in self._sizes
        }
        if len(taken) > 1:
            raise UnsupportedOp(
                "which branch is taken depends on the number of past tokens",
                hint="Export the model without If, for example as one decoder with caches",
                node=describe(each), op=each.op_type,
            )  # fmt: skip
        name = "then_branch" if taken.pop() else "else_branch"
        body = next((a.g for a in each.attribute if a.name == name), None)
        if body is None:
            raise InvalidModel(f"{each.op_type} has no {name}", node=describe(each))
        self._inside(body)
        for made, inner in zip(each.output, body.output, strict=True):
            for values in (self.values, *(size.values for size in self._sizes)):
                values[made] = value_of(values, inner.name)
            if inner.name in self._kinds:
                self._kinds[made] = self._kinds[inner.name]

    def _inside(self, body: GraphProto) -> None:
        for tensor in body.initializer:
            made = self.model.constant(tensor)
            for values in (self.values, *(size.values for size in self._sizes)):
                values[tensor.name] = made
        self.run(body.node)

    # ---- what would count unused rows ------------------------------------------------------------

    def _check(self, each: NodeProto) -> None:
        """Raises UnsupportedOp if an operator reduces an axis of which rows are unused."""
        if each.op_type == "Softmax" and self._grows(each.input[0]):
            self.scored.append(self.values[each.input[0]])
        if each.op_type not in COUNTING:
            return
        first, last = each.input[0], each.output[0]
        if self._grows(first) and not self._grows(last):
            raise UnsupportedOp(
                f"{each.op_type} over past and new tokens together is not supported",
                hint="Export the model with GroupQueryAttention (onnxruntime-genai)",
                node=describe(each), op=each.op_type,
            )  # fmt: skip

    def _grows(self, name: str) -> bool:
        return len({size.values[name].shape for size in self._sizes}) > 1


def _starts(each: NodeProto, values: Visible) -> dict[int, int]:
    """The first position that a slice with steps of 1 takes, by axis."""
    x, *given = (values[name] if name else None for name in each.input)
    starts, ends, axes, steps = (*map(_ints, given), None, None)[:4]
    if x is None or starts is None or ends is None or (steps and {*steps} != {1}):
        return {}
    over = axes if axes is not None else range(len(starts))
    pairs = zip(over, starts, strict=True)
    return {
        (a := al.axis_of(axis, x.rank)): range(x.shape[a])[start:].start for axis, start in pairs
    }


def _ints(x: Node | None) -> tuple[int, ...] | None:
    return None if x is None else al.known_ints(x, "a bound of a slice")


_SPECIAL: Mapping[str, Callable[[PastImport, NodeProto], bool]] = {
    "Concat": PastImport._concat,
    "Slice": PastImport._slice,
}
