"""ONNX normalisations as compositions of means and elementwise steps.

Input: operand nodes and attributes.  Output: nodes.  Per-channel factors stay small graphs over
weights, which are evaluated when the weights are written.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.errors import ShapeError, UnsupportedOp
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operator_table import operator
from tilewright.graph import ops
from tilewright.graph.node import Node, broadcast, computed, pad, reshape, unfold
from tilewright.graph.ops import Shape


@operator("BatchNormalization", ignore=("momentum",))
def batch_norm(
    x: Node,
    gamma: Node,
    beta: Node,
    center: Node,
    variance: Node,
    *,
    epsilon: float = 1e-5,
    training_mode: int = 0,
) -> Node:
    """x * scale + shift, with both from the stored statistics."""
    if training_mode:
        raise UnsupportedOp(
            "BatchNormalization in training mode is not supported",
            hint="Export the model in eval mode",
        )
    scale = al.div(gamma, al.sqrt(al.add(variance, epsilon)))
    shift = al.sub(beta, al.mul(center, scale))
    wide = (al.per_channel(v, max(x.rank, 2)) for v in (scale, shift))
    return _affine(x, *wide)


def _affine(x: Node, scale: Node | None, shift: Node | None) -> Node:
    scaled = x if scale is None else al.mul(x, scale)
    return scaled if shift is None else al.add(scaled, shift)


def _standard(x: Node, axes: Sequence[int], epsilon: float) -> tuple[Node, Node, Node]:
    """(x - mean) / deviation over `axes`, the mean, and 1 / deviation."""
    center = al.mean(x, axes)
    centred = al.sub(x, center)
    inverse = al.div(1.0, al.sqrt(al.add(al.mean(al.square(centred), axes), epsilon)))
    return al.mul(centred, inverse), center, inverse


@operator("LayerNormalization", since=17, ignore=("stash_type",))
def layer_norm(
    x: Node,
    scale: Node,
    bias: Node | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> tuple[Node, Node, Node]:
    axes = range(al.axis_of(axis, x.rank), x.rank)
    normal, center, inverse = _standard(x, axes, epsilon)
    return _affine(normal, scale, bias), center, inverse


@operator("RMSNormalization", since=23, ignore=("stash_type",))
def rms_norm(x: Node, scale: Node, *, axis: int = -1, epsilon: float = 1e-5) -> Node:
    axes = range(al.axis_of(axis, x.rank), x.rank)
    power = al.mean(al.square(x), axes)
    return al.mul(al.mul(x, al.div(1.0, al.sqrt(al.add(power, epsilon)))), scale)


@operator("InstanceNormalization")
def instance_norm(x: Node, scale: Node, bias: Node, *, epsilon: float = 1e-5) -> Node:
    """Normalises each channel.  If a reshape just merged channels into groups, as exporters write
    GroupNorm, it normalises the groups before the reshape."""
    if x.rank < 2 or not x.shape[1]:
        raise ShapeError("InstanceNormalization needs an axis of channels", shape=x.shape)
    inner = x.inputs[0] if isinstance(x.op, ops.Reshape) else x
    groups = x.shape[1]
    split = inner.rank > 2 and inner.shape[0] == x.shape[0] and inner.shape[1] % groups == 0
    whole = inner if split else x
    return reshape(_group_norm(whole, groups, epsilon, scale, bias), x.shape)


@operator("GroupNormalization", since=18, ignore=("stash_type",))
def group_norm(x: Node, scale: Node, bias: Node, *, num_groups: int, epsilon: float = 1e-5) -> Node:
    """Opset 18 has a scale and a bias for each group, later ones for each channel."""
    return _group_norm(x, num_groups, epsilon, scale, bias)


def _group_norm(x: Node, groups: int, epsilon: float, scale: Node, bias: Node) -> Node:
    """Normalises each group of channels, in the order in which `x` is stored."""
    al.positive("groups", groups)
    if x.rank < 2 or x.shape[1] % groups or {scale.size, bias.size} - {groups, x.shape[1]}:
        raise ShapeError(
            f"{groups} groups, scales and biases do not match the channels",
            shape=[x.shape, scale.shape, bias.shape],
        )
    last = al.are_channels_last(x)
    spread, at = (al.channels_last(x), x.rank - 1) if last else (x, 1)
    own = (groups, x.shape[1] // groups) if groups < x.shape[1] else (groups,)
    split = reshape(spread, (*spread.shape[:at], *own, *spread.shape[at + 1 :]))
    axes = [a for a in range(1, split.rank) if a != at]
    normal = _standard(split, axes, epsilon)[0]
    wide = (
        None if _is_all(v, number) else _by_channel(v, (*own, *spread.shape[at + 1 :]), len(own))
        for v, number in ((scale, 1), (bias, 0))
    )
    made = reshape(_affine(normal, *wide), spread.shape)
    return al.channels_first(made) if last else made


def _is_all(x: Node, number: int) -> bool:
    """True for a constant whose elements all equal `number`.  Exporters write neutral factors for
    norms that have none."""
    return x.constant and bool((computed(x) == number).all())


def _by_channel(x: Node, shape: Shape, own: int) -> Node:
    """A factor per group or channel, broadcast to the first `own` axes of `shape`, with axes of
    extent 1 after them."""
    wide = broadcast(reshape(x, (shape[0], x.size // shape[0])[:own]), shape[:own])
    return reshape(wide, (*shape[:own], *[1] * (len(shape) - own)))


@operator("MeanVarianceNormalization")
def mean_variance_norm(x: Node, *, axes: Sequence[int] = (0, 2, 3)) -> Node:
    return _standard(x, al.axes_of(axes, x.rank), 1e-9)[0]


@operator("LpNormalization")
def lp_norm(x: Node, *, axis: int = -1, p: int = 2) -> Node:
    """x divided by its norm; zero where the norm is zero."""
    axes = (al.axis_of(axis, x.rank),)
    norm = al.norm_of_terms(al.total(al.norm_terms(x, p), axes), p)
    return al.where(al.equal(norm, 0), 0.0, al.div(x, norm))


@operator("LRN")
def local_response_norm(
    x: Node, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Node:
    """x divided by a power of the squares summed over `size` neighbouring channels."""
    al.positive("channels", size)
    if x.rank < 2:
        raise ShapeError("LRN needs an axis of channels", shape=x.shape)
    before, after = [0] * x.rank, [0] * x.rank
    before[1], after[1] = (size - 1) // 2, size // 2
    windows = unfold(pad(al.square(x), before, after), 1, size)
    sums = al.squeeze(al.total(windows, (-1,)), (-1,))
    base = al.add(al.mul(sums, alpha / size), bias)
    return al.div(x, al.apply("pow", base, beta))
