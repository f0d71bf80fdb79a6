"""Operators of language models as compositions: norms, rotary embeddings, attention with a cache.

Input: operand nodes and attributes.  Output: nodes.  A cache has a fixed number of rows.  The first
rows are valid; new rows are written after them (`Update`), and rows after those are masked.  So one
plan serves every length.

    k' = k with the new rows at `past`;  softmax(q·k'ᵀ where key <= past + row, else -inf)·v'
"""

from __future__ import annotations

from tilewright.base.dtypes import F32, I32
from tilewright.base.errors import InvalidModel, ShapeError, UnsupportedOp
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operator_table import operator
from tilewright.frontend.operators.normalization import rms_norm
from tilewright.frontend.operators.quantization import MICROSOFT
from tilewright.frontend.operators.reduction import top
from tilewright.graph import ops
from tilewright.graph.node import (
    Node,
    broadcast,
    cast,
    concat,
    contract,
    gather,
    iota,
    node,
    reshape,
    transpose,
)

#: The number added to the score of a masked key.
HIDDEN = float("-inf")


# ---- norms ---------------------------------------------------------------------------------------


@operator("SimplifiedLayerNormalization", ignore=("stash_type",))
def simplified_layer_norm(x: Node, scale: Node, *, axis: int = -1, epsilon: float = 1e-5) -> Node:
    """x divided by the root of its mean square, times a scale (RMSNorm)."""
    return rms_norm(x, scale, axis=axis, epsilon=epsilon)


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_norm(
    x: Node, skip: Node, gamma: Node, bias: Node | None = None, *, epsilon: float = 1e-12
) -> tuple[Node, ...]:
    """The norm of a sum, and the sum itself as the fourth result."""
    total = al.add(x, skip)
    total = total if bias is None else al.add(total, bias)
    normal = rms_norm(total, gamma, epsilon=epsilon)
    # the second and third results are for training and not defined here; the sum has the right
    # shape
    return normal, total, total, total


# ---- rotary embeddings ---------------------------------------------------------------------------


def rotated(x: Node, cos: Node, sin: Node, interleaved: bool) -> Node:
    """Pairs of the last axis of `x` [batch, rows, heads, width], each turned by its angle.

    cos, sin: [batch or 1, rows, pairs].  Elements of the last axis from 2 * pairs on stay as they
              are
    """
    pairs = cos.shape[-1]
    if 2 * pairs > x.shape[-1]:
        raise ShapeError("a head is narrower than the rotation", shape=[x.shape, cos.shape])
    rest = x.shape[3] - 2 * pairs
    whole = al.take(x, 3, 0, 2 * pairs)
    # an axis of extent 2 for both elements of a pair, before or after the axis of pairs
    axis = 4 if interleaved else 3
    split = reshape(whole, (*x.shape[:3], *((pairs, 2) if interleaved else (2, pairs))))
    cos, sin = (al.unsqueeze(t, (2, axis)) for t in (cos, sin))
    first, second = (al.take(split, axis, n, 1) for n in (0, 1))
    other = concat([al.apply("neg", second), first], axis)
    made = reshape(al.add(al.mul(split, cos), al.mul(other, sin)), whole.shape)
    return made if not rest else concat([made, al.take(x, 3, 2 * pairs, rest)], 3)


@operator(
    "RotaryEmbedding", domain=MICROSOFT, ignore=("is_packed_batching",), ranks=(None, None, 2, 2)
)
def rotary_embedding(
    x: Node,
    positions: Node,
    cos: Node,
    sin: Node,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Node:
    """x is [batch, rows, heads * width] or [batch, heads, rows, width]; positions are one number,
    that of the first row, or one for each row [batch, rows]."""
    if scale != 1.0:
        raise UnsupportedOp(f"RotaryEmbedding with the scale {scale} is not supported")
    flat = x.rank == 3
    width = 2 * cos.shape[-1]
    if flat and (num_heads or not rotary_embedding_dim):
        heads = num_heads or x.shape[2] // width
        wide = reshape(x, (*x.shape[:2], heads, x.shape[2] // heads))
    elif x.rank == 4:
        wide = transpose(x, (0, 2, 1, 3))
    else:
        raise InvalidModel("RotaryEmbedding needs num_heads", shape=x.shape)
    rows = wide.shape[1]
    if positions.size == 1 and rows > 1:
        positions = _positions(positions, rows)
    else:
        positions = reshape(positions, (-1, rows))
    cos, sin = (gather(table, positions, 0) for table in (cos, sin))
    made = rotated(wide, cos, sin, bool(interleaved))
    return reshape(made, x.shape) if flat else transpose(made, (0, 2, 1, 3))


def _positions(first: Node, rows: int) -> Node:
    """[1, rows]: `first`, `first` + 1, …"""
    return al.add(reshape(cast(first, I32), (1, 1)), cast(iota((1, rows), 1), I32))


# ---- attention with a cache ----------------------------------------------------------------------


@operator("TensorScatter", since=24)
def tensor_scatter(
    cache: Node, rows: Node, at: Node | None = None, *, axis: int = -2, mode: str = "linear"
) -> Node:
    """The cache with new rows from `at` on, which all batches share."""
    if mode != "linear" or (at is not None and at.size != 1):
        raise UnsupportedOp(
            "TensorScatter is supported in linear mode, with one index",
            hint="Export the model for one sequence (batch 1)",
            shape=None if at is None else at.shape,
        )
    along = al.axis_of(axis, cache.rank)
    first = al.ints([0]) if at is None else at
    return _appended(cache, rows, first, along)


def _appended(cache: Node, rows: Node, first: Node, axis: int) -> Node:
    if cache.dtype != rows.dtype:
        raise InvalidModel("a cache and its new rows differ in dtype", dtype=str(rows.dtype))
    return node(ops.Update(axis), cache, rows, reshape(cast(first, I32), ()))


@operator(
    "GroupQueryAttention",
    domain=MICROSOFT,
    ignore=("qk_output", "k_quant_type", "v_quant_type"),
    ranks=(3, 3, 3, 4, 4, None, None, 2, 2),
)
def group_query_attention(
    query: Node,
    key: Node | None = None,
    value: Node | None = None,
    past_key: Node | None = None,
    past_value: Node | None = None,
    seqlens_k: Node | None = None,
    total_length: Node | None = None,
    cos: Node | None = None,
    sin: Node | None = None,
    position_ids: Node | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    local_window_size: int = -1,
    softcap: float = 0.0,
    smooth_softmax: int = 0,
) -> tuple[Node, Node, Node]:
    """Attention of one sequence; past and present keys and values have the cache's shape [1, heads,
    rows, width].

    seqlens_k: index of the last valid key, new ones included; total_length: its value is not read.
    """
    del total_length
    al.positive("heads", num_heads, kv_num_heads)
    if past_key is None or past_value is None or seqlens_k is None:
        raise UnsupportedOp(
            "GroupQueryAttention without a cache is not supported",
            hint="Export the model with past_key and past_value",
        )
    _check_cache(query, past_key, seqlens_k, smooth_softmax)
    rows = query.shape[1]
    q, k, v = _heads(query, key, value, num_heads, kv_num_heads)
    # a prompt may be shorter than the model's rows; the results of rows after its end are not used
    past = al.apply("max", al.sub(cast(reshape(seqlens_k, ()), I32), rows - 1), 0)
    if do_rotary:
        if cos is None or sin is None:
            raise InvalidModel("GroupQueryAttention with do_rotary needs tables of cos and sin")
        at = _positions(past, rows) if position_ids is None else position_ids
        cos, sin = (gather(t, at, 0) for t in (cos, sin))
        q, k = (rotated(x, cos, sin, bool(rotary_interleaved)) for x in (q, k))
    keys, values = (
        _appended(cache, transpose(x, (0, 2, 1, 3)), past, 2)
        for cache, x in ((past_key, k), (past_value, v))
    )
    grouped = reshape(q, (*q.shape[:2], kv_num_heads, num_heads // kv_num_heads, q.shape[3]))
    scores = _scores(grouped, keys, scale, softcap)
    visible = visible_keys(past, rows, keys.shape[2], local_window_size)
    return _mixed(scores, visible, values), keys, values


def _scores(grouped: Node, keys: Node, scale: float, softcap: float) -> Node:
    """[batch, key heads, queries of each, rows, keys].  grouped: queries as [batch, rows, key
    heads, queries of each, width]"""
    scores = contract("bmhgd,bhnd->bhgmn", grouped, keys)
    scores = al.mul(scores, scale or grouped.shape[4] ** -0.5)
    return al.mul(al.apply("tanh", al.div(scores, softcap)), softcap) if softcap else scores


def visible_keys(past: Node, rows: int, room: int, window: int) -> Node:
    """[rows, room]: whether a row attends to a key.

    past: keys before the first row;  window: how far back a row attends; negative: to all keys
    """
    number = reshape(past, (1, 1))
    last_key = al.add(number, cast(al.position_along((rows, room), 0), I32))
    keys = cast(al.position_along((rows, room), 1), I32)
    seen = al.apply("le", keys, last_key)
    if window < 0:
        return seen
    return al.apply("and", seen, al.less(al.sub(last_key, window), keys))


def _mixed(scores: Node, visible: Node, values: Node) -> Node:
    """The values weighted by the softmax of the visible scores, as [batch, rows, columns]."""
    shown = broadcast(reshape(visible, (1, 1, 1, *visible.shape)), scores.shape)
    scores = al.where(shown, scores, HIDDEN)
    powers = al.exp(al.sub(scores, top("max", scores, [4])))
    weights = al.div(powers, al.total(powers, [4]))
    made = contract("bhgmn,bhnd->bmhgd", weights, values)
    return reshape(made, (*made.shape[:2], -1))


def _check_cache(query: Node, key: Node, seqlens: Node, smooth: int) -> None:
    if query.rank != 3 or query.shape[0] != 1 or seqlens.size != 1:
        raise UnsupportedOp(
            "GroupQueryAttention is supported for one sequence",
            hint="Build the model for batch 1",
            shape=query.shape,
        )
    if key.shape[2] < query.shape[1]:
        raise UnsupportedOp(
            f"{query.shape[1]} new rows do not fit the cache of {key.shape[2]} rows",
            hint="The cache does not grow: give its axis the largest length, with --shape",
            shape=key.shape,
        )
    if key.dtype != F32:
        raise UnsupportedOp("a cache must be f32", dtype=str(key.dtype))
    if smooth:
        raise UnsupportedOp("GroupQueryAttention with smooth_softmax is not supported")


def _heads(
    query: Node, key: Node | None, value: Node | None, heads: int, own: int
) -> tuple[Node, Node, Node]:
    """Queries, keys and values as [batch, rows, heads, width]; all three may be in `query`."""
    batch, rows, columns = query.shape
    if heads % own:
        raise InvalidModel(f"{heads} heads cannot share {own} heads of keys")
    if key is None or value is None:
        width = columns // (heads + 2 * own)
        whole = reshape(query, (batch, rows, heads + 2 * own, width))
        starts = (0, heads), (heads, own), (heads + own, own)
        q, k, v = (al.take(whole, 2, start, count) for start, count in starts)
        return q, k, v
    parts = (query, heads), (key, own), (value, own)
    q, k, v = (reshape(x, (batch, rows, n, x.shape[2] // n)) for x, n in parts)
    return q, k, v
