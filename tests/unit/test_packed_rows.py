"""Tables that are looked up by row and multiplied: one tensor, whatever its layout, and the same
numbers as the graph that was written down."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.gguf_files import Tiny, write_tiny
from helpers.graphs import results, run_steps, steps_of

from tilewright.base.dtypes import F32, I64
from tilewright.compiler import Options, compile_model
from tilewright.frontend.gguf import GgufModel
from tilewright.graph import ops
from tilewright.graph.node import Graph, Node, constant, contract, gather, graph_input, node
from tilewright.graph.passes import optimise
from tilewright.targets.protocol import PACKING

RNG = np.random.default_rng(3)
WIDTH = 64


def tied(words: int, product: str) -> Graph:
    """Rows of a table, and a product with it."""
    shape = (words, WIDTH) if product == "mk,nk->mn" else (WIDTH, words)
    axis = shape.index(words)
    value = RNG.standard_normal(shape).astype("f4")
    table = node(ops.Weight("table", shape, F32, lambda: value))
    ids, x = graph_input("ids", (3,), I64), graph_input("x", (2, WIDTH), F32)
    outputs = (("rows", gather(table, ids, axis)), ("logits", contract(product, x, table)))
    return Graph("tied", (("ids", ids), ("x", x)), outputs)


def tables(graph: Graph) -> set[Node]:
    """The stored constants with more than one row."""
    found = {i for step in steps_of(graph) for i in step.inputs if i.constant}
    return {n for n in found if n.size > WIDTH}


@pytest.mark.parametrize("words", [48, 50])
@pytest.mark.parametrize("product", ["mk,nk->mn", "mk,kn->mn"])
def test_table_of_numbers_is_stored_once(words: int, product: str) -> None:
    graph = tied(words, product)
    packed = optimise(graph, PACKING)
    given = {"ids": np.array([0, words - 1, 9]), "x": RNG.integers(-4, 4, (2, WIDTH)).astype("f4")}
    made = run_steps(packed, steps_of(packed), given)
    for found, wanted in zip(made, results(graph, given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert len(tables(packed)) == 1


def test_table_of_rows_alone_keeps_its_layout() -> None:
    ids = graph_input("ids", (3,), I64)
    table = constant(RNG.standard_normal((48, WIDTH)).astype("f4"))
    graph = Graph("rows", (("ids", ids),), (("rows", gather(table, ids, 0)),))
    assert optimise(graph, PACKING).outputs[0][1].op == ops.Gather(0)
    assert all(not isinstance(n.op, ops.Realize) for n in optimise(graph, PACKING).nodes())


@pytest.mark.parametrize("kind", ["F32", "F16", "Q5_0", "Q5_1", "Q8_0", "Q6_K"])
def test_embeddings_that_are_the_output_are_stored_once(kind: str, tmp_path: Path) -> None:
    """By the bytes of the bundle's weights, which are those of a model without such an output but
    for the table of its own."""
    sizes = []
    for name, is_tied in (("tied", True), ("apart", False)):
        tiny = Tiny(type=kind, layers=1, width=256, heads=2, kv_heads=1, head=128, hidden=256,
                    words=48, tied=is_tied)  # fmt: skip
        model = GgufModel(write_tiny(tmp_path / f"{name}.gguf", tiny))
        made = compile_model(model, Options(states=model.states, buckets={"n": (1, 8)}))
        sizes.append(made.program.tensor_bytes)
    each = 4 if kind in ("F32", "F16") else 1
    assert sizes[0] <= sizes[1] - 48 * 256 * each
