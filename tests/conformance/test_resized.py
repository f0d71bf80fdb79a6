"""Resize on every host: integers, what is not finite, whole and broken scales, few or many taps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from conftest import BundleOf, RunBundle
from helpers.resized import resize_model

from tilewright.compiler import compile_model
from tilewright.frontend import import_model, load
from tilewright.graph.node import evaluate


@dataclass(frozen=True)
class Resized:
    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    attributes: dict[str, Any]
    dtype: str = "float32"
    infinite: bool = False


HALF = {"mode": "linear"}
CASES = {
    "linear-twice": Resized((1, 3, 9, 12), (1, 3, 18, 24), HALF, infinite=True),
    "linear-thrice": Resized((1, 2, 5, 11), (1, 2, 15, 33), HALF),
    "linear-broken": Resized((1, 2, 7, 10), (1, 2, 10, 17), HALF, infinite=True),
    "cubic": Resized((1, 2, 6, 8), (1, 2, 12, 16), {"mode": "cubic"}),
    "corners": Resized(
        (1, 2, 6, 9), (1, 2, 12, 19),
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    "nearest": Resized((1, 2, 5, 7), (1, 2, 15, 21), {"mode": "nearest"}),
    "shrunk": Resized((1, 2, 40, 60), (1, 2, 7, 8), {"mode": "linear", "antialias": 1}),
    "bytes": Resized((1, 1, 5, 6), (1, 1, 10, 12), HALF, "uint8"),
    "signed-bytes": Resized((1, 1, 5, 6), (1, 1, 10, 9), {"mode": "cubic"}, "int8"),
    "integers": Resized((1, 1, 5, 6), (1, 1, 10, 12), HALF, "int32"),
}  # fmt: skip


@pytest.mark.by_turns
@pytest.mark.parametrize("name", CASES)
def test_resize(name: str, run_bundle: RunBundle, bundle_of: BundleOf) -> None:
    case = CASES[name]
    source = np.random.default_rng(3)
    if case.dtype == "float32":
        x = source.standard_normal(case.shape).astype(np.float32)
    else:
        x = source.integers(0, 100, case.shape).astype(case.dtype)
    if case.infinite:
        x[0, 0, 3, 4], x[0, 1, 1, 1] = np.inf, np.nan
    model = load(resize_model(x, sizes=case.sizes, **case.attributes))
    graph = import_model(model)
    (want,) = evaluate([n for _, n in graph.outputs], {"x": x})
    found = run_bundle(
        bundle_of(name, lambda options: compile_model(model, options).contents), {"x": x}
    )["y"]
    assert found.dtype == want.dtype
    if case.dtype == "float32":
        # up to sixteen products of numbers below 5, each rounded, in another order
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-5)
    else:
        np.testing.assert_array_equal(found, want)
