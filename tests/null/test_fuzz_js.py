"""Readers of the browser's engine and tuner take damaged data as typed errors, or are right.

Input: seeds.  Bundles, messages of a tuning server, static builds and records of a device, with
structural damage (helpers/mutations.py).  Output: nothing hangs, throws what is not typed, or makes
arrays as long as a file says.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from frontend_factory import model
from fuzz_node import Found, outcomes
from helpers.damaged_bundles import Damaged, Whole
from helpers.seeds import seeds
from onnx import TensorProto, helper
from test_bundle_fuzz import whole

from tilewright.compiler import Options, compile_model

#: Seconds of processor time that a case may take.
MOST_SECONDS = 2.0

Inputs = dict[str, dict[str, Any]]


@cache
def rich() -> Whole:
    """Buckets, a state, an asset, a gather, and weights that are narrower in files."""
    source = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("ReduceSum", ["a"], ["sum"], keepdims=1),
        helper.make_node("Add", ["sum", "h"], ["hn"]),
        helper.make_node("Add", ["a", "hn"], ["y"]),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["rows"], axis=1),
        helper.make_node("Cast", ["i"], ["ids"], to=TensorProto.INT64),
        helper.make_node("Gather", ["rows", "ids"], ["g"]),
    ]
    weights = {
        "w": source.standard_normal((8, 8)).astype(np.float32),
        "q": source.integers(-128, 128, (300, 40)).astype(np.int8),
        "scale": np.full(40, 0.5, np.float32),
    }
    proto = model(nodes, {"x": ["n", 8], "i": [3], "h": [1, 1]}, ["y", "g", "hn"], weights)
    with TemporaryDirectory() as folder:
        words = Path(folder) / "words.txt"
        words.write_text("some words")
        options = Options(
            buckets={"n": (4, 8)}, states={"h": "hn"}, assets=(words,), variants=("x86-simd",)
        )
        return Whole.of(compile_model(proto, options).contents)


def tensor(*shape: int) -> dict[str, Any]:
    return {"shape": shape, "data": [float(n % 7) for n in range(int(np.prod(shape)))]}


#: By name: a bundle, and inputs of two runs.
BUNDLES = {
    "extents": (whole, [{"x": tensor(5, 8)}, {"x": tensor(8, 8)}]),
    "rich": (rich, [{"x": tensor(3, 8), "i": tensor(3)}, {"x": tensor(8, 8), "i": tensor(3)}]),
}


def bundle_case(number: int) -> tuple[dict[str, Any], bool]:
    """Its code may run for ever, which no reader can know: pages end such a worker."""
    rng = Random(f"bundle {number}")
    make, inputs = BUNDLES[("extents", "rich")[number % 2]]
    damaged = make().damaged(rng)
    return as_case(damaged, inputs, isolated=rng.random() < 0.5), True


def as_case(bundle: Damaged | Whole, inputs: list[Inputs], *, isolated: bool) -> dict[str, Any]:
    files = {path: b64encode(data).decode() for path, data in bundle.files.items()}
    return {"files": files, "inputs": inputs, "isolated": isolated}


def problems(found: Found) -> list[str]:
    """What must not be among the outcomes of a case."""
    said = [f"{use}: {word}" for use, word in found.items() if isinstance(word, str)]
    bad = [line for line in said if line.split(": ")[1].split()[0] in ("untyped", "hung", "died")]
    slow = ["slow"] if found.get("seconds", 0) > MOST_SECONDS else []
    return bad + slow + [f"lost: {word}" for word in found.get("lost", ())]
