"""A model whose length each run says: every host gives what onnxruntime gives at that length.

Lengths come in any order on one loaded bundle, so that what a longer run left would show.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from conftest import SLOW, TARGETS
from helpers.lengths import MOST, expected, rows, saved, tokens, transformer

from tilewright.bundle import write
from tilewright.compiler import Options, compile_model

pytestmark = [pytest.mark.by_turns, pytest.mark.one_in(3, *SLOW)]

ASKED = (1, 2, 7, 16, 37, MOST)


def test_long_rows(host_name: str, open_host: Callable[[Path], Any], tmp_path: Path) -> None:
    model = saved(rows(), tmp_path)
    options = Options(extents={"n": 300}, targets=(TARGETS[host_name],))
    write(compile_model(model, options).contents, tmp_path / "bundle")
    host = open_host(tmp_path / "bundle")
    for n in (300, 1, 130, 17, 299, 64, 2):
        given = {"x": np.random.default_rng(n).standard_normal((1, 4, n)).astype(np.float32)}
        outputs = host.run(given).outputs
        for name, want in expected(model, given).items():
            np.testing.assert_allclose(outputs[name], want, 1e-4, 1e-5, err_msg=f"{name} at {n}")


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "scores are outputs"])
def test_any_length(
    fused: bool, host_name: str, open_host: Callable[[Path], Any], tmp_path: Path
) -> None:
    model = saved(transformer(fused), tmp_path)
    options = Options(extents={"n": MOST}, targets=(TARGETS[host_name],))
    write(compile_model(model, options).contents, tmp_path / "bundle")
    host = open_host(tmp_path / "bundle")
    order = [*ASKED, *ASKED]
    Random(1).shuffle(order)
    for n in order:
        outputs = host.run(tokens(n)).outputs
        for name, want in expected(model, tokens(n)).items():
            assert outputs[name].shape == want.shape
            np.testing.assert_allclose(outputs[name], want, 1e-4, 1e-4, err_msg=f"{name} at {n}")
