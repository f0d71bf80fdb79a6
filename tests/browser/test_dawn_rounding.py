"""Functions that WGSL leaves inexact are exact on Dawn's adapter, and NaN is known as such."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.subjects import compile_graph
from tilewright.base.dtypes import F32
from tilewright.base.errors import HostError
from tilewright.bundle import write
from tilewright.compiler import Options
from tilewright.graph.node import Graph, Node, elementwise, graph_input, scalar_like
from tilewright.hosts.browser import BrowserHost
from tilewright.hosts.browser_dawn import require_dawn

pytestmark = pytest.mark.browser

SIZE = 1 << 16
SMALLEST = np.float32(2.0**-126)
SPECIAL = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, SMALLEST, 3.4028235e38], np.float32)


@pytest.fixture(scope="module")
def host() -> Iterator[BrowserHost]:
    try:
        dawn = require_dawn()
    except HostError as error:
        pytest.skip(str(error))
    with BrowserHost(dawn) as host:
        yield host


def numbers(seed: int) -> Any:
    """Any bits but those of subnormals, and every pair of special values."""
    bits = np.random.default_rng(seed).integers(0, 1 << 32, SIZE, np.uint32)
    found = bits.view(np.float32)
    pairs = np.meshgrid(SPECIAL, SPECIAL, indexing="ij")[seed].ravel()
    found[: pairs.size] = pairs
    tiny = (np.abs(found) < SMALLEST) & (found != 0)
    return np.where(tiny, np.float32(1.5), found)


def run(host: BrowserHost, tmp_path: Path, make: Callable[[Node, Node], Node]) -> tuple[Any, ...]:
    nodes = [graph_input(name, (SIZE,), F32) for name in "ab"]
    graph = Graph("case", tuple(zip("ab", nodes, strict=True)), (("y", make(*nodes)),))
    write(compile_graph(graph, Options(targets=("wgsl",))).contents, tmp_path)
    values = [numbers(0), numbers(1)]
    got = host.load(tmp_path).run(dict(zip("ab", values, strict=True))).outputs["y"]
    return *values, got


def test_division(host: BrowserHost, tmp_path: Path) -> None:
    a, b, got = run(host, tmp_path, lambda a, b: elementwise("div", a, b))
    with np.errstate(all="ignore"):
        want = a / b
    normal = ~(np.abs(want) < SMALLEST)
    np.testing.assert_array_equal(got[normal], want[normal])
    assert (np.abs(got[~normal]) <= SMALLEST).all()


def test_square_root(host: BrowserHost, tmp_path: Path) -> None:
    a, _, got = run(host, tmp_path, lambda a, b: elementwise("sqrt", elementwise("max", a, b)))
    b = numbers(1)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, np.sqrt(np.maximum(a, b)))


@pytest.mark.parametrize("name", ["lt", "le", "eq"])
def test_comparisons(host: BrowserHost, tmp_path: Path, name: str) -> None:
    """And their contraries, which a driver that takes it that there is no NaN gets wrong."""

    def both(a: Node, b: Node) -> Node:
        one, zero = scalar_like(1.0, a), scalar_like(0.0, a)
        holds = elementwise(name, a, b)
        fails = elementwise("not", elementwise(name, a, a))
        first = elementwise("where", holds, one, zero)
        return elementwise("sub", first, elementwise("where", fails, one, zero))

    a, b, got = run(host, tmp_path, both)
    compare = {"lt": np.less, "le": np.less_equal, "eq": np.equal}[name]
    np.testing.assert_array_equal(got, compare(a, b) * 1.0 - ~compare(a, a) * 1.0)
