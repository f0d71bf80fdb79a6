"""ONNX recurrent layers: RNN, GRU and LSTM as scans.

Input: operand nodes and attributes.  Output: nodes.  The products with all inputs of the sequence,
and their biases, are one contraction before the loop; the loop has the products with the state, and
the gates.  Formulas and order of gates follow the ONNX operator specification (opset 22).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tilewright.base.errors import InvalidModel, ShapeError, UnsupportedOp
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operator_table import operator
from tilewright.frontend.operators import activation as act
from tilewright.graph.node import (
    Graph,
    Node,
    cast,
    concat,
    contract,
    graph_input,
    iota,
    reshape,
    transpose,
)
from tilewright.graph.scan import element, scan

Function = Callable[[Node], Node]
States = tuple[Node, ...]


def _tanh(x: Node) -> Node:
    return al.apply("tanh", x)


def _affine(x: Node, *, alpha: float = 1.0, beta: float = 0.0) -> Node:
    return al.add(al.mul(x, alpha), beta)


def _scaled_tanh(x: Node, *, alpha: float = 1.0, beta: float = 1.0) -> Node:
    return al.mul(_tanh(al.mul(x, beta)), alpha)


#: Activations by lower-case name, with the names of their parameters.
_ACTIVATIONS: dict[str, tuple[Callable[..., Node], tuple[str, ...]]] = {
    "affine": (_affine, ("alpha", "beta")),
    "elu": (act.elu, ("alpha",)),
    "hardsigmoid": (act.hard_sigmoid, ("alpha", "beta")),
    "leakyrelu": (act.leaky_relu, ("alpha",)),
    "relu": (act.relu, ()),
    "scaledtanh": (_scaled_tanh, ("alpha", "beta")),
    "sigmoid": (act.sigmoid, ()),
    "softplus": (act.softplus, ()),
    "softsign": (act.softsign, ()),
    "tanh": (_tanh, ()),
    "thresholdedrelu": (act.thresholded_relu, ("alpha",)),
}


@dataclass(frozen=True)
class _Settings:
    """The attributes shared by all three layers."""

    hidden_size: int | None = None
    direction: str = "forward"
    layout: int = 0
    clip: float | None = None
    activations: Sequence[str] = ()
    activation_alpha: Sequence[float] = ()
    activation_beta: Sequence[float] = ()

    def functions(self, defaults: Sequence[str]) -> list[tuple[Function, ...]]:
        """The activations of each direction; parameters are assigned in the order of the lists."""
        turns = _turns(self.direction)
        names = list(self.activations) or [*defaults] * len(turns)
        if len(names) != len(defaults) * len(turns):
            raise InvalidModel(f"{len(defaults) * len(turns)} activations are needed, not {names}")
        given = {"alpha": iter(self.activation_alpha), "beta": iter(self.activation_beta)}
        # LSTM's third activation is for the cell state, not a gate: like onnxruntime, it is not
        # clipped
        made = [self._function(name, given) for name in names]
        made = [fn if i % len(defaults) == 2 else self.clipped(fn) for i, fn in enumerate(made)]
        count = len(defaults)
        return [tuple(made[i : i + count]) for i in range(0, len(made), count)]

    def _function(self, name: str, given: dict[str, Iterator[float]]) -> Function:
        if name.lower() not in _ACTIVATIONS:
            raise UnsupportedOp(f"activation {name!r} is not supported")
        function, parameters = _ACTIVATIONS[name.lower()]
        found = {p: value for p in parameters for value in [next(given[p], None)]}
        chosen = {p: value for p, value in found.items() if value is not None}
        return partial(function, **chosen)

    def clipped(self, function: Function) -> Function:
        """The activation with its input clipped to [-clip, clip]."""
        limit = self.clip
        if limit is None:
            return function
        return lambda x: function(al.apply("min", al.apply("max", x, -limit), limit))


def _turns(direction: str) -> tuple[bool, ...]:
    """For each direction, whether it runs backward."""
    known = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if direction not in known:
        raise InvalidModel(f"the direction {direction!r} does not exist")
    return known[direction]


@dataclass(frozen=True)
class _Weights:
    """One direction: input weights [gates*hidden, features], state weights, both biases, peepholes.

    Biases are [gates*hidden]; `peephole` is [3*hidden] (input, output, forget) or None.
    """

    inputs: Node
    state: Node
    input_bias: Node | None
    state_bias: Node | None
    peephole: Node | None = None

    @property
    def hidden(self) -> int:
        return self.state.shape[1]


class _Body:
    """A loop body under construction: non-constant values of the outer graph become inputs."""

    def __init__(self) -> None:
        self.fixed: list[tuple[Node, Node]] = []

    def keep(self, x: Node) -> Node:
        if x.constant:
            return x
        inside = graph_input(f"fixed{len(self.fixed)}", x.shape, x.dtype)
        self.fixed.append((inside, x))
        return inside


#: (input part [batch, gates*hidden], states, weights, activations) -> new states
Cell = Callable[[Node, States, _Weights, tuple[Function, ...], _Body], States]


def _part(x: Node, number: int, hidden: int, count: int = 1) -> Node:
    """`count` gates from gate `number` on, along the last axis."""
    return al.take(x, x.rank - 1, number * hidden, count * hidden)


def _times(state: Node, weights: Node) -> Node:
    return contract("bh,gh->bg", state, weights)


def _layer(
    cell: Cell,
    defaults: Sequence[str],
    settings: _Settings,
    x: Node,
    weights: Sequence[_Weights],
    lengths: Node | None,
    initial: Sequence[Node | None],
    outer_bias: Callable[[_Weights], Node | None],
) -> tuple[Node, ...]:
    """All directions: (all hidden states, the last of each state) in the model's layout."""
    batch_first = settings.layout == 1
    if batch_first:
        x = transpose(x, (1, 0, 2))
        initial = [None if s is None else transpose(s, (1, 0, 2)) for s in initial]
    steps, batch, features = x.shape
    turns, functions = _turns(settings.direction), settings.functions(defaults)
    if len(weights) != len(turns):
        raise ShapeError("the weights do not match the direction", directions=len(weights))
    hidden = weights[0].hidden
    if settings.hidden_size not in (None, hidden):
        raise ShapeError("the weights do not match the hidden size", hidden=hidden)
    mask = _mask(lengths, steps, batch)
    flat = reshape(x, (steps * batch, features))
    every, last = [], []
    for d, (w, back, fns) in enumerate(zip(weights, turns, functions, strict=True)):
        gates = contract("mi,gi->mg", flat, w.inputs)
        bias = outer_bias(w)
        gates = gates if bias is None else al.add(gates, bias)
        gates = reshape(gates, (steps, batch, gates.shape[1]))
        zero = al.full(0, (batch, hidden), x.dtype)
        first = [zero if s is None else _direction(s, d) for s in initial]
        y, states = _loop(cell, w, fns, gates, mask, first, back)
        every.append(al.unsqueeze(y, (1,)))
        last.append(states)
    y = concat(every, 1)
    stacked = [concat([al.unsqueeze(s, (0,)) for s in each], 0) for each in zip(*last, strict=True)]
    if batch_first:
        return transpose(y, (2, 0, 1, 3)), *(transpose(s, (1, 0, 2)) for s in stacked)
    return y, *stacked


def _loop(
    cell: Cell,
    w: _Weights,
    functions: tuple[Function, ...],
    gates: Node,
    mask: Node | None,
    first: Sequence[Node],
    back: bool,
) -> tuple[Node, States]:
    """One direction: (hidden states [steps, batch, hidden], last states)."""
    body = _Body()
    states = tuple(graph_input(f"state{i}", s.shape, s.dtype) for i, s in enumerate(first))
    now = element("gates", gates)
    inputs = [*states, now]
    new = cell(now, states, w, functions, body)
    y, sequences = new[0], [gates]
    if mask is not None:  # after its end a sequence gives zeros and keeps its states
        inside = element("mask", mask)
        inputs.append(inside)
        sequences.append(mask)
        y = al.where(inside, new[0], 0)
        new = tuple(al.where(inside, n, s) for n, s in zip(new, states, strict=True))
    inputs += [inner for inner, _ in body.fixed]
    graph = Graph(
        "cell",
        tuple((n.op.name, n) for n in inputs),  # type: ignore[attr-defined]
        (*((f"state{i}", n) for i, n in enumerate(new)), ("y", y)),
    )
    fixed = [outer for _, outer in body.fixed]
    backward = [back] * (len(sequences) + 1)
    last, (every,) = scan(graph, gates.shape[0], first, sequences, fixed, backward)
    return every, tuple(last)


def _mask(lengths: Node | None, steps: int, batch: int) -> Node | None:
    """[steps, batch, 1]: whether the step is before the sequence's end; None if all are."""
    if lengths is None:
        return None
    value = lengths.value
    if value is not None and (value >= steps).all():
        return None
    place = cast(iota((steps, batch, 1), 0), lengths.dtype)
    return al.less(place, reshape(lengths, (1, batch, 1)))


def _direction(x: Node, d: int) -> Node:
    return reshape(al.take(x, 0, d, 1), x.shape[1:])


def _weights(w: Node, r: Node, b: Node | None, p: Node | None = None) -> list[_Weights]:
    """One record per direction of [directions, ...] operands."""
    half = w.shape[1]
    if w.shape[0] > 2:
        raise ShapeError("there are at most two directions", shape=w.shape)

    def of(d: int) -> _Weights:
        bias = None if b is None else _direction(b, d)
        return _Weights(
            _direction(w, d),
            _direction(r, d),
            None if bias is None else al.take(bias, 0, 0, half),
            None if bias is None else al.take(bias, 0, half, half),
            None if p is None else _direction(p, d),
        )

    return [of(d) for d in range(w.shape[0])]


def _both(w: _Weights) -> Node | None:
    """The sum of both biases; None without biases."""
    if w.input_bias is None or w.state_bias is None:
        return None
    return al.add(w.input_bias, w.state_bias)


#: Axes of the sequence, weights, state weights, biases, lengths and first state.
_RANKS = (3, 3, 3, 2, 1, 3)


@operator("RNN", since=7, ranks=_RANKS)
def rnn(
    x: Node, w: Node, r: Node, b: Node | None = None,
    lengths: Node | None = None, h: Node | None = None,
    *,
    hidden_size: int | None = None, direction: str = "forward", layout: int = 0,
    clip: float | None = None, activations: Sequence[str] = (),
    activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
) -> tuple[Node, ...]:  # fmt: skip
    """h' = f(x W + h R + b)"""
    settings = _Settings(hidden_size, direction, layout, clip, activations,
                         activation_alpha, activation_beta)  # fmt: skip

    def cell(
        now: Node, states: States, w: _Weights, fns: tuple[Function, ...], body: _Body
    ) -> States:
        return (fns[0](al.add(now, _times(states[0], body.keep(w.state)))),)

    return _layer(cell, ("Tanh",), settings, x, _weights(w, r, b), lengths, [h], _both)


@operator("GRU", since=7, ranks=_RANKS)
def gru(
    x: Node, w: Node, r: Node, b: Node | None = None,
    lengths: Node | None = None, h: Node | None = None,
    *,
    hidden_size: int | None = None, direction: str = "forward", layout: int = 0,
    clip: float | None = None, activations: Sequence[str] = (),
    activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
    linear_before_reset: int = 0,
) -> tuple[Node, ...]:  # fmt: skip
    """Gates update, reset, new: h' = (1 - z) n + z h, where the reset gate scales h in n."""
    settings = _Settings(hidden_size, direction, layout, clip, activations,
                         activation_alpha, activation_beta)  # fmt: skip
    after = bool(linear_before_reset)

    def outer_bias(w: _Weights) -> Node | None:
        return w.input_bias if after else _both(w)

    return _layer(_gru_after if after else _gru_before, ("Sigmoid", "Tanh"), settings, x,
                  _weights(w, r, b), lengths, [h], outer_bias)  # fmt: skip


def _gru_after(
    now: Node, states: States, w: _Weights, fns: tuple[Function, ...], body: _Body
) -> States:
    """linear_before_reset: the reset gate scales the product, so one product serves all gates."""
    (h,), size = states, w.hidden
    own = _times(h, body.keep(w.state))
    if w.state_bias is not None:
        own = al.add(own, body.keep(w.state_bias))
    z, r = (fns[0](al.add(_part(now, i, size), _part(own, i, size))) for i in (0, 1))
    n = fns[1](al.add(_part(now, 2, size), al.mul(r, _part(own, 2, size))))
    return (_blend(z, n, h),)


def _gru_before(
    now: Node, states: States, w: _Weights, fns: tuple[Function, ...], body: _Body
) -> States:
    """The reset gate scales the state first, so the new gate needs its own product."""
    (h,), size = states, w.hidden
    state = body.keep(w.state)
    both = al.take(state, 0, 0, 2 * size)
    zr = fns[0](al.add(_part(now, 0, size, 2), _times(h, both)))
    kept = al.mul(_part(zr, 1, size), h)
    n = fns[1](al.add(_part(now, 2, size), _times(kept, al.take(state, 0, 2 * size, size))))
    return (_blend(_part(zr, 0, size), n, h),)


def _blend(z: Node, n: Node, h: Node) -> Node:
    return al.add(al.mul(al.sub(1.0, z), n), al.mul(z, h))


@operator("LSTM", since=7, ranks=(*_RANKS, 3, 2))
def lstm(
    x: Node, w: Node, r: Node, b: Node | None = None,
    lengths: Node | None = None, h: Node | None = None, c: Node | None = None,
    p: Node | None = None,
    *,
    hidden_size: int | None = None, direction: str = "forward", layout: int = 0,
    clip: float | None = None, activations: Sequence[str] = (),
    activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
    input_forget: int = 0,
) -> tuple[Node, ...]:  # fmt: skip
    """Gates input, output, forget, cell: c' = f c + i g and h' = o h(c')."""
    settings = _Settings(hidden_size, direction, layout, clip, activations,
                         activation_alpha, activation_beta)  # fmt: skip

    def cell(
        now: Node, states: States, w: _Weights, fns: tuple[Function, ...], body: _Body
    ) -> States:
        (h, c), size = states, w.hidden
        gates = al.add(now, _times(h, body.keep(w.state)))
        peephole = None if w.peephole is None else body.keep(w.peephole)

        def gate(number: int, looked_at: Node) -> Node:
            """With peepholes a gate also depends on the cell state."""
            sum_ = _part(gates, number, size)
            if peephole is not None:
                sum_ = al.add(sum_, al.mul(_part(peephole, number, size), looked_at))
            return fns[0](sum_)

        i = gate(0, c)
        forget = al.sub(1.0, i) if input_forget else gate(2, c)
        new = al.add(al.mul(forget, c), al.mul(i, fns[1](_part(gates, 3, size))))
        return al.mul(gate(1, new), fns[2](new)), new

    defaults = ("Sigmoid", "Tanh", "Tanh")
    return _layer(cell, defaults, settings, x, _weights(w, r, b, p), lengths, [h, c], _both)
