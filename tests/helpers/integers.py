"""Random quantised layers: bytes times small weights, as real numbers or as integers.

Input: a seed.  Output: a `Graph` and input values.  Scales are powers of two and sums stay below
2^24, so that real and integer arithmetic give equal results.
"""

from __future__ import annotations

from random import Random

import numpy as np

from tilewright.base.dtypes import F32, I8, I16, I32, U8, DType
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    broadcast,
    cast,
    constant,
    contract,
    elementwise,
    graph_input,
    node,
    pad,
    reduce,
    reshape,
    unfold,
)


def quantised_graph(seed: int) -> tuple[Graph, dict[str, np.ndarray]]:
    """A matrix product, a convolution or a depthwise one; then sums, a division, perhaps bytes."""
    rng = Random(f"quantised{seed}")
    real, kind = rng.random() < 0.5, rng.choice(("matrix", "windows", "depthwise"))
    rows, depth, cols = rng.choice((1, 3, 7, 13)), rng.choice((3, 4, 8, 18)), rng.choice((5, 8, 19))
    if kind == "depthwise":
        depth = rng.choice((4, 16, 32))
    dtype = rng.choice((U8, U8, I8))
    low, high = (0, 256) if dtype == U8 else (-128, 128)
    most = rng.choice((8, 64, 127))
    taps, axis = 3, 0
    if kind == "depthwise":
        taps, axis = rng.choice((1, 3, 3, 5)), rng.choice((0, 0, 0, 1))
    extents = [rows, depth]
    extents[axis] += taps - 1
    q = graph_input("q", (extents[0], extents[1]), dtype)
    values = {"q": np.asarray(_numbers(rng, q.shape, low, high)).astype(dtype.numpy)}
    zero = rng.randint(0, 3)
    x = elementwise("sub", cast(q, I16), constant(zero, I16)) if zero else cast(q, I16)

    def factor(n: Node, scale: Node) -> Node:
        return elementwise("mul", cast(n, F32), scale) if real else n

    def weights(*shape: int) -> Node:
        stored = _numbers(rng, shape, -most, most + 1).astype(np.int8)
        scales = 2.0 ** _numbers(rng, (shape[0], *(1 for _ in shape[1:])), -3, 2)
        found = cast(node(ops.Weight("w", shape, I8, lambda: stored)), I16)
        return factor(found, constant(scales, F32))

    x = factor(x, constant(0.5, F32))
    if kind == "matrix":
        made = contract("mk,nk->mn", x, weights(cols, depth))
    else:
        if rng.random() < 0.5:
            x = pad(x, (1, 0), (1, 0))
        x = unfold(x, axis, taps, 1 if axis else rng.randint(1, 2), 1)
        if kind == "windows":
            made = contract("mkt,nkt->mn", x, weights(cols, depth, 3))
        else:
            made = _sums(rng, x, weights(depth, taps), F32 if real else I32)
    made = _finished(rng, made)
    return Graph("quantised", (("q", q),), (("y", made),)), values


def _numbers(rng: Random, shape: tuple[int, ...], low: int, high: int) -> np.ndarray:
    made = np.random.default_rng(rng.getrandbits(32)).integers(low, high, shape)
    return np.asarray(made).astype(np.float64)


def _sums(rng: Random, x: Node, w: Node, dtype: DType) -> Node:
    if rng.random() < 0.5:
        spread = cast(broadcast(w, x.shape), dtype)
    else:
        spread = broadcast(reshape(cast(w, dtype), (1, *w.shape)), x.shape)
    product = elementwise("mul", cast(x, dtype), spread)
    return reshape(reduce("sum", product, (2,)), x.shape[:2])


def _finished(rng: Random, made: Node) -> Node:
    """Integer sums take two constants and a scale; then bias, division and a cast to bytes."""
    if made.dtype == I32:
        for _ in range(2):
            made = elementwise("add", made, constant(_numbers(rng, made.shape[-1:], -9, 9), I32))
        made = elementwise("mul", cast(made, F32), constant(0.25, F32))
    if rng.random() < 0.7:
        made = elementwise("add", made, constant(_numbers(rng, made.shape[-1:], -9, 9), F32))
    made = elementwise("div", made, constant(rng.choice((0.5, 4.0)), F32))
    if rng.random() < 0.3:
        return made
    least, most, dtype = rng.choice(((0.0, 255.0, U8), (-128.0, 127.0, I8)))
    made = elementwise("max", elementwise("round", made), constant(least, F32))
    return cast(elementwise("min", made, constant(most, F32)), dtype)
