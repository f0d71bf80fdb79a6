"""What cases of the conformance suite are made of: inputs with values, weights, a graph of them.

Input: shapes and dtypes.  Output: `Case`: graph, inputs, and how close a host must come to the
graph interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.dtypes import BOOL, F32, DType
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    graph_input,
    node,
)

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Case:
    """`ulp`: largest error of any element in units in the last place; `relative`: of the norm.

    Both None: every bit must agree.
    """

    graph: Graph
    inputs: dict[str, Array]
    ulp: float | None = None
    relative: float | None = None


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def given(*tensors: tuple[tuple[int, ...], DType] | tuple[int, ...]) -> tuple[list[Node], dict]:
    """Inputs a, b, c, ... with normally distributed (or small integer) values."""
    nodes, values = [], {}
    for position, tensor in enumerate(tensors):
        shape, dtype = tensor if isinstance(tensor[-1], DType) else (tensor, F32)
        name = "abcdefgh"[position]
        nodes.append(graph_input(name, shape, dtype))
        source = rng(position + 1)
        if dtype.is_float:
            values[name] = source.standard_normal(shape).astype(dtype.numpy)
        else:
            top = 2 if dtype == BOOL else 5
            values[name] = source.integers(0, top, shape).astype(dtype.numpy)
    return nodes, values


def weight(*shape: int, seed: int = 9) -> Node:
    value = rng(seed).standard_normal(shape, np.float32)
    return node(ops.Weight(f"w{seed}_{shape}", shape, F32, lambda: value))


def case(nodes: list[Node], values: dict[str, Array], *outputs: Node, **close: float) -> Case:
    inputs = tuple((str(n.op.name), n) for n in nodes if isinstance(n.op, ops.Input))
    named = tuple((f"y{i}", n) for i, n in enumerate(outputs))
    return Case(Graph("case", inputs, named), values, **close)
