"""The cases of the conformance suite: small graphs, one for each thing that a kernel can be.

Input: nothing.  Output: `BUILDERS`: name → graph, inputs, and how close a host must come to the
graph interpreter (which computes in NumPy).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from convolutions import CONVOLUTIONS, joined
from helpers.attention import VARIANTS
from helpers.blocks import CASES as BLOCKS
from helpers.blocks import made as blocks
from making import Array, Case, case, given, rng, weight

from tilewright.base.dtypes import BOOL, F32, I32, I64, U8
from tilewright.base.scalars import SCALARS
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    cast,
    concat,
    constant,
    contract,
    elementwise,
    flip,
    gather,
    graph_input,
    iota,
    node,
    pad,
    reduce,
    reshape,
    scalar_like,
    slice_,
    transpose,
    unfold,
)
from tilewright.graph.scan import element, scan


def scalar_case(name: str, size: int = 103) -> Case:
    """One scalar function on its domain, on a length that fills no whole vector."""
    fn = SCALARS[name]
    low, high = fn.domain
    nodes, values = [], {}
    for position in range(fn.arity):
        letter = "abc"[position]
        is_condition = name == "where" and position == 0
        logical = name in ("and", "or", "not") or is_condition
        nodes.append(graph_input(letter, (size,), BOOL if logical else F32))
        spread = _spread(rng(position), low, high, size)
        values[letter] = (spread > 0) if logical else spread.astype(np.float32)
    # 1 ULP on top: the judge itself (NumPy in f32) is not correctly rounded
    exact = fn.ulp == 0
    result = elementwise(name, *nodes)
    return case(nodes, values, result, **({} if exact else {"ulp": fn.ulp + 1}))


def nearest(name: str) -> Case:
    """The nearest number of 16 bits where it is hard: ties and their neighbours, the smallest and
    largest numbers, infinity, NaN."""
    exponents = [0, 1, 101, 102, 103, 104, 111, 112, 113, 114, 127, 138, 141, 142, 143, 254, 255]
    fractions = [0, 1, 0xFFF, 0x1000, 0x1001, 0x3000, 0x8000, 0x8001, 0x18000, 0x400000, 0x7FEFFF,
                 0x7FF000, 0x7F7FFF, 0x7F8000, 0x7FFFFF]  # fmt: skip
    bits = np.array([e << 23 | f for e in exponents for f in fractions], np.uint32)
    x = np.concatenate([bits, bits | 1 << 31]).view(np.float32)
    a = graph_input("a", x.shape, F32)
    return case([a], {"a": x}, elementwise(name, a))


def _spread(numbers: np.random.Generator, low: float, high: float, size: int) -> Array:
    """Over the domain; every second one over the exponents, where there are many."""
    even = numbers.uniform(low, high, size)
    if high < 1000:
        return even
    signs = np.where((low < 0) & (numbers.random(size) < 0.5), -1.0, 1.0)
    sizes = np.exp(numbers.uniform(np.log(max(low, 1e-6)), np.log(high), size))
    return np.where(np.arange(size) % 2, even, np.clip(signs * sizes, low, high))


def matmul(m: int, k: int, n: int) -> Case:
    nodes, values = given((m, k))
    return case(nodes, values, contract("mk,kn->mn", nodes[0], weight(k, n)), relative=1e-6)


def product(equation: str, a: tuple[int, ...], b: tuple[int, ...]) -> Case:
    nodes, values = given(a, b)
    y = contract(equation, *nodes)
    return case(nodes, values, elementwise("max", y, scalar_like(0.0, y)), relative=1e-6)


def epilogue() -> Case:
    (a, b), values = given((13, 20), (13, 27))
    x = elementwise("add", contract("mk,kn->mn", a, weight(20, 27)), weight(27, seed=3))
    scaled = elementwise("mul", x, scalar_like(2**-0.5, x))
    one = elementwise("add", elementwise("erf", scaled), scalar_like(1.0, x))
    gelu = elementwise("mul", elementwise("mul", x, one), scalar_like(0.5, x))
    return case([a, b], values, elementwise("add", gelu, b), relative=1e-6)


def division_in_a_tile() -> Case:
    """A tile of 64 rows whose sums are divided, as torch writes GELU: Mesa 26 made wrong code."""
    (a,), values = given((960, 96))
    x = elementwise("add", contract("mk,kn->mn", a, weight(96, 192)), weight(192, seed=3))
    scaled = elementwise("div", x, scalar_like(2**0.5, x))
    one = elementwise("add", elementwise("erf", scaled), scalar_like(1.0, x))
    gelu = elementwise("mul", elementwise("mul", x, one), scalar_like(0.5, x))
    return case([a], values, gelu, relative=1e-6)


def attention(length: int) -> Case:
    nodes, values = given((2, length, 8), (2, length, 8), (2, length, 8))
    q, k, v = nodes
    scores = contract("hmd,hnd->hmn", q, k)
    weights = softmax(scores)
    return case(nodes, values, contract("hmn,hnd->hmd", weights, v), relative=1e-6)


def exported(graph: Graph) -> Case:
    """An attention as exporters write it, of 70 ULP at most in scores up to 16."""
    values = {
        name: rng(n).standard_normal(x.shape).astype(np.float32)
        for n, (name, x) in enumerate(graph.inputs)
    }
    return Case(graph, values, relative=5e-6)


def transposes(rows: int, cols: int) -> Case:
    """Alone, with a second operand, of a middle axis, and of integers."""
    (a, b, c), values = given((rows, cols), (cols, rows), (3, rows, cols))
    turned = transpose(a, (1, 0))
    return case([a, b, c], values, elementwise("neg", turned), elementwise("add", turned, b),
                elementwise("abs", transpose(c, (0, 2, 1))),
                elementwise("neg", transpose(c, (2, 1, 0))))  # fmt: skip


def softmax(x: Node) -> Node:
    e = elementwise("exp", elementwise("sub", x, reduce("max", x, [-1])))
    return elementwise("div", e, reduce("sum", e, [-1]))


def layer_norm(length: int) -> Case:
    (x,), values = given((5, length))
    n = scalar_like(length, x)
    centred = elementwise("sub", x, elementwise("div", reduce("sum", x, [-1]), n))
    square = elementwise("mul", centred, centred)
    variance = elementwise("div", reduce("sum", square, [-1]), n)
    root = elementwise("sqrt", elementwise("add", variance, scalar_like(1e-5, x)))
    y = elementwise("mul", elementwise("div", centred, root), weight(length, seed=2))
    return case([x], values, y, relative=1e-6)


def max_pool() -> Case:
    (x,), values = given((1, 5, 9, 9))
    padded = pad(x, (0, 0, 1, 1), (0, 0, 1, 1), -np.inf)
    windows = unfold(unfold(padded, 2, 3, 2), 3, 3, 2)
    return case([x], values, reduce("max", windows, [-2, -1]))


def mean_of_image() -> Case:
    (x,), values = given((2, 6, 7, 7))
    mean = elementwise("mul", reduce("sum", x, [2, 3]), scalar_like(1 / 49, x))
    return case([x], values, mean, relative=1e-6)


def movement() -> Case:
    (a, b), values = given((4, 6, 5), (4, 3, 5))
    joined = concat([a, flip(b, [0])], 1)
    moved = transpose(joined, (2, 0, 1))
    picked = slice_(moved, (1, 0, 2), (2, 4, 3), (2, 1, 2))
    framed = pad(picked, (1, 0, 0), (0, 2, 1), 7.5)
    return case([a, b], values, framed, reshape(moved, (20, 9)))


def embedding() -> Case:
    (ids,), values = given(((2, 7), I64))
    return case([ids], values, gather(weight(5, 12), ids, 0))


def integers() -> Case:
    (a, b), values = given(((3, 11), I64), ((3, 11), I32))
    wide = elementwise("add", a, scalar_like(1 << 40, a))
    line = elementwise("mul", b, scalar_like(-3, b))
    total = reduce("sum", wide, [-1])
    return case([a, b], values, wide, line, total, reduce("max", line, [0]))


def casts() -> Case:
    (a, b, c), values = given((37,), ((37,), U8), ((37,), BOOL))
    scaled = elementwise("mul", a, scalar_like(100.0, a))
    return case(
        [a, b, c],
        values,
        cast(scaled, I32), cast(scaled, I64), cast(b, F32), cast(c, F32), cast(b, I64),
        elementwise("lt", a, scalar_like(0.0, a)),
        elementwise("where", c, a, scalar_like(-1.0, a)),
    )  # fmt: skip


def positions() -> Case:
    (a,), values = given((3, 5000))
    line = cast(iota((3, 5000), 1), F32)
    return case([a], values, elementwise("add", a, line))


def sums_of_rows(rows: int, length: int) -> Case:
    (a,), values = given((rows, length))
    return case([a], values, reduce("sum", a, [1]), reduce("max", a, [1]), relative=1e-6)


def special_values() -> Case:
    """NaN and infinities pass through as IEEE 754 and NumPy say."""
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 3e38, 1e-40] * 3, np.float32)
    a = graph_input("a", values.shape, F32)
    zero = scalar_like(0.0, a)
    made = [elementwise("max", a, zero), elementwise("min", a, constant(1.0, F32)),
            elementwise("abs", a), elementwise("neg", a), elementwise("add", a, a),
            elementwise("lt", a, zero), elementwise("eq", a, a)]  # fmt: skip
    return case([a], {"a": values}, *made)


def identity() -> Case:
    """A model without any kernel."""
    (a,), values = given((6, 4))
    return case([a], values, a)


def input_is_output() -> Case:
    (a,), values = given((6, 4))
    return case([a], values, a, transpose(a, (1, 0)))


def input_is_output_at_the_end() -> Case:
    """The input must outlive every buffer of the chain, although no step reads it any more."""
    (a,), values = given((4, 8))
    x = a
    for seed in range(3):
        x = elementwise("abs", contract("mk,kn->mn", x, weight(8, 8, seed=seed)))
    return case([a], values, x, a, relative=1e-6)


def recurrent(steps: int, batch: int, hidden: int, backward: bool) -> Case:
    """A gated layer: one state is a result, the other one changes places from step to step."""
    (x, first, kept), values = given((steps, batch, 2 * hidden), (batch, hidden), (batch, hidden))
    h, c = (graph_input(name, (batch, hidden), F32) for name in ("h", "c"))
    now = element("now", x)
    product = contract("bh,hg->bg", h, weight(hidden, 2 * hidden))
    # a gain below one: rounding must not grow from step to step
    gates = elementwise("add", now, elementwise("mul", product, scalar_like(0.1, product)))
    left, right = (slice_(gates, (0, at), (batch, hidden)) for at in (0, hidden))
    new = elementwise("tanh", elementwise("add", c, left))
    seen = elementwise("mul", new, elementwise("tanh", right))
    body = Graph("body", (("h", h), ("c", c), ("now", now)),
                 (("h", seen), ("c", new), ("y", seen)))  # fmt: skip
    last, every = scan(body, steps, [first, kept], [x], (), [backward, backward])
    return case([x, first, kept], values, *last, *every, relative=1e-6)


#: Rows, depth, columns: one element, one row, whole tiles, edges everywhere.
MATMULS = (
    (1, 1, 1), (1, 64, 40), (2, 20, 72), (6, 8, 8), (7, 5, 9), (13, 33, 31), (64, 48, 64),
    (100, 3, 2), (3, 17, 20), (8, 1, 30), (20, 1000, 12), (15, 70, 3), (9, 48, 1), (1, 900, 70),
)  # fmt: skip

#: Products of two inputs: copied tile by tile, read in place, transposed, along the reduction.
PRODUCTS = (
    ("bmk,bkn->bmn", (2, 31, 300), (2, 300, 44)),
    ("bmk,bkn->bmn", (3, 13, 20), (3, 20, 18)),
    ("mk,kn->mn", (40, 700), (700, 70)),
    ("mk,kn->mn", (4, 9), (9, 2)),
    ("km,kn->mn", (450, 14), (450, 26)),
    ("bmk,bnk->bmn", (2, 29, 450), (2, 19, 450)),
    ("bmk,bnk->bmn", (2, 3, 50), (2, 7, 50)),
    ("mk,k->m", (21, 130), (130,)),
    ("km,k->m", (33, 21), (33,)),
    ("mk,nk->mn", (1, 77), (30, 77)),
)


def orders() -> Case:
    """The first places of rows, all of them, and of numbers of 64 bits; many are equal."""
    shapes = (((3, 700), I32), ((2, 2, 90), I32), ((300,), I64))
    nodes, values = given(*shapes)
    for name, x in values.items():
        ends = np.iinfo(x.dtype)
        values[name] = np.where(x == 3, ends.max, np.where(x == 4, ends.min, x - 1))
    counts = (40, 90, 33)
    firsts = [node(ops.Order(n), x) for n, x in zip(counts, nodes, strict=True)]
    return case(nodes, values, *firsts)


BUILDERS: dict[str, Callable[[], Case]] = {
    **{f"attention-{name}": lambda f=f: exported(f()) for name, f in VARIANTS.items()},
    "transpose": lambda: transposes(40, 50),
    "transpose-edges": lambda: transposes(21, 7),
    **{
        f"scalar-{n}": lambda n=n: scalar_case(n)
        for n in SCALARS
        if n not in ("cast", "fma", "nibble")
    },
    **{f"matmul-{m}x{k}x{n}": lambda m=m, k=k, n=n: matmul(m, k, n) for m, k, n in MATMULS},
    **{
        f"product-{e}-{'x'.join(map(str, a))}": lambda e=e, a=a, b=b: product(e, a, b)
        for e, a, b in PRODUCTS
    },
    **{f"blocks-{n.replace(' ', '-')}": lambda n=n: Case(*blocks(n)) for n in BLOCKS},
    "matmul-bias-gelu-residual": epilogue,
    "division-in-a-tile": division_in_a_tile,
    "attention-10": lambda: attention(10),
    "attention-16": lambda: attention(16),
    "softmax": lambda: case(*_softmax(), relative=1e-6),
    "layer-norm-384": lambda: layer_norm(384),
    "layer-norm-37": lambda: layer_norm(37),
    **{f"conv-{name}": c.case for name, c in CONVOLUTIONS.items()},
    **{f"conv-between-{name}": c.between for name, c in CONVOLUTIONS.items()},
    "conv-joined": joined,
    "max-pool": max_pool,
    "mean-of-image": mean_of_image,
    "movement": movement,
    "embedding": embedding,
    "integers": integers,
    "casts": casts,
    "positions": positions,
    "row-sums": lambda: sums_of_rows(9, 300),
    "row-sums-short": lambda: sums_of_rows(50, 3),
    "special-values": special_values,
    "nearest-f16": lambda: nearest("f16"),
    "nearest-bf16": lambda: nearest("bf16"),
    "order": orders,
    "recurrent-1-step": lambda: recurrent(1, 1, 12, False),
    "recurrent-7-steps": lambda: recurrent(7, 1, 37, False),
    "recurrent-backward": lambda: recurrent(6, 3, 20, True),
    "input-is-output": input_is_output,
    "identity": identity,
    "input-is-output-at-the-end": input_is_output_at_the_end,
}


def _softmax() -> tuple[list[Node], dict[str, Array], Node]:
    nodes, values = given((4, 5, 77))
    return nodes, values, softmax(nodes[0])
