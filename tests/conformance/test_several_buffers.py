"""A model whose values one buffer has no room for, on WebGPU's hosts against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from conftest import TARGETS, BundleOf, on
from helpers.skips import SIDE, skipping

from tilewright.bundle import open_bundle
from tilewright.compiler import compile_model

BANK = 5 * 2**14


@on(*(host for host, target in TARGETS.items() if target == "wgsl"))
def test_values_in_several_buffers(
    tmp_path: Path, bundle_of: BundleOf, open_host: Callable[[Path], Any]
) -> None:
    path = skipping(tmp_path)
    folder = bundle_of(
        "skipping",
        lambda options: compile_model(path, replace(options, settings={"bank": BANK})).contents,
    )
    facts = open_bundle(folder).manifest.section("wgsl").facts
    assert len(facts["annexes"]["bytes"]) > 2
    assert max(facts["memory"]["bytes"], *facts["annexes"]["bytes"]) <= BANK
    opened = open_host(folder)
    for seed in range(2):
        x = np.random.default_rng(seed).standard_normal((1, 2, SIDE, SIDE), "f4")
        (want,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})
        got = opened.run({"x": x}).outputs["y"]
        assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want)
