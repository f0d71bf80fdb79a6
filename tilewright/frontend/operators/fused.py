"""Operators of domain com.microsoft, which onnxruntime's optimiser and model builder fuse from
others.

Input: operand nodes and attributes.  Output: nodes of the operators that were fused.  Masks are
added to the scores, as in onnxruntime, so a row whose keys are all hidden still has weights.
"""

from __future__ import annotations

from math import prod

from tilewright.base.dtypes import F32, I32
from tilewright.base.errors import InvalidModel, ShapeError, UnsupportedOp
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operator_table import operator
from tilewright.frontend.operators.activation import gelu, sigmoid, softmax
from tilewright.frontend.operators.matmul import matmul
from tilewright.frontend.operators.normalization import layer_norm
from tilewright.frontend.operators.quantization import MICROSOFT
from tilewright.graph.node import (
    Node,
    cast,
    concat,
    constant,
    contract,
    gather,
    reshape,
    transpose,
)

#: The number added to the scores of a hidden key: ONNX Runtime's default, and the lowest f32.
FILTER, NEVER = -10000.0, -3.4028234663852886e38


# ---- activations and norms -----------------------------------------------------------------------


@operator("Gelu", domain=MICROSOFT)
def microsoft_gelu(x: Node) -> Node:
    return gelu(x)


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(x: Node, bias: Node) -> Node:
    return gelu(al.add(x, bias))


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(x: Node, bias: Node | None = None) -> Node:
    return gelu(x if bias is None else al.add(x, bias), approximate="tanh")


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(x: Node, *, alpha: float = 1.702) -> Node:
    return al.mul(x, sigmoid(al.mul(x, alpha)))


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(
    x: Node,
    skip: Node,
    gamma: Node,
    beta: Node | None = None,
    bias: Node | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Node, Node, Node, Node]:
    """The norm of a sum, its mean and inverse deviation, and the sum itself."""
    total = al.add(x, skip)
    total = total if bias is None else al.add(total, bias)
    return *layer_norm(total, gamma, beta, epsilon=epsilon), total


@operator(
    "EmbedLayerNormalization", domain=MICROSOFT, ignore=("mask_index_type",),
    ranks=(2, 2, 2, 2, 2, 1, 1, 2, 2),
)  # fmt: skip
def embed_layer_norm(
    ids: Node,
    segments: Node | None = None,
    words: Node | None = None,
    positions: Node | None = None,
    segment_table: Node | None = None,
    gamma: Node | None = None,
    beta: Node | None = None,
    mask: Node | None = None,
    position_ids: Node | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Node, Node, Node]:
    """(the norm of the sum of embeddings, for each batch the number of tokens with mask 1, the
    sum)"""
    if words is None or positions is None or gamma is None:
        raise InvalidModel("EmbedLayerNormalization needs words, positions and gamma")
    batch, length = ids.shape
    if length > positions.shape[0]:
        raise ShapeError(
            "there are fewer positions than tokens", shape=[ids.shape, positions.shape]
        )
    places = al.take(positions, 0, 0, length)
    if position_ids is not None:
        places = gather(positions, position_ids, 0)
    total = al.add(gather(words, ids, 0), places)
    if segments is not None and segment_table is not None:
        total = al.add(total, gather(segment_table, segments, 0))
    kept = (
        al.full(0, (batch,), I32)
        if mask is None
        else al.squeeze(al.total(cast(mask, I32), [1]), [1])
    )
    return layer_norm(total, gamma, beta, epsilon=epsilon)[0], kept, total


@operator("FusedMatMul", domain=MICROSOFT)
def fused_matmul(
    a: Node,
    b: Node,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Node:
    """alpha times the product; vectors are not transposed."""
    a, b = _turned(a, transA, transBatchA), _turned(b, transB, transBatchB)
    made = matmul(a, b)
    return made if alpha == 1.0 else al.mul(made, alpha)


def _turned(x: Node, last: int, batch: int) -> Node:
    """The operand transposed.  last: swaps the last two axes;  batch: first moves axis 0 behind the
    other batch axes"""
    axes = [*range(x.rank)]
    if batch and x.rank > 2:
        axes = [*axes[1:-1], 0, axes[-1]]
    if last and x.rank > 1:
        axes[-2:] = axes[:-3:-1]
    return transpose(x, axes)


# ---- attention -----------------------------------------------------------------------------------


@operator(
    "Attention", domain=MICROSOFT,
    ignore=("past_present_share_buffer", "qkv_hidden_sizes", "rotary_embedding_dim"),
    ranks=(3, 2, 1),
)  # fmt: skip
def microsoft_attention(
    x: Node,
    weights: Node,
    bias: Node | None = None,
    mask: Node | None = None,
    past: Node | None = None,
    attention_bias: Node | None = None,
    past_length: Node | None = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    do_rotary: int = 0,
    mask_filter_value: float = FILTER,
    scale: float = 0.0,
) -> Node:
    """Self-attention of x [batch, rows, columns] with the weights of queries, keys and values side
    by side."""
    del past_length
    al.positive("heads", num_heads)
    if past is not None or do_rotary or weights.shape[-1] % (3 * num_heads):
        raise UnsupportedOp(
            "Attention (com.microsoft) is supported without a cache and rotation, and with heads "
            "of one width",
            hint="Export the model without onnxruntime's fusions, or with MultiHeadAttention",
        )
    whole = matmul(x, weights)
    whole = whole if bias is None else al.add(whole, bias)
    batch, rows, columns = whole.shape
    split = reshape(whole, (batch, rows, 3, num_heads, columns // 3 // num_heads))
    q, k, v = _apart(split, 2)
    hidden = _hidden(mask, q.shape, k.shape[2], mask_filter_value, unidirectional, 0)
    return _attended(q, k, v, [*hidden, attention_bias], scale)


@operator("MultiHeadAttention", domain=MICROSOFT, ranks=(None, None, None, 1, None, 4, 4, 4))
def multi_head_attention(
    query: Node,
    key: Node | None = None,
    value: Node | None = None,
    bias: Node | None = None,
    mask: Node | None = None,
    attention_bias: Node | None = None,
    past_key: Node | None = None,
    past_value: Node | None = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    mask_filter_value: float = FILTER,
    scale: float = 0.0,
) -> tuple[Node, Node, Node]:
    """Queries [batch, rows, columns] and keys, values [batch, keys, columns] or [batch, heads,
    keys, width]; or all three in the query, or keys and values in the key, as [.., heads, 3 or 2,
    width].  The second and third results are the past keys and values, followed by the new ones."""
    al.positive("heads", num_heads)
    q, k, v = _biased(_operands(query, key, value, num_heads), bias)
    before = 0
    if past_key is not None and past_value is not None:
        before = past_key.shape[2]
        k, v = concat([past_key, k], 2), concat([past_value, v], 2)
    hidden = _hidden(mask, q.shape, k.shape[2], mask_filter_value, unidirectional, before)
    return _attended(q, k, v, [*hidden, attention_bias], scale), k, v


Heads = tuple[Node, Node, Node]


def _operands(query: Node, key: Node | None, value: Node | None, heads: int) -> Heads:
    """Queries, keys and values as [batch, heads, rows, width]."""
    if key is None:
        if query.rank != 5 or query.shape[3] != 3:
            raise ShapeError("packed queries are [batch, rows, heads, 3, width]", shape=query.shape)
        q, k, v = _apart(query, 3)
        return q, k, v
    q = _by_heads(query, heads)
    if value is None:
        if key.rank != 5 or key.shape[3] != 2:
            raise ShapeError("packed keys are [batch, keys, heads, 2, width]", shape=key.shape)
        k, v = _apart(key, 3)
        return q, k, v
    return q, _by_heads(key, heads), _by_heads(value, heads)


def _by_heads(x: Node, heads: int) -> Node:
    if x.rank == 4 and x.shape[1] == heads:
        return x
    if x.rank != 3 or x.shape[2] % heads:
        raise ShapeError(f"{heads} heads do not share these columns", shape=x.shape)
    return transpose(reshape(x, (*x.shape[:2], heads, x.shape[2] // heads)), (0, 2, 1, 3))


def _apart(x: Node, axis: int) -> list[Node]:
    """The parts along an axis, which is removed, as [batch, heads, rows, width]."""
    parts = (al.squeeze(al.take(x, axis, n, 1), [axis]) for n in range(x.shape[axis]))
    return [transpose(part, (0, 2, 1, 3)) for part in parts]


def _biased(operands: Heads, bias: Node | None) -> Heads:
    """Queries, keys and values plus their parts of the bias [3 * heads * width]."""
    if bias is None:
        return operands
    made, at = [], 0
    for x in operands:
        heads, width = x.shape[1], x.shape[3]
        if at + heads * width > prod(bias.shape):
            raise InvalidModel("the bias is shorter than its operands", shape=bias.shape)
        own = reshape(al.take(bias, 0, at, heads * width), (heads, 1, width))
        made.append(al.add(x, own))
        at += heads * width
    q, k, v = made
    return q, k, v


def _hidden(
    mask: Node | None,
    queries: tuple[int, ...],
    keys: int,
    filtered: float,
    unidirectional: int,
    before: int,
) -> list[Node]:
    """The terms that hide keys when they are added to scores [batch, heads, rows, keys].

    mask: 1 for each visible key, as [batch, keys] or [batch, rows, keys]; or the number of visible
          keys, [batch]
    before: number of keys before row 0
    """
    batch, _, rows, _ = queries
    found = []
    if mask is not None:
        if mask.rank == 1 and mask.shape == (batch,):
            places = cast(al.position_along((1, keys), 1), I32)
            seen = al.less(places, reshape(cast(mask, I32), (batch, 1)))
        elif mask.rank in (2, 3) and mask.shape[-1] == keys:
            seen = al.less(0, mask)
        else:
            raise UnsupportedOp(
                "a mask of attention is [batch], [batch, keys] or [batch, rows, keys]",
                shape=mask.shape,
            )
        wide = reshape(seen, (batch, 1, rows if mask.rank == 3 else 1, keys))
        found.append(al.where(wide, constant(0.0, F32), filtered))
    if unidirectional:
        row, key = (cast(al.position_along((rows, keys), axis), I32) for axis in (0, 1))
        later = al.less(al.add(row, before), key)
        found.append(reshape(al.where(later, constant(NEVER, F32), 0.0), (1, 1, rows, keys)))
    return found


def _attended(q: Node, k: Node, v: Node, added: list[Node | None], scale: float) -> Node:
    """Attention of operands [batch, heads, rows or keys, width] as [batch, rows, heads * width]."""
    batch, heads, rows, width = q.shape
    scores = al.mul(contract("bhmd,bhnd->bhmn", q, k), scale or width**-0.5)
    for one in added:
        scores = scores if one is None else al.add(scores, one)
    made = contract("bhmn,bhnd->bmhd", softmax(scores), v)
    return reshape(made, (batch, rows, heads * v.shape[3]))
