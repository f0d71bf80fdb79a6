"""Whole models on every host against onnxruntime: both PyTorch exporters' files, tiny sizes.

The bound is the issue's: relative error of the output's norm at most 1e-4.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from conftest import SLOW, BundleOf, RunBundle

from tilewright.bundle import Manifest, open_bundle
from tilewright.compiler import compile_model
from tilewright.frontend import load

MODELS = sorted((Path(__file__).parents[1] / "models").glob("*.onnx"))
BUCKETS = (8, 12)
#: What software adapters of WebGPU take by day: they compile kernels for up to a minute a model.
ON_SOFTWARE = (
    "bert-tiny-sdpa-dynamo", "gpt2-tiny-dynamo", "lstm-tiny-dynamo", "resnet-tiny-torchscript",
    "t5-tiny-decoder-dynamo",
)  # fmt: skip
BOUND = 1e-4


def inputs_for(manifest: Manifest, length: int) -> dict[str, np.ndarray]:
    """Token ids, a mask that hides the last token, or an image."""
    source, made = np.random.default_rng(5), {}
    for info in manifest.inputs:
        shape = tuple(length if isinstance(d, str) else d for d in info.shape)
        if info.dtype == "f32":
            made[info.name] = source.standard_normal(shape).astype(np.float32)
        elif "mask" in info.name:
            made[info.name] = np.ones(shape, np.int64)
            made[info.name][..., -1] = 0
        else:
            made[info.name] = source.integers(3, 90, shape)
    return made


@pytest.mark.by_turns
@pytest.mark.one_in(3, *SLOW, "native", "reference")
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_model_agrees_with_onnxruntime(
    path: Path, run_bundle: RunBundle, bundle_of: BundleOf
) -> None:
    names = load(path).dim_names
    buckets = dict.fromkeys(names, BUCKETS)
    folder = bundle_of(
        path.stem, lambda options: compile_model(path, replace(options, buckets=buckets)).contents
    )
    # a length between two buckets: padding and cropping take part
    inputs = inputs_for(open_bundle(folder).manifest, 10)
    session = onnxruntime.InferenceSession(str(path))
    expected = dict(
        zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True)
    )
    outputs = run_bundle(folder, inputs)
    assert outputs.keys() == expected.keys()
    for name, want in expected.items():
        got = outputs[name]
        assert got.shape == want.shape, name
        error = np.linalg.norm(got - want) / np.linalg.norm(want)
        assert error <= BOUND, f"{name}: {error}"
