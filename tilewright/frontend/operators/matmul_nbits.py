"""Products with weights of few bits and a scale per block (com.microsoft MatMulNBits), and rows of
such tables (GatherBlockQuantized).

Input: operand nodes and attributes.  Output: nodes.  Integers become real numbers by scales and
zero points, as the operator says; graph/passes/pack_blocks.py sees to it that memory never holds
more than the integers.

    y[m, n] = sum over k of x[m, k] * (w[n, k] - zero[n, k // block]) * scale[n, k // block]
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.dtypes import F32, I16, I32, U8
from tilewright.base.errors import InvalidModel, ShapeError, UnsupportedOp
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operator_table import operator
from tilewright.frontend.operators.indexing import wrapped
from tilewright.frontend.operators.matmul import matmul
from tilewright.frontend.operators.quantization import scaled
from tilewright.graph import ops
from tilewright.graph.node import Node, cast, constant, gather, node, picking, reshape, transpose

#: The least type of `a` by `accuracy_level`; the one that rounds nothing; 0 leaves it to the model.
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
    """Exact up to the rounding of f32 sums, but where the model allows less for `a` (`LEVELS`)."""
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
    """Rows [.., columns] of a table of bytes, each with one integer or two; a block has its scale
    along the row."""
    last = data.rank - 1
    along = al.axis_of(quantize_axis, data.rank), al.axis_of(gather_axis, data.rank)
    if data.dtype != U8 or bits not in (4, 8) or along != (last, 0) or data.rank != 2:
        raise UnsupportedOp(
            "GatherBlockQuantized is supported for rows of a table of bytes, with 4 or 8 bits",
            hint="Export the embeddings with MatMulNBits' layout, or as floats",
            dtype=str(data.dtype), shape=data.shape,
        )  # fmt: skip
    indices = wrapped(indices, data.shape[0], 0)
    rows = _integers(gather(data, indices, 0, picking(0)), bits)
    scale = gather(scales, indices, 0, picking(0))
    shape, blocks = rows.shape, scale.shape[-1]
    if blocks * block_size != shape[-1]:
        raise ShapeError("the scales do not match the rows", shape=[data.shape, scales.shape])
    zero = constant(1 << bits - 1, I16)
    if zeros is not None:
        own = _integers(gather(zeros, indices, 0, picking(0)), bits)
        zero = al.unsqueeze(al.take(own, own.rank - 1, 0, blocks), (-1,))
    whole = reshape(rows, (*shape[:-1], blocks, block_size))
    return reshape(scaled(whole, al.unsqueeze(scale, (-1,)), zero), shape)


def _loosened(scales: Node, level: int) -> Node:
    """Scales that say what products may round their other operand to."""
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
            hint="quantise the weights to 4 or 8 bits, without reordering their rows",
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
