"""Scan: the op that repeats a graph along the leading axis of its operands (LSTM, GRU, loops).

Input: a body graph, initial states, sequences, and tensors that stay the same.  Output: views of
the last states and of the results.  The op's value is one flat tensor, so that it is an ordinary
node: every result as [length, ...], then the last states that are not results.

    state = initial
    for i in range(length):   state, result[i] = body(state, sequence[i], fixed)

The body is compiled once; fusion/kernel_steps.py repeats its kernels for the iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.base.errors import ShapeError, UnsupportedDType, ensure
from tilewright.base.model_limits import check_limit
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    constant,
    costs,
    evaluate,
    graph_input,
    node,
    reshape,
    slice_,
    toposort,
)
from tilewright.graph.op_semantics import SEMANTICS, OpSemantics
from tilewright.graph.ops import Array, Shape


@dataclass(frozen=True)
class Part:
    """The place of an output of the body in the flat value: `size` elements per iteration.

    many: whether all iterations are kept, in reverse order if `backward`; else only the last one
    """

    offset: int
    size: int
    many: bool = False
    backward: bool = False

    def at(self, iteration: int, length: int) -> int:
        """The first element of an iteration."""
        if not self.many:
            return self.offset
        return self.offset + self.size * iteration_index(iteration, length, self.backward)


def iteration_index(iteration: int, length: int, backward: bool) -> int:
    """The position along the sequence that an iteration works on."""
    return length - 1 - iteration if backward else iteration


@dataclass(frozen=True, eq=False)
class Scan(ops.Op):
    """Operands: initial states, sequences, fixed tensors; the inputs of `body` have the same order.

    body:     its outputs are the new states, then one element of each result
    length:   number of iterations
    backward: for each sequence, whether it is read from the end
    parts:    for each output of the body its place
    """

    body: Graph
    length: int
    states: int
    backward: tuple[bool, ...]
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """Elements of the flat value."""
        return max(p.offset + p.size * (self.length if p.many else 1) for p in self.parts)

    @cached_property
    def cost(self) -> int:
        """Elements that computing the value visits (`node.cost`)."""
        return self.length * costs(n for _, n in self.body.outputs)

    @cached_property
    def repeats(self) -> int:
        """Iterations of this loop, times those of the loops inside its body."""
        inner = (n.op.repeats for n in self.body.nodes() if isinstance(n.op, Scan))
        return self.length * max(inner, default=1)


def scan(
    body: Graph,
    length: int,
    states: Sequence[Node],
    sequences: Sequence[Node],
    fixed: Sequence[Node] = (),
    backward: Sequence[bool] = (),
) -> tuple[list[Node], list[Node]]:
    """(last states, results [length, ...]).

    backward: for each sequence, then for each result, whether it runs from the end

    `body` reads only constants and its own inputs.  With length 0 the states stay as they are.
    """
    if not length:
        empty = [(n.dtype, (0, *n.shape)) for _, n in body.outputs[len(states) :]]
        return [*states], [constant(np.zeros(shape), dtype) for dtype, shape in empty]
    _check_body(body)
    turns = tuple(backward) or (False,) * (len(sequences) + len(body.outputs) - len(states))
    outputs = [n for _, n in body.outputs]
    chosen = _parts(outputs, len(states), length, turns[len(sequences) :])
    op = Scan(body, length, len(states), turns[: len(sequences)], chosen)
    check_limit("repeats", op.repeats, "the number of iterations")
    made = node(op, *states, *sequences, *fixed)
    last = [
        reshape(slice_(made, (p.at(length - 1, length),), (p.size,)), n.shape)
        for n, p in zip(outputs[: len(states)], chosen, strict=False)
    ]
    results = [
        reshape(slice_(made, (p.offset,), (p.size * length,)), (length, *n.shape))
        for n, p in zip(outputs[len(states) :], chosen[len(states) :], strict=True)
    ]
    return last, results


def _parts(
    outputs: Sequence[Node], states: int, length: int, backward: Sequence[bool]
) -> tuple[Part, ...]:
    """The parts of the flat value: first the results, then the states.  A state that is also a
    result shares its part."""
    found: dict[tuple[Node, bool], Part] = {}
    at = 0
    for n, back in zip(outputs[states:], backward, strict=True):
        if (n, back) not in found:
            found[n, back] = Part(at, n.size, True, back)
            at += n.size * length
    kept: dict[Node, Part] = {}
    for (n, _), part in found.items():
        kept.setdefault(n, part)
    for n in outputs[:states]:
        if n not in kept:
            kept[n] = Part(at, n.size)
            at += n.size
    results = zip(outputs[states:], backward, strict=True)
    return (*(kept[n] for n in outputs[:states]), *(found[key] for key in results))


def element(name: str, sequence: Node) -> Node:
    """The body's input for one element of a sequence."""
    return graph_input(name, sequence.shape[1:], sequence.dtype)


def _check_body(body: Graph) -> None:
    own = {n for _, n in body.inputs}
    for n in toposort(n for _, n in body.outputs):
        known = n in own or not isinstance(n.op, ops.Input)
        ensure(known, "it is not an input of the body", node=n)
    dtypes = sorted({n.dtype.name for _, n in body.outputs})
    if len(dtypes) > 1:
        raise UnsupportedDType(
            "the states and results of a loop have different dtypes",
            hint="Give all of them one dtype in the model",
            dtype=dtypes,
        )


def _shape(op: Scan, shapes: Sequence[Shape]) -> Shape:
    given, wanted = list(shapes), [n.shape for _, n in op.body.inputs]
    end = op.states + len(op.backward)
    for i in range(op.states, end):
        if given[i][:1] != (op.length,):
            raise ShapeError(f"a sequence does not have {op.length} elements", shape=given[i])
        given[i] = given[i][1:]
    outputs = [n.shape for _, n in op.body.outputs[: op.states]]
    if given != wanted or outputs != wanted[: op.states]:
        raise ShapeError(
            "operands do not fit the body of the loop",
            hint="A state must keep its shape from one iteration to the next",
            shape=[list(s) for s in given],
            body=[list(s) for s in wanted],
            states=[list(s) for s in outputs],
        )
    return (op.size,)


def _dtype(op: Scan, dtypes: Sequence[DType]) -> DType:
    return op.body.outputs[0][1].dtype


def _numpy(op: Scan, *operands: Array) -> Array:
    """The value in NumPy: the body is evaluated once per iteration."""
    inputs = [n for _, n in op.body.inputs]
    outputs = [n for _, n in op.body.outputs]
    end = op.states + len(op.backward)
    states, sequences = list(operands[: op.states]), operands[op.states : end]
    value = np.zeros(op.size, outputs[0].dtype.numpy)
    for i in range(op.length):
        now = [
            s[iteration_index(i, op.length, back)]
            for s, back in zip(sequences, op.backward, strict=True)
        ]
        given = (*states, *now, *operands[end:])
        made = evaluate(outputs, given=dict(zip(inputs, given, strict=True)))
        for part, array in zip(op.parts, made, strict=True):
            at = part.at(i, op.length)
            value[at : at + prod(array.shape)] = array.ravel()
        states = made[: op.states]
    return value


SEMANTICS[Scan] = OpSemantics(None, _shape, _dtype, _numpy)
