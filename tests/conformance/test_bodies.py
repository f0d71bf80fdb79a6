"""Operators that ONNX defines by others, and a file's own functions, on every host.

Operands are left out, or small weights; attributes have defaults.  Operators are judged by ONNX's
evaluator, functions by hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from conftest import BundleOf, RunBundle
from onnx import helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from tilewright.compiler import compile_model
from tilewright.frontend import load

Array = np.ndarray[Any, np.dtype[Any]]
#: A model, its inputs, its outputs.
Case = tuple[onnx.ModelProto, dict[str, Array], dict[str, Array]]
HEAD = '<ir_version: 10, opset_import: ["" : 21, "my" : 1]>'
OWN = '<domain: "my", opset_import: ["" : 21, "my" : 1]>'


X = np.array([-2, 3], np.float32)


def some(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def call(
    op: str,
    operands: str,
    inputs: dict[str, Array],
    outputs: str = "y",
    opset: int = 23,
    attributes: dict[str, Any] | None = None,
    **weights: Array,
) -> Case:
    """One node, judged by ONNX's evaluator.  operands: names, and _ for one that is left out"""
    names = ["" if name == "_" else name for name in operands.split()]
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs.split(), **attributes or {})], "call",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
         for n, x in inputs.items()],
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in outputs.split()],
        [numpy_helper.from_array(x, n) for n, x in weights.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    judge = ReferenceEvaluator(model)
    return model, inputs, dict(zip(judge.output_names, judge.run(None, inputs), strict=True))


def own(text: str, want: Any, *functions: str) -> Case:
    whole = " ".join([HEAD, f"g (float[2] x) => (float[2] y) {{ {text} }}"])
    model = parser.parse_model(whole + "".join(OWN + f for f in functions))
    return model, {"x": X}, {"y": np.array(want, np.float32)}


Q, K, V = (some(1, 2, 1, 4, seed=s) for s in range(3))
PAST = {"pk": some(1, 2, 5, 4, seed=3), "pv": some(1, 2, 5, 4, seed=4)}
LOSS = {"x": some(3, 5), "t": np.array([1, 4, 0])}
LEAKY = "F <a: float = 0.5> (p) => (r) { r = LeakyRelu<alpha: float = @a>(p) }"
TWICE = "G <b: float = 0.25> (p) => (r) { t = my.F<a: float = @b>(p) u = my.F(t) r = Add(t, u) }"
CASES = {
    "cache and no mask": call(
        "Attention", "q k v _ pk pv", {"q": Q, "k": K, "v": V, **PAST}, "y key value"
    ),
    "table of rotations": call(
        "RotaryEmbedding", "x c s p", {"x": some(1, 1, 2, 4)},
        c=some(4, 2), s=some(4, 2, seed=1), p=np.array([[0, 3]]),
    ),
    "crop": call("CenterCropPad", "x s", {"x": some(4, 5)}, s=np.array([3, 7])),
    "loss": call(
        "NegativeLogLikelihoodLoss", "x t w", LOSS, opset=22, w=np.abs(some(5, seed=1)) + 1
    ),
    "losses": call(
        "SoftmaxCrossEntropyLoss", "x t w", LOSS, opset=22, attributes={"reduction": "none"},
        w=np.abs(some(5, seed=1)) + 1,
    ),
    "one grid": call("AffineGrid", "t s", {"t": some(1, 2, 3)}, s=np.array([1, 1, 3, 4])),
    "grids of corners": call(
        "AffineGrid", "t s", {"t": some(2, 3, 4)}, attributes={"align_corners": 1},
        s=np.array([2, 1, 2, 3, 4]),
    ),
    "default": own("y = my.F(x)", [-1, 3], LEAKY),
    "defaults inside": own("y = my.G(x)", [-0.75, 6], LEAKY, TWICE),
    "list": own(
        "y = my.F(x)", [-2, 6],
        "F <a: floats = [1.0, 2.0]> (p) => (r)"
        " { k = Constant<value_floats: floats = @a>() r = Mul(p, k) }",
    ),
    "text": own(
        "y = my.F(x)", X / 2 * (1 + np.tanh((X + 0.044715 * X**3) * (2 / np.pi) ** 0.5)),
        'F <a: string = "tanh"> (p) => (r) { r = Gelu<approximate: string = @a>(p) }',
    ),
}  # fmt: skip


@pytest.mark.by_turns
@pytest.mark.parametrize("name", CASES)
def test_bodies_are_written_out(name: str, bundle_of: BundleOf, run_bundle: RunBundle) -> None:
    proto, inputs, wanted = CASES[name]
    path = bundle_of(name, lambda options: compile_model(load(proto), options).contents)
    found = run_bundle(path, inputs)
    for output, want in wanted.items():
        assert found[output].dtype == np.float32
        # few products of numbers near 1, each rounded, in another order
        np.testing.assert_allclose(found[output], want, rtol=1e-5, atol=1e-6, err_msg=output)
