"""Element types of given arrays on every host: f16 is widened, and what does not fit is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import TARGETS, options_for
from onnx import TensorProto, helper

from tilewright.base.errors import InputError
from tilewright.bundle import write
from tilewright.compiler import compile_model

#: The largest and the smallest numbers of f16, and what is none.
X = np.array([[65504, -(2.0**-14), 2.0**-24, 0.1], [-0.0, np.inf, -np.inf, np.nan]], np.float16)
H = np.array([[1, 2, 3, 4], [0.5, 0.25, 2.0**-24, 0]], np.float16)


def bundle(folder: Path, host: str) -> Path:
    """Of a model in f16, with an input x, a state h and outputs x and h + h."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["h"], ["next"]),
        helper.make_node("Add", ["h", "h"], ["twice"]),
    ]
    ins, outs = (
        [info(name, TensorProto.FLOAT16, (2, 4)) for name in names]
        for names in (("x", "h"), ("same", "next", "twice"))
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ins, outs), opset_imports=opsets, ir_version=8
    )
    onnx.save(model, folder / "model.onnx")
    options = replace(options_for(TARGETS[host]), states={"h": "next"})
    write(compile_model(folder / "model.onnx", options).contents, folder / "bundle")
    return folder / "bundle"


def refused(act: Callable[..., Any], *given: Any) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        act(*given)
    return caught.value.message, caught.value.hint


def test_types_of_inputs_and_states(
    host_name: str, open_host: Callable[[Path], Any], tmp_path: Path
) -> None:
    """Widened numbers are the same on each host, and so is each word about others.

    No number of f16 is subnormal in f32, so GPUs keep all of them.
    """
    opened = open_host(bundle(tmp_path, host_name))
    found = opened.run({"x": X}).outputs["same"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, X.astype(np.float32))

    opened.set_state("h", H)
    np.testing.assert_array_equal(opened.state("h"), H.astype(np.float32))
    np.testing.assert_array_equal(opened.run({"x": X}).outputs["twice"], 2 * H.astype(np.float32))

    hint = "Give float32 or float16, as of array.astype('float32')"
    for kind in ("float64", "int32", "complex64"):
        wrong, words = np.zeros((2, 4), kind), f"has the wrong type: expected float32, found {kind}"
        assert refused(opened.run, {"x": wrong}) == (f"Input 'x' {words}", hint)
        assert refused(opened.set_state, "h", wrong) == (f"State 'h' {words}", hint)
    assert refused(opened.run, {"x": X, "z": X}) == (
        "The model has no input 'z'",
        "Its inputs are x",
    )
    np.testing.assert_array_equal(opened.state("h"), H.astype(np.float32))
