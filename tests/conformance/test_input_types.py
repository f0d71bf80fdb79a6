"""Element types on every host: a tensor of 16 bits takes and gives that type, rounds f32, and what
does not fit is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
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


#: By the type of a model's tensors: numbers of it, and f32 with what becomes of them.
BF = ml_dtypes.bfloat16
BX = np.array([[3e38, -(2.0**-120), 1.0, 0.1], [-0.0, np.inf, -np.inf, np.nan]]).astype(BF)
WIDE = np.array([[70000, 2049, 2051, 1 / 3], [-1e-9, 65519, 65520, -3.4e38]], np.float32)
KINDS = [
    pytest.param(TensorProto.FLOAT16, X, H, id="f16"),
    pytest.param(TensorProto.BFLOAT16, BX, H.astype(BF), id="bf16"),
]


def bundle(folder: Path, host: str, kind: int) -> Path:
    """Of a model of one type, with an input x, a state h and outputs x and h + h."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["h"], ["next"]),
        helper.make_node("Add", ["h", "h"], ["twice"]),
    ]
    ins, outs = (
        [info(name, kind, (2, 4)) for name in names]
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


def same(found: Any, wanted: Any) -> None:
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))


@pytest.mark.parametrize(("kind", "x", "h"), KINDS)
def test_types_of_inputs_outputs_and_states(
    kind: int, x: Any, h: Any, host_name: str, open_host: Callable[[Path], Any], tmp_path: Path
) -> None:
    """Numbers and types are the same on each host, and so is each word about others.

    No number here is subnormal in f32, so GPUs keep all of them.
    """
    opened = open_host(bundle(tmp_path, host_name, kind))
    name = x.dtype.name
    same(opened.run({"x": x}).outputs["same"], x)
    same(opened.run({"x": x.view(np.uint16)}).outputs["same"], x)
    with np.errstate(over="ignore"):
        rounded, sums = WIDE.astype(x.dtype), h + h
    same(opened.run({"x": WIDE}).outputs["same"], rounded)

    opened.set_state("h", h)
    same(opened.state("h"), h)
    same(opened.run({"x": x}).outputs["twice"], sums)
    opened.set_state("h", WIDE)
    same(opened.state("h"), rounded)

    hint = f"Give {name} or float32 or uint16, as of array.astype('{name}')"
    for other in ("float64", "int32", "complex64"):
        wrong = np.zeros((2, 4), other)
        words = f"has the wrong type: expected {name}, found {other}"
        assert refused(opened.run, {"x": wrong}) == (f"Input 'x' {words}", hint)
        assert refused(opened.set_state, "h", wrong) == (f"State 'h' {words}", hint)
    assert refused(opened.run, {"x": x, "z": x}) == (
        "The model has no input 'z'",
        "Its inputs are x; what the model file has a value for is a weight, which runs "
        "cannot change",
    )
    same(opened.state("h"), rounded)
