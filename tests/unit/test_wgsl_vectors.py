"""Of what the memory of a WGSL kernel consists, and that its threads never share a vector.

Who writes to an element of a vector may touch all of it.  The interpreter counts the vectors that
`wholes` names (helpers/graphs.py); here these are compared with the text.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.graphs import interpret, results, run_steps, steps_of
from helpers.whole_vectors import wholes

from tilewright.base.dtypes import F32
from tilewright.graph import ops
from tilewright.graph.node import Graph, Node, contract, graph_input, node
from tilewright.graph.passes import optimise
from tilewright.kernel.spec import Kernel
from tilewright.targets.protocol import PACKING
from tilewright.targets.wgsl.target import Wgsl

WGSL = Wgsl()

#: (rows, columns, whether memory consists of vectors): a row that begins within a vector shares it
#: with the row before.
PRODUCTS = [
    (1, 21, True), (1, 24, True), (2, 21, False), (3, 24, True), (13, 21, False), (13, 24, True),
    (13, 23, False),
]  # fmt: skip


def product(rows: int, columns: int) -> tuple[Graph, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-3, 4, shape).astype("f4") for shape in ((rows, 128), (128, columns)))
    weight: Node = node(ops.Weight("w", w.shape, F32, lambda: w))
    a = graph_input("a", x.shape, F32)
    return Graph("g", (("a", a),), (("y", contract("mk,kn->mn", a, weight)),)), {"a": x}


@pytest.mark.parametrize(("rows", "columns", "in_vectors"), PRODUCTS)
def test_memory_consists_of_vectors_where_nobody_shares_one(
    rows: int, columns: int, in_vectors: bool
) -> None:
    graph, values = product(rows, columns)
    packed, texts = optimise(graph, PACKING), list[str]()

    def execute(kernel: Kernel, buffers: list[np.ndarray]) -> None:
        fn = WGSL.lower(kernel, WGSL.default(kernel, ""))
        assert fn.thread
        assert (0 in wholes(fn)) == in_vectors
        texts.append(WGSL.emit(kernel, fn))
        interpret(fn, buffers)

    (got,) = run_steps(packed, steps_of(packed), values, execute)
    np.testing.assert_array_equal(got, results(graph, values)[0])
    (text,) = texts
    element = "vec4<u32>" if in_vectors else "u32"
    assert f"memory: array<{element}>" in text
    # rows of many are read in vectors, which are put together of words
    assert ("bitcast<vec4<f32>>(four(" in text) == (rows > 4 and not in_vectors)
