"""Products with weights of few bits and a scale per block, as frontends state them.

Input: the name of a case.  Output: its graph and inputs: whole numbers and scales that are powers
of two, so that any order of the reduction gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.base.dtypes import BY_NUMPY, F32, I16
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    broadcast,
    cast,
    contract,
    elementwise,
    graph_input,
    node,
    reshape,
    slice_,
    transpose,
)


@dataclass(frozen=True)
class Case:
    """rows x depth times depth x columns; `low` to `high` are the integers, in blocks (0: one)."""

    rows: int
    depth: int
    columns: int
    block: int
    low: int = 0
    high: int = 15
    zeros: bool = True
    equation: str = "mk,nk->mn"

    @property
    def bits(self) -> int:
        return 4 if self.high - self.low < 16 else 8


CASES = {
    "one row": Case(1, 64, 24, 32),
    "one row, one zero": Case(1, 64, 24, 32, zeros=False),
    "three rows": Case(3, 80, 19, 16),
    "a long row": Case(1, 512, 24, 32),
    "long rows": Case(3, 530, 19, 16, low=-8, high=7),
    "long rows, one zero": Case(2, 288, 20, 0, zeros=False),
    "part of a block": Case(2, 70, 22, 32),
    "part of a word": Case(5, 37, 13, 0),
    "many rows": Case(13, 96, 21, 32),
    "signed": Case(4, 48, 9, 16, low=-8, high=7),
    "signed, no zeros": Case(3, 48, 9, 16, low=-8, high=7, zeros=False),
    "bytes": Case(1, 64, 17, 32, high=255),
    "bytes by channel": Case(7, 37, 17, 0, low=-128, high=127, zeros=False),
    "bytes in odd blocks": Case(3, 60, 11, 15, low=-100, high=100),
    "long bytes": Case(1, 288, 24, 32, high=255),
    "long signed bytes": Case(3, 160, 19, 16, low=-100, high=100),
    "many rows of bytes": Case(9, 64, 24, 32, high=255),
    "few columns": Case(6, 64, 3, 32),
    "weight of rows": Case(3, 64, 24, 32, equation="mk,kn->mn"),
    "activations of columns": Case(3, 64, 24, 32, equation="km,nk->mn"),
}


def made(name: str) -> tuple[Graph, dict[str, np.ndarray]]:
    """sum of a * (whole - zero) * scale, as frontends state it."""
    case = CASES[name]
    rng = np.random.default_rng(len(name))
    n, k = case.columns, case.depth
    size = case.block or k
    blocks = -(-k // size)
    kind = "i1" if case.low < 0 else "u1"
    whole = weight("q", rng.integers(case.low, case.high + 1, (n, blocks, size)).astype(kind))
    scale = weight("s", 2.0 ** rng.integers(-2, 3, (n, blocks, 1)).astype("f4"))
    centred = cast(whole, I16)
    if case.zeros:
        zero = weight("z", rng.integers(case.low, case.high + 1, (n, blocks, 1)).astype(kind))
        centred = elementwise("sub", centred, cast(zero, I16))
    elif case.low == 0:
        centred = elementwise("sub", centred, node(ops.Constant(np.array(8, "i2"))))
    product = elementwise("mul", cast(centred, F32), broadcast(scale, whole.shape))
    product = slice_(reshape(product, (n, blocks * size)), (0, 0), (n, k))
    left, right = case.equation.split("->")[0].split(",")
    if right == "kn":
        product = transpose(product, (1, 0))
    shape = [{"m": case.rows, "k": k}[c] for c in left]
    x = graph_input("x", tuple(shape), F32)
    graph = Graph(name, (("x", x),), (("y", contract(case.equation, x, product)),))
    return graph, {"x": rng.integers(-3, 4, shape).astype("f4")}


def weight(name: str, value: np.ndarray) -> Node:
    return node(ops.Weight(name, value.shape, BY_NUMPY[value.dtype.name], lambda: value))
