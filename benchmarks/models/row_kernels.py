"""Row-wise kernels and those bound by memory or by scalar functions, as graphs.

Input: names.  Output: graphs of one kernel each: reductions along each axis, transposes, gathers,
copies, elementwise functions and attention, on activations of a transformer's size.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.base.dtypes import F32, I64, DType
from tilewright.frontend.operators.activation import softmax as softmax_of
from tilewright.frontend.operators.reduction import first_extreme
from tilewright.graph.node import (
    Graph,
    Node,
    cast,
    concat,
    constant,
    contract,
    elementwise,
    gather,
    graph_input,
    pad,
    reduce,
    reshape,
    scalar_like,
    slice_,
    transpose,
)

ROWS, COLS = 384, 768


def given(name: str, *shape: int, dtype: DType = F32) -> Node:
    return graph_input(name, shape, dtype)


def x(*shape: int) -> Node:
    return given("x", *(shape or (ROWS, COLS)))


def scalar(value: float) -> Node:
    return constant(value, F32)


def layer_norm(centre: bool) -> Node:
    a = x()
    if centre:
        a = elementwise("sub", a, elementwise("mul", reduce("sum", a, [-1]), scalar(1 / COLS)))
    square = elementwise("mul", reduce("sum", elementwise("mul", a, a), [-1]), scalar(1 / COLS))
    root = elementwise("sqrt", elementwise("add", square, scalar(1e-5)))
    return elementwise("mul", elementwise("div", a, root), given("scale", COLS))


def gelu_erf() -> Node:
    a = x()
    tail = elementwise("erf", elementwise("mul", a, scalar(math.sqrt(0.5))))
    half = elementwise("mul", a, scalar(0.5))
    return elementwise("mul", half, elementwise("add", tail, scalar(1.0)))


def gelu_tanh() -> Node:
    a = x()
    cube = elementwise("mul", elementwise("mul", a, a), a)
    inner = elementwise("add", a, elementwise("mul", cube, scalar(0.044715)))
    tail = elementwise("tanh", elementwise("mul", inner, scalar(math.sqrt(2 / math.pi))))
    half = elementwise("mul", a, scalar(0.5))
    return elementwise("mul", half, elementwise("add", tail, scalar(1.0)))


def silu() -> Node:
    a = x()
    return elementwise("mul", a, sigmoid(a))


def sigmoid(a: Node) -> Node:
    low = elementwise("exp", elementwise("neg", a))
    return elementwise("div", scalar_like(1.0, a), elementwise("add", low, scalar_like(1.0, a)))


def attention(rows: int, keys: int, heads: int, depth: int, causal: bool = False) -> Node:
    q, k, v = (
        transpose(reshape(given(n, size, heads * depth), (size, heads, depth)), (1, 0, 2))
        for n, size in (("q", rows), ("k", keys), ("v", keys))
    )
    scores = elementwise("mul", contract("hmd,hnd->hmn", q, k), scalar(depth**-0.5))
    if causal:
        scores = elementwise("add", scores, given("mask", 1, rows, keys))
    made = contract("hmn,hnd->hmd", softmax_of(scores), v)
    return reshape(transpose(made, (1, 0, 2)), (rows, heads * depth))


def attention_graph(rows: int, keys: int, heads: int, depth: int) -> Graph:
    """Inputs q [rows, heads * depth], k and v [keys, heads * depth]; the first kernel is fused."""
    return graph_of("attention", attention(rows, keys, heads, depth))


#: Name -> its output; every subject is one kernel.
SUBJECTS: dict[str, Callable[[], Node]] = {
    "copy": lambda: elementwise("neg", x()),
    "add": lambda: elementwise("add", x(), given("y", ROWS, COLS)),
    "add row": lambda: elementwise("add", x(), given("y", COLS)),
    "add column": lambda: elementwise("add", x(), given("y", ROWS, 1)),
    "add middle": lambda: elementwise("add", x(48, 8, COLS), given("y", 48, 1, COLS)),
    "add channel": lambda: elementwise("add", x(96, 3072), given("y", 96, 1)),
    "relu": lambda: elementwise("max", x(), scalar(0.0)),
    "cast i64": lambda: cast(given("x", ROWS, COLS, dtype=I64), F32),
    "exp": lambda: elementwise("exp", x()),
    "tanh": lambda: elementwise("tanh", x()),
    "erf": lambda: elementwise("erf", x()),
    "gelu erf": gelu_erf,
    "gelu tanh": gelu_tanh,
    "sigmoid": lambda: sigmoid(x()),
    "silu": silu,
    "softmax": lambda: softmax_of(x()),
    "softmax 49": lambda: softmax_of(x(6144, 49)),
    "softmax middle": lambda: softmax_of(x(48, 8, COLS), axis=1),
    "layer norm": lambda: layer_norm(True),
    "rms norm": lambda: layer_norm(False),
    "sum last": lambda: reduce("sum", x(), [-1]),
    "sum middle": lambda: reduce("sum", x(48, 8, COLS), [1]),
    "sum first": lambda: reduce("sum", x(), [0]),
    "sum all": lambda: reduce("sum", x(), [0, 1]),
    "max last": lambda: reduce("max", x(), [-1]),
    "max first": lambda: reduce("max", x(), [0]),
    "argmax last": lambda: first_extreme(x(), 1, "max"),
    "transpose": lambda: transpose(x(), (1, 0)),
    "transpose heads": lambda: transpose(x(ROWS, 12, 64), (1, 0, 2)),
    "transpose inner": lambda: transpose(x(12, ROWS, 64), (0, 2, 1)),
    "nchw to nhwc": lambda: transpose(x(96, 48, 64), (1, 2, 0)),
    "gather rows": lambda: gather(given("x", 2000, COLS), given("i", ROWS, dtype=I64), 0),
    "gather columns": lambda: gather(x(), given("i", 384, dtype=I64), 1),
    "concat rows": lambda: concat([x(), given("y", ROWS, COLS)], 0),
    "concat columns": lambda: concat([x(), given("y", ROWS, COLS)], 1),
    "slice": lambda: slice_(x(), (0, 5), (ROWS, COLS - 9)),
    "slice step": lambda: slice_(x(), (0, 0), (ROWS, COLS // 2), (1, 2)),
    "pad": lambda: pad(x(), (1, 1), (1, 1)),
    "pad image": lambda: pad(x(56, 56, 96), (1, 1, 0), (1, 1, 0)),
    "attention 384": lambda: attention(384, 384, 12, 64),
    "attention 384 masked": lambda: attention(384, 384, 12, 64, True),
    "attention 128x32": lambda: attention(128, 128, 12, 32),
    "attention decode": lambda: attention(1, 1024, 12, 64),
    "attention long": lambda: attention(64, 4096, 2, 64),
}


def subject_graph(name: str) -> Graph:
    made = SUBJECTS[name]()
    if not made.inputs or made.op.__class__.__name__ in ("Transpose", "Slice"):
        made = elementwise("neg", made)  # a view alone makes no kernel
    return graph_of(name.replace(" ", "_"), made)


def graph_of(name: str, made: Node) -> Graph:
    """Its inputs by their names."""
    nodes = Graph(name, (), (("out", made),)).nodes()
    named = {n.op.name: n for n in nodes if hasattr(n.op, "name")}
    return Graph(name, tuple(named.items()), (("out", made),))
