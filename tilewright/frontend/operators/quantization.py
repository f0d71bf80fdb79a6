"""Quantised operators of ONNX and onnxruntime's own domain: integers with scales and zero points.

Input: operand nodes and attributes.  Output: nodes.  A quantised tensor q means (q - zero) * scale;
here it becomes the i16 `q - zero` ("centred"), so that products and their i32 sums are exact and
padding is zero.  graph/passes/integer_arithmetic.py chooses how it is stored.

Weights of few bits have a scale per block (MatMulNBits, GatherBlockQuantized).  They become f32 in
the graph; graph/passes/pack_quantised.py then stores only the integers and scales.

    y[m, n] = sum over k of x[m, k] * (w[n, k] - zero[n, k // block]) * scale[n, k // block]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tilewright.base.dtypes import F32, I8, I16, I32, U8, DType
from tilewright.base.errors import InvalidModel, ShapeError, UnsupportedDType, UnsupportedOp
from tilewright.frontend import arithmetic as al
from tilewright.frontend.initializers import dtype_of
from tilewright.frontend.operator_table import operator
from tilewright.frontend.operators.activation import leaky_relu, sigmoid, softmax
from tilewright.frontend.operators.indexing import wrapped
from tilewright.frontend.operators.matmul import matmul
from tilewright.frontend.operators.reduction import top
from tilewright.frontend.operators.windows import average_pool, conv, global_average_pool
from tilewright.graph import ops
from tilewright.graph.node import (
    Node,
    broadcast,
    cast,
    concat,
    constant,
    gather,
    node,
    reshape,
    transpose,
    with_pick_source,
)

MICROSOFT = "com.microsoft"


def centred(q: Node, zero: Node | None) -> Node:
    """q - zero: i16 for 8-bit numbers, i32 for i32; `zero` must broadcast to q."""
    if q.dtype == I32:
        return q if zero is None else al.sub(q, cast(zero, I32))
    if q.dtype.is_float or q.dtype.size != 1:
        raise UnsupportedDType("only integers of 8 bits are quantised values", dtype=q.dtype)
    wide = cast(q, I16)
    return wide if zero is None else al.sub(wide, cast(zero, I16))


def quantized(x: Node, zero: Node | None, dtype: DType) -> Node:
    """Rounds half to even, adds the zero point, saturates; x is already divided by the scale."""
    whole = al.apply("round", x)
    return cast(whole if zero is None else al.add(whole, cast(zero, F32)), dtype)


def along(p: Node, x: Node, axis: int, block: int = 0) -> Node:
    """A scale or zero point (per tensor, slice of `axis` or block), shaped to broadcast to x."""
    if p.size == 1:
        return reshape(p, ())
    axis = al.axis_of(axis, x.rank)
    if p.rank == 1:
        if p.size != x.shape[axis]:
            raise InvalidModel("the scale must have one number per channel", shape=p.shape)
        return reshape(p, [p.size if i == axis else 1 for i in range(x.rank)])
    if p.rank != x.rank or not block:
        raise InvalidModel("the scale does not match its operand", shape=[x.shape, p.shape])
    split = al.unsqueeze(p, (axis + 1,))
    wide = broadcast(split, (*p.shape[: axis + 1], block, *p.shape[axis + 1 :]))
    merged = (*p.shape[:axis], p.shape[axis] * block, *p.shape[axis + 1 :])
    return al.take(reshape(wide, merged), axis, 0, x.shape[axis])


def zero_along(p: Node | None, x: Node, axis: int, block: int = 0) -> Node | None:
    """As `along`, for a zero point that may be left out."""
    return None if p is None else along(p, x, axis, block)


def scaled(q: Node, scale: Node, zero: Node | None) -> Node:
    """The dequantised values: (q - zero) * scale."""
    return al.mul(cast(centred(q, zero), F32), cast(scale, F32))


@operator("QuantizeLinear", ignore=("saturate", "precision"))
@operator("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(
    x: Node,
    scale: Node,
    zero: Node | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Node:
    dtype = zero.dtype if zero is not None else dtype_of(output_dtype) if output_dtype else U8
    if dtype not in (U8, I8):
        raise UnsupportedDType("only 8-bit integers are quantised values", dtype=dtype)
    units = al.div(cast(x, F32), cast(along(scale, x, axis, block_size), F32))
    return quantized(units, zero_along(zero, x, axis, block_size), dtype)


@operator("DequantizeLinear", ignore=("output_dtype",))
@operator("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(
    q: Node, scale: Node, zero: Node | None = None, *, axis: int = 1, block_size: int = 0
) -> Node:
    factor = cast(along(scale, q, axis, block_size), F32)
    return scaled(q, factor, zero_along(zero, q, axis, block_size))


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x: Node) -> tuple[Node, Node, Node]:
    """u8 over the range of x and 0: (quantised, scale, zero point)."""
    axes = range(x.rank)
    low = al.apply("min", reshape(top("min", x, axes), ()), 0.0)
    high = al.apply("max", reshape(top("max", x, axes), ()), 0.0)
    width = al.sub(high, low)
    scale = al.where(al.equal(width, 0.0), 1.0, al.div(width, 255.0))
    zero = quantized(al.div(al.apply("neg", low), scale), None, U8)
    return quantized(al.div(x, scale), zero, U8), scale, zero


# ---- products ------------------------------------------------------------------------------------


def _rows(p: Node | None) -> Node | None:
    """A number per row of the left operand, shaped to broadcast to it."""
    return al.unsqueeze(p, (-1,)) if p is not None and p.size > 1 else _flat(p)


def _flat(p: Node | None) -> Node | None:
    return p if p is None or p.size > 1 else reshape(p, ())


def _needed(p: Node | None) -> Node:
    if p is None:
        raise InvalidModel("a scale is left out")
    return p


@operator("MatMulInteger", since=10)
def matmul_integer(
    a: Node, b: Node, a_zero: Node | None = None, b_zero: Node | None = None
) -> Node:
    """Products of 8-bit integers, summed in i32."""
    return matmul(centred(a, _rows(a_zero)), centred(b, _flat(b_zero)))


@operator("ConvInteger", since=10, ignore=("kernel_shape",))
def conv_integer(
    x: Node,
    w: Node,
    x_zero: Node | None = None,
    w_zero: Node | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Node:
    """Products of 8-bit integers, summed in i32; padding is the zero point."""
    return conv(
        centred(x, _flat(x_zero)), centred(w, zero_along(w_zero, w, 0)),
        auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides,
    )  # fmt: skip


@operator("QLinearConv", since=10, ignore=("kernel_shape",))
def qlinear_conv(
    x: Node,
    x_scale: Node,
    x_zero: Node,
    w: Node,
    w_scale: Node,
    w_zero: Node,
    y_scale: Node,
    y_zero: Node,
    bias: Node | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Node:
    sums = conv_integer(
        x, w, x_zero, w_zero,
        auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides,
    )  # fmt: skip
    if bias is not None:
        sums = al.add(sums, al.per_channel(bias, sums.rank))
    channels = al.per_channel(w_scale, sums.rank) if w_scale.size > 1 else _needed(_flat(w_scale))
    return _requantized(sums, x_scale, channels, y_scale, y_zero)


def _requantized(sums: Node, a: Node, b: Node, y_scale: Node, y_zero: Node) -> Node:
    """Rescales i32 sums of products to the result's scale and zero point."""
    factor = al.div(al.mul(_needed(_flat(a)), b), _needed(_flat(y_scale)))
    return quantized(al.mul(cast(sums, F32), factor), _flat(y_zero), y_zero.dtype)


@operator("QLinearMatMul", since=10)
def qlinear_matmul(
    a: Node,
    a_scale: Node,
    a_zero: Node,
    b: Node,
    b_scale: Node,
    b_zero: Node,
    y_scale: Node,
    y_zero: Node,
) -> Node:
    sums = matmul_integer(a, b, a_zero, b_zero)
    return _requantized(sums, _needed(_rows(a_scale)), _needed(_flat(b_scale)), y_scale, y_zero)


@operator("QGemm", domain=MICROSOFT)
def qgemm(
    a: Node,
    a_scale: Node,
    a_zero: Node,
    b: Node,
    b_scale: Node,
    b_zero: Node,
    c: Node | None = None,
    y_scale: Node | None = None,
    y_zero: Node | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Node:
    left = centred(a, _flat(a_zero))
    right = centred(b, zero_along(b_zero, b, 0 if transB else 1))
    sums = matmul(
        transpose(left, (1, 0)) if transA else left, transpose(right, (1, 0)) if transB else right
    )
    sums = sums if c is None else al.add(sums, c)
    scale = al.mul(al.mul(_needed(_flat(a_scale)), _needed(_flat(b_scale))), alpha)
    if y_scale is None or y_zero is None:
        return al.mul(cast(sums, F32), scale)
    return _requantized(sums, constant(1.0, F32), scale, y_scale, y_zero)


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    a: Node,
    b: Node,
    a_scale: Node,
    b_scale: Node,
    a_zero: Node | None = None,
    b_zero: Node | None = None,
    bias: Node | None = None,
) -> Node:
    sums = cast(matmul_integer(a, b, a_zero, b_zero), F32)
    made = al.mul(sums, al.mul(_needed(_flat(a_scale)), _needed(_flat(b_scale))))
    return made if bias is None else al.add(made, bias)


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    a: Node, b: Node, b_scale: Node, b_zero: Node | None = None, bias: Node | None = None
) -> Node:
    q, scale, zero = dynamic_quantize_linear(a)
    return matmul_integer_to_float(q, b, scale, b_scale, zero, b_zero, bias)


# ---- elementwise and pooling in onnxruntime's domain ---------------------------------------------


def _units(y: Node, scale: Node, zero: Node | None, like: Node) -> Node:
    dtype = like.dtype if zero is None else zero.dtype
    return quantized(al.div(y, _needed(_flat(scale))), _flat(zero), dtype)


def _real(q: Node, scale: Node, zero: Node | None) -> Node:
    return scaled(q, _needed(_flat(scale)), _flat(zero))


@operator("QLinearAdd", domain=MICROSOFT)
def qlinear_add(
    a: Node, a_scale: Node, a_zero: Node | None,
    b: Node, b_scale: Node, b_zero: Node | None,
    y_scale: Node, y_zero: Node | None = None,
) -> Node:  # fmt: skip
    return _units(al.add(_real(a, a_scale, a_zero), _real(b, b_scale, b_zero)), y_scale, y_zero, a)


@operator("QLinearMul", domain=MICROSOFT)
def qlinear_mul(
    a: Node, a_scale: Node, a_zero: Node | None,
    b: Node, b_scale: Node, b_zero: Node | None,
    y_scale: Node, y_zero: Node | None = None,
) -> Node:  # fmt: skip
    return _units(al.mul(_real(a, a_scale, a_zero), _real(b, b_scale, b_zero)), y_scale, y_zero, a)


@operator("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(
    x: Node, x_scale: Node, x_zero: Node | None, y_scale: Node, y_zero: Node | None = None
) -> Node:
    return _units(sigmoid(_real(x, x_scale, x_zero)), y_scale, y_zero, x)


@operator("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(
    x: Node,
    x_scale: Node,
    x_zero: Node | None,
    y_scale: Node,
    y_zero: Node | None = None,
    *,
    alpha: float = 0.01,
) -> Node:
    return _units(leaky_relu(_real(x, x_scale, x_zero), alpha=alpha), y_scale, y_zero, x)


@operator("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(
    x: Node,
    x_scale: Node,
    x_zero: Node | None,
    y_scale: Node,
    y_zero: Node | None = None,
    *,
    axis: int = -1,
    opset: int = 13,
) -> Node:
    real = _real(x, x_scale, x_zero)
    if opset >= 13:
        return _units(softmax(real, axis=axis), y_scale, y_zero, x)
    split = al.axis_of(axis, x.rank)
    flat = reshape(real, (prod(x.shape[:split]), prod(x.shape[split:])))
    return _units(reshape(softmax(flat, axis=-1), x.shape), y_scale, y_zero, x)


@operator("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(
    x: Node,
    x_scale: Node,
    x_zero: Node,
    y_scale: Node,
    y_zero: Node,
    *,
    channels_last: int = 0,
) -> Node:
    real = _real(al.channels_first(x) if channels_last else x, x_scale, x_zero)
    made = _units(global_average_pool(real), y_scale, y_zero, x)
    return al.channels_last(made) if channels_last else made


@operator("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(
    x: Node,
    x_scale: Node,
    x_zero: Node | None,
    y_scale: Node,
    y_zero: Node | None = None,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Node:
    real = _real(al.channels_first(x) if channels_last else x, x_scale, x_zero)
    made = average_pool(
        real, kernel_shape=kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad, pads=pads, strides=strides,
    )  # fmt: skip
    made = _units(made, y_scale, y_zero, x)
    return al.channels_last(made) if channels_last else made


@operator("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(y_scale: Node, y_zero: Node, *parts: Node, axis: int) -> Node:
    """parts: tensor, scale and zero point of each; all are rescaled to the result's scale."""
    if not parts or len(parts) % 3 or y_scale is None or y_zero is None:
        raise InvalidModel("QLinearConcat needs a tensor, a scale and a zero point per part")
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    made = [_units(_real(*triple), y_scale, y_zero, parts[0]) for triple in triples]
    return concat(made, al.axis_of(axis, made[0].rank))


#: The type to which `a` may be rounded, by `accuracy_level`.  IN_F32 is the level that allows no
#: rounding; level 0 leaves the choice to the model.
LEVELS, IN_F32 = {2: "f16", 4: "i8"}, 1


@operator("MatMulNBits", domain="com.microsoft", ranks=(None, 3))
def matmul_nbits(
    a: Node,
    b: Node,
    scales: Node,
    zeros: Node | None = None,
    g_idx: Node | None = None,
    bias: Node | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
) -> Node:
    """a times weights of few bits.  Exact up to the rounding of f32 sums, unless the model allows
    `a` to be rounded (`LEVELS`)."""
    _check(a, b, g_idx, K, bits, block_size)
    blocks = -(-K // block_size)
    whole = reshape(_integers(b, bits), (N, blocks, block_size))
    zero = constant(1 << bits - 1, I16)
    if zeros is not None:
        zeros = zeros if zeros.dtype.is_float else _integers(reshape(zeros, (N, -1)), bits)
        zero = reshape(al.take(reshape(zeros, (N, -1)), 1, 0, blocks), (N, blocks, 1))
    scale = cast(reshape(_loosened(scales, accuracy_level), (N, blocks, 1)), F32)
    if zero.dtype.is_float:
        weight = al.mul(al.sub(cast(whole, F32), cast(zero, F32)), scale)
    else:
        weight = scaled(whole, scale, zero)
    weight = al.take(reshape(weight, (N, blocks * block_size)), 1, 0, K)
    made = matmul(a, transpose(weight, (1, 0)))
    return made if bias is None else al.add(made, bias)


@operator("GatherBlockQuantized", domain="com.microsoft")
def gather_block_quantized(
    data: Node,
    indices: Node,
    scales: Node,
    zeros: Node | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Node:
    """Rows [.., columns] of a table whose bytes hold one 8-bit or two 4-bit integers; each block
    along a row has a scale."""
    last = data.rank - 1
    along = al.axis_of(quantize_axis, data.rank), al.axis_of(gather_axis, data.rank)
    if data.dtype != U8 or bits not in (4, 8) or along != (last, 0) or data.rank != 2:
        raise UnsupportedOp(
            "GatherBlockQuantized is supported for rows of a table of bytes, with 4 or 8 bits",
            hint="Export the embeddings with MatMulNBits' layout, or as floats",
            dtype=str(data.dtype), shape=data.shape,
        )  # fmt: skip
    indices = wrapped(indices, data.shape[0], 0)
    rows = _integers(gather(data, indices, 0, with_pick_source(0)), bits)
    scale = gather(scales, indices, 0, with_pick_source(0))
    shape, blocks = rows.shape, scale.shape[-1]
    if blocks * block_size != shape[-1]:
        raise ShapeError("the scales do not match the rows", shape=[data.shape, scales.shape])
    zero = constant(1 << bits - 1, I16)
    if zeros is not None:
        own = _integers(gather(zeros, indices, 0, with_pick_source(0)), bits)
        zero = al.unsqueeze(al.take(own, own.rank - 1, 0, blocks), (-1,))
    whole = reshape(rows, (*shape[:-1], blocks, block_size))
    return reshape(scaled(whole, al.unsqueeze(scale, (-1,)), zero), shape)


def _loosened(scales: Node, level: int) -> Node:
    """Scales with the mark (`Weight.loose`) that tells to which type products may round their other
    operand."""
    if not isinstance(scales.op, ops.Weight):
        return scales
    if level == IN_F32:
        return node(replace(scales.op, loose=""))
    loose = max(scales.op.loose, LEVELS.get(level, ""), key=ops.LOOSE.index)
    return node(replace(scales.op, loose=loose))


def _check(a: Node, b: Node, g_idx: Node | None, depth: int, bits: int, block: int) -> None:
    if bits not in (4, 8) or g_idx is not None:
        raise UnsupportedOp(
            "MatMulNBits is supported with 4 or 8 bits and without a group index",
            hint="Quantise the weights to 4 or 8 bits, without reordering their rows",
        )
    if block < 16 or block & (block - 1):
        raise InvalidModel("a block has 16 or more weights, a power of two", limit=block)
    if not b.constant or b.dtype != U8:
        raise UnsupportedOp("the weights of MatMulNBits must be constant bytes", dtype=b.dtype)
    if not a.rank or a.shape[-1] != depth:
        raise ShapeError("the weights of MatMulNBits do not match", shape=[a.shape, b.shape])


def _integers(x: Node, bits: int) -> Node:
    """Unsigned integers as bytes; a byte holds two of 4 bits, the lower bits first."""
    if bits == 8:
        return x
    pairs = al.apply("nibble", al.unsqueeze(cast(x, I32), (-1,)), constant([0, 4], I32))
    return cast(reshape(pairs, (*x.shape[:-1], 2 * x.shape[-1])), U8)
