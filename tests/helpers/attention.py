"""Attention as exporters write it: one small graph per variant, and random ones.

Input: a variant's name, or a random number generator.  Output: a `Graph` whose inputs are all f32
(bool masks are made from them inside), so that values are simple to draw.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from helpers.graphs import softmax
from tilewright.base.dtypes import F32, I32
from tilewright.frontend.arithmetic import position_along
from tilewright.graph.node import (
    Graph,
    Node,
    broadcast,
    cast,
    constant,
    contract,
    elementwise,
    graph_input,
    iota,
    reshape,
    scalar_like,
    transpose,
)

BATCH, HEADS, ROWS, KEYS, DEPTH = 2, 3, 7, 10, 8
LOW = -3.4028234663852886e38


class Maker:
    """Names inputs; `head` views a [batch, length, heads * depth] input as heads."""

    def __init__(self, batch: int = BATCH) -> None:
        self.batch = batch
        self.inputs: dict[str, Node] = {}

    def given(self, name: str, *shape: int) -> Node:
        return self.inputs.setdefault(name, graph_input(name, shape, F32))

    def head(self, name: str, length: int, heads: int = HEADS, depth: int = DEPTH) -> Node:
        flat = self.given(name, self.batch, length, heads * depth)
        return transpose(reshape(flat, (self.batch, length, heads, depth)), (0, 2, 1, 3))

    def qkv(self, rows: int = ROWS, keys: int = KEYS, heads: int = HEADS) -> tuple[Node, ...]:
        return self.head("q", rows), self.head("k", keys, heads), self.head("v", keys, heads)

    def finish(self, context: Node) -> Graph:
        """[batch, heads, rows, depth] -> [batch, rows, heads * depth], the model's output."""
        moved = transpose(context, (0, 2, 1, 3))
        flat = reshape(moved, (*moved.shape[:2], moved.shape[2] * moved.shape[3]))
        named = tuple((n, x) for n, x in self.inputs.items())
        return Graph("attention", named, (("y", elementwise("neg", flat)),))


def scored(q: Node, k: Node) -> Node:
    return contract("abmk,abkn->abmn", q, transpose(k, (0, 1, 3, 2)))


def mixed(p: Node, v: Node) -> Node:
    return contract("abmn,abnd->abmd", p, v)


def times(x: Node, c: float) -> Node:
    return elementwise("mul", x, scalar_like(c, x))


def positive(x: Node) -> Node:
    """A bool mask from numbers."""
    return elementwise("lt", scalar_like(0.0, x), x)


def no_nan(p: Node) -> Node:
    return elementwise("where", elementwise("not", elementwise("eq", p, p)), scalar_like(0.0, p), p)


def bert() -> Graph:
    m = Maker()
    q, k, v = m.qkv()
    scores = elementwise("div", scored(q, k), scalar_like(DEPTH**0.5, q))
    masked = elementwise("add", scores, m.given("mask", BATCH, 1, 1, KEYS))
    return m.finish(mixed(softmax(masked), v))


def roberta() -> Graph:
    """Scales on both operands, a bool mask as 0 and -inf, rows without keys give 0."""
    m = Maker()
    q, k, v = m.qkv()
    kept = positive(m.given("mask", BATCH, 1, 1, KEYS))
    kept = elementwise("and", kept, positive(m.given("rows", 1, 1, ROWS, 1)))
    zero, low = constant(0.0, F32), constant(float("-inf"), F32)
    mask = elementwise("where", kept, zero, low)
    scores = elementwise("add", scored(times(q, 0.6), times(k, 0.6)), mask)
    return m.finish(mixed(no_nan(softmax(scores)), v))


def merged() -> Graph:
    """Batch and heads as one axis around each product (torch.bmm)."""
    m = Maker()
    q, k, v = m.qkv()
    q, k, v = (reshape(x, (BATCH * HEADS, *x.shape[2:])) for x in (times(q, 0.35), k, v))
    scores = contract("bmk,bnk->bmn", q, k)
    full = reshape(scores, (BATCH, HEADS, ROWS, KEYS))
    full = elementwise("add", full, m.given("mask", BATCH, 1, ROWS, KEYS))
    p = softmax(reshape(full, scores.shape))
    context = contract("bmn,bnd->bmd", p, v)
    return m.finish(reshape(context, (BATCH, HEADS, ROWS, DEPTH)))


def gpt2() -> Graph:
    """A causal mask from positions, applied by `where`."""
    m = Maker()
    q, k, v = m.qkv(KEYS, KEYS)
    scores = elementwise("div", scored(q, k), scalar_like(2.8, q))
    row, col = (iota((1, 1, KEYS, KEYS), axis) for axis in (2, 3))
    seen = elementwise("le", col, row)
    return m.finish(mixed(softmax(elementwise("where", seen, scores, scalar_like(LOW, q))), v))


def t5() -> Graph:
    """No scale; a bias for each head and position, and a mask."""
    m = Maker()
    q, k, v = m.qkv()
    bias = elementwise("add", m.given("bias", 1, HEADS, ROWS, KEYS), m.given("mask", 2, 1, 1, KEYS))
    return m.finish(mixed(softmax(elementwise("add", scored(q, k), bias)), v))


def bart() -> Graph:
    """Cross attention: more keys than rows, q scaled first, no mask."""
    m = Maker()
    q, k, v = m.qkv(3, 17)
    return m.finish(mixed(softmax(scored(times(q, 0.35), k)), v))


def grouped() -> Graph:
    """Three query heads read one head of k and v (repeat_kv)."""
    m = Maker()
    q = m.head("q", ROWS, 6)
    k, v = (
        reshape(
            broadcast(
                reshape(m.head(name, KEYS, 2), (BATCH, 2, 1, KEYS, DEPTH)),
                (BATCH, 2, 3, KEYS, DEPTH),
            ),
            (BATCH, 6, KEYS, DEPTH),
        )
        for name in "kv"
    )
    return m.finish(mixed(softmax(times(scored(q, k), 0.35)), v))


def shared() -> Graph:
    """All heads read the same k and v (multi-query)."""
    m = Maker()
    q, k, v = m.head("q", ROWS), m.given("k", BATCH, KEYS, DEPTH), m.given("v", BATCH, KEYS, DEPTH)
    p = softmax(times(contract("abmd,and->abmn", q, k), 0.35))
    return m.finish(contract("abmn,and->abmd", p, v))


def decode() -> Graph:
    m = Maker(1)
    q, k, v = m.qkv(1, 37)
    scores = elementwise("add", times(scored(q, k), 0.35), m.given("mask", 1, 1, 1, 37))
    return m.finish(mixed(softmax(scores), v))


def swapped() -> Graph:
    """Values first, keys stored transposed."""
    m = Maker()
    q, v = m.head("q", ROWS), m.head("v", KEYS)
    k = m.given("k", BATCH, HEADS, DEPTH, KEYS)
    p = softmax(contract("abkn,abmk->abmn", k, q))
    return m.finish(contract("abnd,abmn->abmd", v, p))


def cached() -> Graph:
    """A cache of which only the first rows are valid: how many is a number in memory; two query
    heads share a head of it."""
    return with_cache(ROWS, 4, 2, 67, DEPTH)


def decoding(heads: int, kv_heads: int, keys: int, depth: int) -> Graph:
    """The same of one row."""
    return with_cache(1, heads, kv_heads, keys, depth)


def with_cache(rows: int, heads: int, kv_heads: int, room: int, depth: int) -> Graph:
    m, each = Maker(1), heads // kv_heads
    q = reshape(m.given("q", 1, rows, heads * depth), (1, rows, kv_heads, each, depth))
    k, v = (m.given(name, 1, kv_heads, room, depth) for name in "kv")
    past = cast(m.given("past", 1, 1), I32)
    row, key = (cast(position_along((rows, room), axis), I32) for axis in (0, 1))
    seen = elementwise("le", key, elementwise("add", past, row))
    scores = times(contract("bmhgd,bhnd->bhgmn", q, k), 0.35)
    mask = broadcast(reshape(seen, (1, 1, 1, rows, room)), scores.shape)
    scores = elementwise("where", mask, scores, constant(float("-inf"), F32))
    made = contract("bhgmn,bhnd->bmhgd", softmax(scores), v)
    return Graph("attention", tuple(m.inputs.items()), (("y", elementwise("neg", made)),))


def masked(rows: int, keys: int, depth: int, width: int, kind: str) -> Graph:
    """Heads of a batch without a mask (""), or with one as data ("mask"); "safe": rows without keys
    give 0."""
    m = Maker(1)
    q, k = m.head("q", rows, 2, depth), m.head("k", keys, 2, depth)
    scores = times(scored(q, k), depth**-0.5)
    if kind:
        scores = elementwise("add", scores, m.given("mask", 1, 1, rows, keys))
    p = no_nan(softmax(scores)) if kind == "safe" else softmax(scores)
    return m.finish(mixed(p, m.head("v", keys, 2, width)))


VARIANTS: dict[str, Callable[[], Graph]] = {
    f.__name__: f
    for f in (bert, roberta, merged, gpt2, t5, bart, grouped, shared, decode, swapped, cached)
}


def random_attention(rng: Random) -> Graph:
    m = Maker(rng.randint(1, 2))
    heads, rows, keys = rng.randint(1, 3), rng.choice((1, 2, 5, 6, 13)), rng.randint(2, 21)
    depth, width = rng.randint(2, 13), rng.randint(2, 19)
    q, k = m.head("q", rows, heads, depth), m.head("k", keys, heads, depth)
    v = m.head("v", keys, heads, width)
    scores = times(scored(q, k), 0.5) if rng.random() < 0.7 else scored(q, k)
    if rng.random() < 0.3:
        past = cast(times(m.given("past", 1, 1, 1, 1), keys / 2), I32)
        past = elementwise("max", past, constant(0, I32))
        row, key = (cast(position_along((1, 1, rows, keys), axis), I32) for axis in (2, 3))
        seen = elementwise("le", key, elementwise("add", past, row))
        scores = elementwise("where", seen, scores, scalar_like(float("-inf"), scores))
    elif rng.random() < 0.7:
        full = (m.batch, heads, rows, keys)
        mask = m.given("mask", *(n if rng.random() < 0.5 else 1 for n in full))
        if rng.random() < 0.5:
            scores = elementwise("add", scores, mask)
        else:
            scores = elementwise("where", positive(mask), scores, scalar_like(-1e9, scores))
    if rng.random() < 0.2:
        scores = elementwise("sub", scores, cast(iota((1, 1, rows, keys), 3), F32))
    p = softmax(scores)
    return m.finish(mixed(no_nan(p) if rng.random() < 0.3 else p, v))
