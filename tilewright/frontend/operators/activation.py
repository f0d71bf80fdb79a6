"""ONNX activation functions and softmax variants as compositions.

Input: operand nodes and attributes.  Output: nodes.
"""

from __future__ import annotations

from math import exp, pi, sqrt

from tilewright.base.errors import InvalidModel
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operator_table import operator
from tilewright.frontend.operators.elementwise import floats_only
from tilewright.frontend.operators.reduction import first_extreme, top
from tilewright.graph.node import Node, cast, iota


@operator("Relu")
def relu(x: Node) -> Node:
    return al.apply("max", x, 0)


@operator("LeakyRelu")
def leaky_relu(x: Node, *, alpha: float = 0.01) -> Node:
    return al.where(al.less(x, 0), al.mul(x, alpha), x)


@operator("PRelu")
def prelu(x: Node, slope: Node) -> Node:
    return al.where(al.less(x, 0), al.mul(x, slope), x)


@operator("ThresholdedRelu")
def thresholded_relu(x: Node, *, alpha: float = 1.0) -> Node:
    return al.where(al.less(alpha, x), x, 0)


@operator("Sigmoid")
def sigmoid(x: Node) -> Node:
    return al.div(1.0, al.add(al.exp(al.apply("neg", x)), 1.0))


@operator("HardSigmoid")
def hard_sigmoid(x: Node, *, alpha: float = 0.2, beta: float = 0.5) -> Node:
    return al.apply("min", al.apply("max", al.add(al.mul(x, alpha), beta), 0.0), 1.0)


@operator("HardSwish", since=14)
def hard_swish(x: Node) -> Node:
    return al.mul(x, hard_sigmoid(x, alpha=1 / 6, beta=0.5))


@operator("Swish", since=24)
def swish(x: Node, *, alpha: float = 1.0) -> Node:
    return al.mul(x, sigmoid(al.mul(x, alpha)))


@operator("Gelu", since=20)
def gelu(x: Node, *, approximate: str = "none") -> Node:
    """x * Φ(x), by erf or by the tanh formula."""
    if approximate == "tanh":
        cubic = al.add(x, al.mul(al.mul(al.square(x), x), 0.044715))
        return al.mul(al.mul(x, 0.5), al.add(al.apply("tanh", al.mul(cubic, sqrt(2 / pi))), 1.0))
    if approximate != "none":
        raise InvalidModel(f"Gelu has no approximation {approximate!r}")
    return al.mul(al.mul(x, 0.5), al.add(al.apply("erf", al.mul(x, sqrt(0.5))), 1.0))


@operator("Elu")
def elu(x: Node, *, alpha: float = 1.0) -> Node:
    return al.where(al.less(x, 0), al.mul(al.apply("expm1", x), alpha), x)


@operator("Celu")
def celu(x: Node, *, alpha: float = 1.0) -> Node:
    low = al.mul(al.apply("expm1", al.div(x, alpha)), alpha)
    return al.where(al.less(x, 0), low, x)


@operator("Selu")
def selu(
    x: Node, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Node:
    return al.mul(elu(x, alpha=alpha), gamma)


@operator("Softplus")
def softplus(x: Node) -> Node:
    """log(1 + exp(x)), written so that exp cannot overflow."""
    tail = al.exp(al.apply("neg", al.apply("abs", x)))
    return al.add(al.apply("max", x, 0.0), al.apply("log1p", tail))


@operator("Mish", since=18)
def mish(x: Node) -> Node:
    """x * tanh(softplus(x)) as a fraction of t = exp(-|x|).

    x > 0: x * (1 + 2t) / (1 + 2t + 2t²);  else x * (2t + t²) / (2 + 2t + t²).  Below x = -87, t is
    too small for f32, but the result is not.  There t is multiplied by e^16 and x by e^-16.
    """
    far, above = al.less(x, -80.0), al.less(0, x)
    t = al.exp(al.sub(al.mul(cast(far, x.dtype), 16.0), al.apply("abs", x)))
    square, twice = al.square(t), al.mul(t, 2.0)
    over = al.add(twice, al.where(above, 1.0, square))
    under = al.add(over, al.where(above, al.mul(square, 2.0), 2.0))
    return al.mul(al.where(far, al.mul(x, exp(-16)), x), al.div(over, under))


@operator("Softsign")
def softsign(x: Node) -> Node:
    return al.div(x, al.add(al.apply("abs", x), 1.0))


@operator("Shrink")
def shrink(x: Node, *, bias: float = 0.0, lambd: float = 0.5) -> Node:
    low = al.where(al.less(x, -lambd), al.add(x, bias), 0)
    return al.where(al.less(lambd, x), al.sub(x, bias), low)


@operator("Softmax", since=13)
def softmax(x: Node, *, axis: int = -1) -> Node:
    floats_only(x)
    axes = (al.axis_of(axis, x.rank),)
    powers = al.exp(al.sub(x, top("max", x, axes)))
    return al.div(powers, al.total(powers, axes))


@operator("LogSoftmax", since=13)
def log_softmax(x: Node, *, axis: int = -1) -> Node:
    floats_only(x)
    axes = (al.axis_of(axis, x.rank),)
    centred = al.sub(x, top("max", x, axes))
    return al.sub(centred, al.log(al.total(al.exp(centred), axes)))


@operator("Hardmax", since=13)
def hardmax(x: Node, *, axis: int = -1) -> Node:
    """1 at the first maximum, else 0."""
    where = first_extreme(x, al.axis_of(axis, x.rank), "max")
    return cast(al.equal(where, iota(x.shape, axis)), x.dtype)
