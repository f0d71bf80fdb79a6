"""Golden text: two kernels, as specification, loops and Wasm: what a change of the compiler shows.

Input: small graphs.  Output: tests/golden/*.txt, compared; `--bless` writes them anew and still
fails that run, so that nobody blesses by accident (and never under CI).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lab.subjects import compile_graph
from tilewright.base.dtypes import F32
from tilewright.compiler import Options
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    contract,
    elementwise,
    graph_input,
    node,
    scalar_like,
    toposort,
)
from tilewright.kernel import loops, spec
from tilewright.targets import wasm

HERE = Path(__file__).parent


def weight(*shape: int) -> Node:
    return node(ops.Weight("w", shape, F32, lambda: np.ones(shape, np.float32)))


def elementwise_chain() -> Node:
    x = graph_input("x", (18,), F32)
    return elementwise("mul", elementwise("add", x, scalar_like(1.0, x)), x)


def matmul_bias() -> Node:
    x = graph_input("x", (3, 4), F32)
    return elementwise("add", contract("mk,kn->mn", x, weight(4, 8)), weight(8))


KINDS: dict[str, Callable[[], Node]] = {
    "map": elementwise_chain,
    "contract": matmul_bias,
}


@pytest.mark.parametrize("kind", KINDS)
def test_text_of_one_kernel(kind: str, request: pytest.FixtureRequest) -> None:
    out = KINDS[kind]()
    inputs = tuple(("x", n) for n in toposort([out]) if isinstance(n.op, ops.Input))
    compiled = compile_graph(Graph(kind, inputs, (("y", out),)), Options(variants=("x86",)))
    (code,) = compiled.codes
    assert code.kernel.anchor == kind
    parts = (
        spec.render(code.kernel),
        f"schedule {code.schedule}",
        loops.render(code.loops),
        wasm.emit_text(code.loops, wasm.VARIANTS["x86"]),
    )
    compare(HERE / f"{kind}.txt", "\n\n".join(parts) + "\n", request.config.getoption("--bless"))


def compare(path: Path, text: str, bless: bool) -> None:
    if bless:
        assert not os.environ.get("CI"), "--bless is for people"
        path.write_text(text)
        pytest.fail(f"{path.name} was written; look at the difference and run without --bless")
    assert path.exists(), f"{path.name} is missing: run with --bless"
    assert text == path.read_text(), f"{path.name} differs: run with --bless if you meant it"
