"""ONNX nodes as TensorFlow operations, for the other formats of benchmarks/peers.

Input: an ONNX model, a traced tensor per input, of fixed sizes.  Output: a traced tensor per
output.  What depends on no input is folded.  A model with convolutions is channels-last: its
four-dimensional tensors are NHWC.  Recurrent nodes are unrolled.  Only what the models need is
here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import onnx
import tensorflow as tf
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

#: A NumPy array where a value is known, a tensor of TensorFlow where it depends on the inputs.
Value = Any
Attributes = Mapping[str, Any]

#: The order of axes that makes a channels-last tensor channels-first.
TO_CHANNELS_FIRST = (0, 3, 1, 2)


def traced(model: onnx.ModelProto, feeds: Mapping[str, Value], flat: bool) -> list[Value]:
    """The outputs; `flat`: products with weights take them as [out, in], as TFLite does."""
    pictures = any(node.op_type == "Conv" for node in model.graph.node)
    ops = OPERATIONS | {"MatMul": partial(_matmul, flat=flat), "LSTM": partial(_lstm, flat=flat)}
    ops |= {"GRU": partial(_gru, flat=flat), "Gemm": partial(_gemm, flat=flat)}
    ops |= {"Gelu": partial(_gelu, flat=flat)}
    ops |= {} if flat else {"Add": _add}
    ops |= CHANNELS_LAST if pictures else {}
    values: dict[str, Value] = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    values |= feeds
    for node in model.graph.node:
        given = [values[name] if name else None for name in node.input]
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Shape":
            chosen = slice(attributes.get("start", 0), attributes.get("end"))
            made: Any = np.asarray(given[0].shape[chosen], np.int64)
        elif all(value is None or _known(value) for value in given):
            made = _folded(model, node, given)
        else:
            made = ops[node.op_type](attributes, *given)
        found = made if isinstance(made, (list, tuple)) else [made]
        values |= dict(zip(node.output, found, strict=False))
    return [values[o.name] for o in model.graph.output]


def _known(value: Value) -> bool:
    return isinstance(value, (np.ndarray, np.generic))


def _folded(model: onnx.ModelProto, node: onnx.NodeProto, given: Sequence[Value]) -> list[Value]:
    names = [name for name in node.input if name]
    feeds = dict(zip(names, (v for v in given if v is not None), strict=True))
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
              for n, v in feeds.items()]  # fmt: skip
    outputs = [helper.make_empty_tensor_value_info(n) for n in node.output if n]
    graph = helper.make_graph([node], "one", inputs, outputs)
    small = helper.make_model(graph, opset_imports=model.opset_import)
    return [np.asarray(v) for v in ReferenceEvaluator(small).run(None, feeds)]


def _tensor(value: Value) -> Value:
    """A known value as a constant; neither TFLite's kernels nor TF.js want 64 bits."""
    if not _known(value):
        return value
    narrow = {"int64": np.int32, "float64": np.float32}.get(value.dtype.name)
    if value.dtype.kind == "i":
        value = np.clip(value, -(2**31) + 1, 2**31 - 1)
    return tf.constant(np.ascontiguousarray(value.astype(narrow) if narrow else value))


def _axes(attributes: Attributes, axes: Value) -> list[int]:
    return [int(a) for a in (attributes["axes"] if axes is None else axes)]


# ---- products ------------------------------------------------------------------------------------


def _dense(x: Value, w: Value, flat: bool) -> Value:
    """x [..., k] times known weights [k, n], as one product of two matrices."""
    rows = tf.reshape(x, [-1, x.shape[-1]])
    made = tf.matmul(rows, _tensor(w.T if flat else w), transpose_b=flat)
    return made if len(x.shape) == 2 else tf.reshape(made, [*x.shape[:-1], w.shape[1]])


def _matmul(_: Attributes, a: Value, b: Value, flat: bool) -> Value:
    return _dense(a, b, flat) if _known(b) and b.ndim == 2 else tf.matmul(_tensor(a), _tensor(b))


def _gemm(at: Attributes, a: Value, b: Value, c: Value = None, *, flat: bool) -> Value:
    assert at.get("alpha", 1.0) == at.get("beta", 1.0) == 1.0, at
    assert not at.get("transA")
    made = _dense(a, b.T if at.get("transB") else b, flat)
    return made if c is None else _add(at, made, c)


def _add(_: Attributes, a: Value, b: Value) -> Value:
    """The bias of a product goes before its reshape: TF.js's product takes it there."""
    made, bias = (b, a) if _known(a) else (a, b)
    if _known(bias) and bias.ndim == 1:
        rows = made.op.inputs[0] if made.op.type == "Reshape" else made
        if rows.op.type == "MatMul" and rows.shape[-1] == made.shape[-1] == len(bias):
            return tf.reshape(tf.nn.bias_add(rows, _tensor(bias)), made.shape)
    return tf.add(_tensor(a), _tensor(b))


def _gates(x: Value, w: Value, bias: Value, flat: bool) -> list[Value]:
    """What the inputs [steps, batch, features] give to each step's gates [batch, gates]."""
    return list(tf.unstack(_dense(x, w[0].T, flat) + _tensor(bias), axis=0))


def _sequence(states: Sequence[Value]) -> list[Value]:
    """Every step's state as ONNX wants them: [steps, directions, batch, hidden]; and the last."""
    return [tf.expand_dims(tf.stack(states, axis=0), 1), tf.expand_dims(states[-1], 0)]


def _lstm(
    at: Attributes, x: Value, w: Value, r: Value, b: Value, _: Value, h: Value, c: Value, flat: bool
) -> list[Value]:
    """One direction; gates are input, output, forget, cell."""
    size = at["hidden_size"]
    h, c, states = _tensor(h[0]), _tensor(c[0]), []
    weights = _tensor(r[0] if flat else r[0].T)
    for given in _gates(x, w, b[0][: 4 * size] + b[0][4 * size :], flat):
        i, o, f, g = tf.split(given + tf.matmul(h, weights, transpose_b=flat), 4, axis=-1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(c)
        states.append(h)
    return [*_sequence(states), tf.expand_dims(c, 0)]


def _gru(
    at: Attributes, x: Value, w: Value, r: Value, b: Value, _: Value, h: Value, flat: bool
) -> list[Value]:
    """One direction; gates are update, reset, hidden, the reset after the product."""
    size = at["hidden_size"]
    assert at["linear_before_reset"]
    h, states = _tensor(h[0]), []
    weights, bias = _tensor(r[0] if flat else r[0].T), _tensor(b[0][3 * size :])
    for given in _gates(x, w, b[0][: 3 * size], flat):
        kept = tf.matmul(h, weights, transpose_b=flat) + bias
        xz, xr, xh = tf.split(given, 3, axis=-1)
        hz, hr, hh = tf.split(kept, 3, axis=-1)
        z = tf.sigmoid(xz + hz)
        new = tf.tanh(xh + tf.sigmoid(xr + hr) * hh)
        h = new + z * (h - new)
        states.append(h)
    return _sequence(states)


# ---- rows and elements ---------------------------------------------------------------------------


def _binary(apply: Callable[..., Value]) -> Callable[..., Value]:
    return lambda _, a, b: apply(_tensor(a), _tensor(b))


def _unary(apply: Callable[..., Value]) -> Callable[..., Value]:
    return lambda _, x: apply(x)


def _norm(at: Attributes, x: Value, scale: Value, bias: Value = None) -> Value:
    assert at.get("axis", -1) in (-1, len(x.shape) - 1)
    mean = tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(x, mean), -1, keepdims=True)
    made = (x - mean) * tf.math.rsqrt(variance + at.get("epsilon", 1e-5)) * _tensor(scale)
    return made if bias is None else made + _tensor(bias)


def _pow(_: Attributes, x: Value, exponent: Value) -> Value:
    return {2.0: tf.square(x), 3.0: tf.square(x) * x}[float(exponent)]


def _where(_: Attributes, condition: Value, x: Value, y: Value) -> Value:
    if _known(condition) and not condition.any():
        return _tensor(y)
    return tf.where(_tensor(condition), _tensor(x), _tensor(y))


def _clip(at: Attributes, x: Value, low: Value = None, high: Value = None) -> Value:
    if (float(low), float(high)) == (0.0, 6.0):
        return tf.nn.relu6(x)
    return tf.clip_by_value(x, float(low), float(high))


def _cast(at: Attributes, x: Value) -> Value:
    kind = helper.tensor_dtype_to_np_dtype(at["to"]).name
    return tf.cast(x, {"int64": "int32", "float64": "float32"}.get(kind, kind))


def _reduce(apply: Callable[..., Value]) -> Callable[..., Value]:
    return lambda at, x, axes=None: apply(x, _axes(at, axes), keepdims=bool(at.get("keepdims", 1)))


def _slice(
    _: Attributes, x: Value, starts: Value, ends: Value, axes: Value = None, steps: Value = None
) -> Value:
    index = [slice(None)] * len(x.shape)
    count = len(starts)
    strides = np.ones(count, int) if steps is None else steps
    chosen = range(count) if axes is None else axes
    for axis, start, end, step in zip(chosen, starts, ends, strides, strict=True):
        most = x.shape[int(axis)]
        index[int(axis)] = slice(int(start), int(min(end, most)), int(step))
    return x[tuple(index)]


def _gelu(at: Attributes, x: Value, flat: bool) -> Value:
    """By the complement of erf, which TFLite knows as one operator; TF.js has erf alone."""
    if flat or at.get("approximate", b"none") == b"tanh":
        return tf.nn.gelu(x, approximate=at.get("approximate", b"none") == b"tanh")
    return 0.5 * x * (1.0 + tf.math.erf(x * 2.0**-0.5))


def _unsqueeze(at: Attributes, x: Value, axes: Value = None) -> Value:
    rank = len(x.shape) + len(_axes(at, axes))
    shape = list(x.shape)
    for axis in sorted(a % rank for a in _axes(at, axes)):
        shape.insert(axis, 1)
    return tf.reshape(x, shape)


def _reshape(_: Attributes, x: Value, shape: Value) -> Value:
    sizes = [x.shape[at] if size == 0 else int(size) for at, size in enumerate(shape)]
    return tf.reshape(x, sizes)


def _expand(_: Attributes, x: Value, shape: Value) -> Value:
    sizes = np.broadcast_shapes(tuple(x.shape), tuple(int(s) for s in shape))
    return x if tuple(x.shape) == sizes else tf.broadcast_to(x, sizes)


OPERATIONS: dict[str, Callable[..., Value]] = {
    "Abs": _unary(tf.abs),
    "Add": _binary(tf.add),
    "And": _binary(tf.logical_and),
    "Cast": _cast,
    "Clip": _clip,
    "Concat": lambda at, *parts: tf.concat([_tensor(p) for p in parts], at["axis"]),
    "CumSum": lambda at, x, axis: tf.cumsum(x, int(axis)),
    "Div": _binary(tf.divide),
    "Equal": _binary(tf.equal),
    "Erf": _unary(tf.math.erf),
    "Expand": _expand,
    "Gather": lambda at, x, i: tf.gather(_tensor(x), _tensor(i), axis=at.get("axis", 0)),
    "GatherElements": lambda at, x, i: tf.gather(
        _tensor(x), _tensor(i), axis=at["axis"], batch_dims=1
    ),
    "GatherND": lambda at, x, i: tf.gather_nd(_tensor(x), _tensor(i)),
    "Greater": _binary(tf.greater),
    "GreaterOrEqual": _binary(tf.greater_equal),
    # Exporters guard rows without any key; no input here has such rows.
    "IsNaN": lambda at, x: np.zeros((), np.bool_),
    "LayerNormalization": _norm,
    "Less": _binary(tf.less),
    "LessOrEqual": _binary(tf.less_equal),
    "Max": _binary(tf.maximum),
    "Min": _binary(tf.minimum),
    "Mul": _binary(tf.multiply),
    "Neg": _unary(tf.negative),
    "Not": _unary(tf.logical_not),
    "Pow": _pow,
    "Reciprocal": _unary(tf.math.reciprocal),
    "ReduceMean": _reduce(tf.reduce_mean),
    "ReduceSum": _reduce(tf.reduce_sum),
    "Relu": _unary(tf.nn.relu),
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": lambda at, x: tf.nn.softmax(x, axis=at.get("axis", -1)),
    "Split": lambda at, x, sizes=None: tf.split(
        x, [int(s) for s in sizes] if sizes is not None else at["num_outputs"], at.get("axis", 0)
    ),
    "Sqrt": _unary(tf.sqrt),
    "Squeeze": lambda at, x, axes=None: tf.squeeze(x, _axes(at, axes)),
    "Sub": _binary(tf.subtract),
    "Tanh": _unary(tf.tanh),
    "Transpose": lambda at, x: tf.transpose(x, at["perm"]),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}


# ---- pictures ------------------------------------------------------------------------------------


def _margins(pads: Sequence[int]) -> list[list[int]]:
    return [[0, 0], [pads[0], pads[2]], [pads[1], pads[3]], [0, 0]]


def _padding(x: Value, at: Attributes, kernel: Sequence[int]) -> tuple[str, Sequence[int]]:
    """SAME where that is what the node does, else VALID behind margins."""
    pads, strides = at.get("pads", [0] * 4), at.get("strides", [1, 1])
    same = []
    for size, k, s in zip(x.shape[1:3], kernel, strides, strict=True):
        total = max((-(-size // s) - 1) * s + k - size, 0)
        same.append((total // 2, total - total // 2))
    wanted = [same[0][0], same[1][0], same[0][1], same[1][1]]
    return ("SAME", [0] * 4) if list(pads) == wanted else ("VALID", pads)


def _conv(at: Attributes, x: Value, w: Value, bias: Value = None) -> Value:
    padding, pads = _padding(x, at, w.shape[2:])
    if any(pads):
        x = tf.pad(x, _margins(pads))
    strides = [1, *at.get("strides", [1, 1]), 1]
    if at.get("group", 1) == 1:
        made = tf.nn.conv2d(x, _tensor(w.transpose(2, 3, 1, 0)), strides, padding)
    else:
        assert at["group"] == x.shape[3] == w.shape[0]
        made = tf.nn.depthwise_conv2d(x, _tensor(w.transpose(2, 3, 0, 1)), strides, padding)
    return made if bias is None else tf.nn.bias_add(made, _tensor(bias))


def _pool(apply: Callable[..., Value], filler: float) -> Callable[..., Value]:
    def pool(at: Attributes, x: Value) -> Value:
        kernel, strides = at["kernel_shape"], at.get("strides", [1, 1])
        padding, pads = _padding(x, at, kernel)
        if at.get("ceil_mode") and padding == "VALID" and not any(pads):
            sizes = zip(x.shape[1:3], kernel, strides, strict=True)
            pads = [0, 0, *(-(size - k) % s for size, k, s in sizes)]
        if any(pads):
            x = tf.pad(x, _margins(pads), constant_values=filler)
        return apply(x, kernel, strides, padding)

    return pool


def _axis_last(axis: int) -> int:
    return {0: 0, 1: 3, 2: 1, 3: 2}[axis % 4]


def _mean_last(at: Attributes, x: Value, axes: Value = None) -> Value:
    chosen = [_axis_last(a) for a in _axes(at, axes)]
    return tf.reduce_mean(x, chosen, keepdims=bool(at.get("keepdims", 1)))


def _flatten_last(at: Attributes, x: Value) -> Value:
    assert at.get("axis", 1) == 1, at
    first = tf.transpose(x, TO_CHANNELS_FIRST) if x.shape[1] * x.shape[2] > 1 else x
    return tf.reshape(first, [x.shape[0], -1])


def _reshape_last(at: Attributes, x: Value, shape: Value) -> Value:
    flattens = len(x.shape) == 4 and x.shape[1] * x.shape[2] > 1
    return _reshape(at, tf.transpose(x, TO_CHANNELS_FIRST) if flattens else x, shape)


#: What differs where pictures are NHWC.
CHANNELS_LAST: dict[str, Callable[..., Value]] = {
    "AveragePool": _pool(tf.nn.avg_pool2d, 0.0),
    "Concat": lambda at, *parts: tf.concat(parts, _axis_last(at["axis"])),
    "Conv": _conv,
    "Flatten": _flatten_last,
    "GlobalAveragePool": lambda _, x: tf.reduce_mean(x, (1, 2), keepdims=True),
    # only behind activations that are not negative
    "MaxPool": _pool(tf.nn.max_pool2d, 0.0),
    "ReduceMean": _mean_last,
    "Reshape": _reshape_last,
}
