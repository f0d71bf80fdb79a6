"""Recurrent networks and encoders of text as ONNX.

Input: lengths and widths.  Output: models of one input: `x`, f32[steps, 1, width], or `ids`,
i64[1, tokens].  MDTB gives no sizes of its GRU and LSTM: two layers of 512 over 100 steps.
"""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto

from lab.workloads.models.network import Activation, Network

#: Gates of a cell.
GATES = {"GRU": 3, "LSTM": 4}


def recurrent(cell: str, width: int = 512, layers: int = 2, steps: int = 100) -> ModelProto:
    """A recurrent network.  cell: "GRU" or "LSTM".  Its output is the hidden state after each step,
    [steps, 1, width]"""
    net = Network(cell)
    x = net.input("x", (steps, 1, width))
    axis = net.constant(np.array([1]))
    for _ in range(layers):
        rows = GATES[cell] * width
        weights = [net.normal((1, rows, width), width**-0.5) for _ in range(2)]
        bias = net.normal((1, 2 * rows), 0.1)
        # PyTorch's GRU adds the bias of the candidate state before the reset gate is applied
        more = {"linear_before_reset": 1} if cell == "GRU" else {}
        x = net.op(cell, (steps, 1, 1, width), x, *weights, bias, hidden_size=width, **more)
        x = net.op("Squeeze", (steps, 1, width), x, axis)
    return net.model(x)


def encoder(
    layers: int, width: int = 768, heads: int = 12, tokens: int = 128, words: int = 30522
) -> ModelProto:
    """BERT's encoder.  Its output is the last hidden states, [1, tokens, width].

    DistilBERT has half the layers.  There is no mask, and only one type of token.
    """
    net = Network("BERT")
    ids = net.input("ids", (1, tokens), TensorProto.INT64)
    shape = (1, tokens, width)
    x = net.op("Gather", shape, net.normal((words, width), 1.0), ids, axis=0)
    x = _normalised(net, net.op("Add", shape, x, net.normal(shape, 0.5)))
    for _ in range(layers):
        x = _normalised(net, net.add(x, _attention(net, x, heads)))
        up = _gelu(net, _linear(net, x, 4 * width))
        x = _normalised(net, net.add(x, _linear(net, up, width)))
    return net.model(x)


def _linear(net: Network, x: Activation, outputs: int) -> Activation:
    inputs = x.shape[-1]
    shape = (*x.shape[:-1], outputs)
    made = net.op("MatMul", shape, x, net.normal((inputs, outputs), inputs**-0.5))
    return net.op("Add", shape, made, net.between(-0.1, 0.1, outputs))


def _normalised(net: Network, x: Activation) -> Activation:
    width = x.shape[-1]
    scale, bias = net.between(0.5, 1.5, width), net.between(-0.2, 0.2, width)
    return net.op("LayerNormalization", x.shape, x, scale, bias, axis=-1, epsilon=1e-12)


def _attention(net: Network, x: Activation, heads: int) -> Activation:
    _, tokens, width = x.shape
    each = width // heads
    apart = net.constant(np.array([1, tokens, heads, each]))

    def of_heads(order: tuple[int, ...], last: tuple[int, int]) -> Activation:
        split = net.op("Reshape", (1, tokens, heads, each), _linear(net, x, width), apart)
        return net.op("Transpose", (1, heads, *last), split, perm=order)

    queries = of_heads((0, 2, 1, 3), (tokens, each))
    keys = of_heads((0, 2, 3, 1), (each, tokens))
    values = of_heads((0, 2, 1, 3), (tokens, each))
    square = (1, heads, tokens, tokens)
    root = net.constant(np.array(each**0.5, np.float32))
    scores = net.op("Div", square, net.op("MatMul", square, queries, keys), root)
    shares = net.op("Softmax", square, scores, axis=-1)
    context = net.op("MatMul", (1, heads, tokens, each), shares, values)
    beside = net.op("Transpose", (1, tokens, heads, each), context, perm=(0, 2, 1, 3))
    joined = net.constant(np.array([1, tokens, width]))
    return _linear(net, net.op("Reshape", x.shape, beside, joined), width)


def _gelu(net: Network, x: Activation) -> Activation:
    """GELU as PyTorch exports it: x/2 (1 + erf(x/√2))."""
    root, one, half = (net.constant(np.array(n, np.float32)) for n in (2**0.5, 1, 0.5))
    inner = net.op("Erf", x.shape, net.op("Div", x.shape, x, root))
    doubled = net.op("Mul", x.shape, x, net.op("Add", x.shape, inner, one))
    return net.op("Mul", x.shape, doubled, half)
