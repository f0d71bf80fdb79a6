"""Matrix products with weights of 4 bits and a scale per block (com.microsoft MatMulNBits).

Input: operand nodes and attributes.  Output: nodes.  An i32 word has eight weights of one column;
the words of four columns are adjacent.  Kernels unpack them in registers (`nibble`), so in memory a
weight always takes 4 bits.

    y[m, n] = sum over blocks b of scale[n, b] * sum over k in b of x[m, k] * (w[n, k] - zero[n, b])
"""

from __future__ import annotations

from tilewright.base.dtypes import F32, I32, U8
from tilewright.base.errors import InvalidModel, ShapeError, UnsupportedOp
from tilewright.frontend import algebra as al
from tilewright.frontend.table import operator
from tilewright.graph import ops
from tilewright.graph.node import (
    Node,
    broadcast,
    cast,
    concat,
    constant,
    is_constant,
    node,
    pad,
    reduce,
    reshape,
    slice_,
    transpose,
)

#: Weights per word, and columns with adjacent words.
WORD, LANES = 8, 4


@operator("MatMulNBits", domain="com.microsoft", ignore=("accuracy_level",))
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
) -> Node:
    """Computes in f32, whatever `accuracy_level` allows."""
    blocks = -(-K // block_size)
    _check(a, b, g_idx, K, bits, block_size)
    words = _words(reshape(b, (N, blocks * block_size // 2)))
    steps = block_size // WORD
    columns = _columns(words).shape[0]
    packed = _beside(reshape(_columns(words), (columns, blocks, steps, LANES)))
    factor = _beside(reshape(_columns(reshape(scales, (N, blocks))), (columns, blocks, 1, LANES)))
    zero = constant(8.0, F32)
    if zeros is not None:
        zero = _columns(_zeros(zeros, N, blocks))
        zero = _beside(reshape(zero, (columns, blocks, 1, LANES)))
    rows = a.size // K
    x = reshape(a, (rows, K))
    x = pad(x, (0, 0), (0, blocks * block_size - K))
    x = reshape(x, (rows, 1, 1, blocks, steps, WORD))
    full = (rows, columns, LANES, blocks, steps)
    total: Node | None = None
    for i in range(WORD):
        weight = al.sub(cast(al.apply("nibble", packed, 4 * i), F32), zero)
        element = reshape(al.take(x, 5, i, 1), x.shape[:5])
        term = [broadcast(element, full), broadcast(weight, full)]
        total = al.mul(*term) if total is None else al.apply("fma", *term, total)
    assert total is not None
    sums = reduce("sum", al.mul(total, broadcast(factor, full)), (3, 4))
    made = slice_(reshape(sums, (rows, columns * LANES)), (0, 0), (rows, N))
    made = reshape(made, (*a.shape[:-1], N))
    return made if bias is None else al.add(made, bias)


def _check(a: Node, b: Node, g_idx: Node | None, depth: int, bits: int, block: int) -> None:
    if bits != 4 or g_idx is not None:
        raise UnsupportedOp(
            "MatMulNBits is supported with 4 bits and without a group index",
            hint="quantise the weights to 4 bits, without reordering their rows",
        )
    if block < 16 or block & (block - 1):
        raise InvalidModel("a block has 16 or more weights, a power of two", limit=block)
    if not is_constant(b) or b.dtype != U8:
        raise UnsupportedOp("the weights of MatMulNBits must be constant bytes", dtype=b.dtype)
    if a.shape[-1] != depth:
        raise ShapeError("the weights of MatMulNBits do not match", shape=[a.shape, b.shape])


def _words(b: Node) -> Node:
    """Bytes [n, 4 * k] as i32 words [n, k], the first byte lowest."""
    quads = cast(reshape(b, (b.shape[0], b.shape[1] // 4, 4)), I32)
    parts = [
        al.mul(reshape(al.take(quads, 2, i, 1), quads.shape[:2]), 1 << 8 * i) for i in range(3)
    ]
    top = reshape(al.take(quads, 2, 3, 1), quads.shape[:2])
    signed = al.sub(top, al.mul(cast(al.less(127, top), I32), 256))
    parts.append(al.mul(signed, 1 << 24))
    return al.add(al.add(parts[0], parts[1]), al.add(parts[2], parts[3]))


def _columns(x: Node) -> Node:
    """[n, k] -> [n / 4, k, 4], padded with zeros."""
    n, k = x.shape
    x = pad(x, (0, 0), (-n % LANES, 0))
    return transpose(reshape(x, (x.shape[0] // LANES, LANES, k)), (0, 2, 1))


def _beside(x: Node) -> Node:
    """[columns, blocks, steps, lanes] in memory, viewed as [1, columns, lanes, blocks, steps]."""
    return al.unsqueeze(transpose(node(ops.Realize(), x), (0, 3, 1, 2)), (0,))


def _zeros(zeros: Node, columns: int, blocks: int) -> Node:
    """A zero point per column and block; a byte has two."""
    if zeros.dtype != U8:
        return cast(reshape(zeros, (columns, blocks)), F32)
    wide = cast(reshape(zeros, (columns, -(-blocks // 2), 1)), I32)
    both = concat([al.apply("nibble", wide, 4 * i) for i in range(2)], 2)
    return cast(al.take(reshape(both, (columns, -1)), 1, 0, blocks), F32)
