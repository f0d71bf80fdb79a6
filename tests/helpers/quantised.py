"""The judge of quantised models: ONNX by NumPy, with every sum of 8-bit products exact in i64.

Input: a model of the operators below and its inputs.  Output: its first output; real numbers are
f64.  onnxruntime cannot be the judge: on processors without VNNI it adds two u8 * i8 products in 16
bits, which saturate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]


def evaluate(path: Path, inputs: Mapping[str, Array]) -> Array:
    """The model's first output."""
    graph = onnx.load(path).graph
    values: dict[str, Any] = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    values |= {"": None, **inputs}
    for node in graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        made = OPERATORS[node.op_type](*(values[name] for name in node.input), **attributes)
        found = made if isinstance(made, tuple) else (made,)
        values |= zip(node.output, found, strict=True)
    return np.asarray(values[graph.output[0].name])


# ---- numbers -------------------------------------------------------------------------------------


def _along(p: Array, rank: int, axis: int) -> Array:
    """A scale or zero point per slice of `axis`, or one for all."""
    return p.reshape([-1 if i == axis else 1 for i in range(rank)]) if p.size > 1 else p.reshape(())


def _centred(q: Array, zero: Array | None, axis: int = 0) -> Array:
    wide = q.astype(np.int64)
    return wide if zero is None else wide - _along(zero.astype(np.int64), q.ndim, axis)


def _real(q: Array, scale: Array, zero: Array | None, axis: int = 1) -> Array:
    return _centred(q, zero, axis) * _along(scale.astype(np.float64), q.ndim, axis)


def _quantised(units: Array, zero: Array) -> Array:
    """Round half to even, add the zero point, saturate."""
    limits = np.iinfo(zero.dtype)
    return np.clip(np.rint(units) + zero, limits.min, limits.max).astype(zero.dtype)


def _quantize_linear(x: Array, scale: Array, zero: Array, axis: int = 1) -> Array:
    units = x / _along(scale.astype(np.float64), x.ndim, axis)
    return _quantised(units, _along(zero, x.ndim, axis))


def _dynamic_quantize_linear(x: Array) -> tuple[Array, Array, Array]:
    low, high = min(x.min(), 0.0), max(x.max(), 0.0)
    scale = np.asarray((high - low) / 255.0 or 1.0, np.float64)
    zero = np.rint(-low / scale).astype(np.uint8)
    return _quantised(x / scale, zero), scale, zero


# ---- products and sums ---------------------------------------------------------------------------


def _conv(
    x: Array, w: Array, bias: Array | None = None, *,
    pads: tuple[int, ...] = (0, 0, 0, 0), strides: tuple[int, ...] = (1, 1), group: int = 1,
) -> Array:  # fmt: skip
    top, left, bottom, right = pads
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = sliding_window_view(padded, w.shape[2:], (2, 3))[:, :, :: strides[0], :: strides[1]]
    batch, channels, *rest = windows.shape
    parts = windows.reshape(batch, group, channels // group, *rest)
    filters = w.reshape(group, -1, *w.shape[1:])
    made = np.einsum("ngcyxkl,gockl->ngoyx", parts, filters).reshape(batch, -1, *rest[:2])
    return made if bias is None else made + _along(bias, made.ndim, 1)


def _conv_integer(
    x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None, **how: Any
) -> Array:
    return _conv(_centred(x, x_zero), _centred(w, w_zero), **how)


def _qlinear_conv(
    x: Array, x_scale: Array, x_zero: Array, w: Array, w_scale: Array, w_zero: Array,
    y_scale: Array, y_zero: Array, bias: Array | None = None, **how: Any,
) -> Array:  # fmt: skip
    sums = _conv(_centred(x, x_zero), _centred(w, w_zero), bias, **how)
    return _requantised(sums, x_scale, _along(w_scale, sums.ndim, 1), y_scale, y_zero)


def _requantised(sums: Array, a: Array, b: Array, y_scale: Array, y_zero: Array) -> Array:
    return _quantised(sums * (a.astype(np.float64) * b / y_scale), y_zero)


def _matmul_integer(
    a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None
) -> Array:
    return np.asarray(_centred(a, a_zero) @ _centred(b, b_zero, 1))


def _qlinear_matmul(
    a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array,
    y_scale: Array, y_zero: Array,
) -> Array:  # fmt: skip
    sums = _matmul_integer(a, b, a_zero, b_zero)
    return _requantised(sums, a_scale, b_scale, y_scale, y_zero)


def _gemm(
    a: Array, b: Array, c: Array, transB: int = 0, alpha: float = 1, beta: float = 1
) -> Array:
    return np.asarray(alpha * (a @ (b.T if transB else b)) + beta * c)


def _qgemm(
    a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array,
    c: Array, y_scale: Array, y_zero: Array, *, transB: int = 0, alpha: float = 1,
) -> Array:  # fmt: skip
    right = _centred(b, b_zero, 0 if transB else 1)
    sums = _centred(a, a_zero) @ (right.T if transB else right) + c
    return _requantised(sums, a_scale * alpha, b_scale, y_scale, y_zero)


def _matmul_nbits(
    a: Array, b: Array, scales: Array, zeros: Array | None = None, *,
    K: int, N: int, bits: int, block_size: int,
) -> Array:  # fmt: skip
    """b: u8 [N, blocks, bytes of a block], the low nibble first; so are the zero points."""
    blocks = b.shape[1]
    whole, zero = (x if x is None else _integers(x, N, bits) for x in (b, zeros))
    zero = np.full((N, blocks), 1 << bits - 1) if zero is None else zero[:, :blocks]
    factors = scales.astype(np.float64).reshape(N, blocks, 1)
    weights = (whole.reshape(N, blocks, block_size) - zero[..., None]) * factors
    return np.asarray(a @ weights.reshape(N, -1)[:, :K].T)


def _integers(packed: Array, rows: int, bits: int) -> Array:
    parts = (packed & 15, packed >> 4) if bits == 4 else (packed,)
    return np.stack(parts, -1).astype(np.int64).reshape(rows, -1)


# ---- the rest ------------------------------------------------------------------------------------


def _qlinear_add(
    a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array,
    y_scale: Array, y_zero: Array,
) -> Array:  # fmt: skip
    total = _real(a, a_scale, a_zero) + _real(b, b_scale, b_zero)
    return _quantised(total / np.float64(y_scale), y_zero)


def _global_average_pool(x: Array) -> Array:
    return np.asarray(x.mean((2, 3), keepdims=True))


def _qlinear_global_average_pool(
    x: Array, x_scale: Array, x_zero: Array, y_scale: Array, y_zero: Array, channels_last: int = 0
) -> Array:
    assert not channels_last
    mean = _global_average_pool(_real(x, x_scale, x_zero))
    return _quantised(mean / np.float64(y_scale), y_zero)


def _max_pool(x: Array, *, kernel_shape: tuple[int, int], strides: tuple[int, int]) -> Array:
    windows = sliding_window_view(x, kernel_shape, (2, 3))[:, :, :: strides[0], :: strides[1]]
    return np.asarray(windows.max((-2, -1)))


def _cast(x: Array, to: int) -> Array:
    assert to == onnx.TensorProto.FLOAT
    return x.astype(np.float64)


OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Cast": _cast,
    "Conv": _conv,
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _real,
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "Flatten": lambda x: x.reshape(len(x), -1),
    "Gemm": _gemm,
    "GlobalAveragePool": _global_average_pool,
    "MatMul": np.matmul,
    "MatMulInteger": _matmul_integer,
    "MatMulNBits": _matmul_nbits,
    "MaxPool": _max_pool,
    "Mul": np.multiply,
    "QGemm": _qgemm,
    "QLinearAdd": _qlinear_add,
    "QLinearConv": _qlinear_conv,
    "QLinearGlobalAveragePool": _qlinear_global_average_pool,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize_linear,
    "Relu": lambda x: np.maximum(x, 0),
    "Reshape": lambda x, shape: x.reshape(shape),
}
