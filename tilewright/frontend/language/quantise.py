"""Weights of fewer bits: integers with a scale for each block of a row.

Input: a `ModelTensor` of numbers.  Output: the same with integers of 4 or 8 bits, or with numbers
of 16 bits, and how exact they are.  Tensors are quantised when they are read, one after the other.

    weight = integer * scale, with a scale of f16 for 32 weights
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from math import sqrt

import numpy as np

from tilewright.base.dtypes import I8
from tilewright.base.errors import InvalidModel, UsageError
from tilewright.frontend.language.weights import ModelTensor
from tilewright.graph.ops import Array

#: The bits that a user can choose; 0 keeps weights as they are.
BITS = (0, 4, 8, 16, 32)
#: Weights that share a scale.
GROUP = 32
#: Roles that get 8 bits where others get 4: rows that are looked up, and logits.
TABLES = ("token_embd.weight", "output.weight")
#: Integers that the largest weight of a block is divided to; of these the one with the least error
#: is taken.  The largest integer of 4 bits is 7, the smallest -8.
LARGEST = {4: (6.5, 7.0, 7.5, 8.0, 8.5), 8: (127.0,)}
MOST_HALF = float(np.finfo(np.float16).max)
#: Weights that are quantised at once.
AT_ONCE = 1 << 21


@dataclass
class Quantiser:
    """squares: of errors and of weights, by the name of each tensor that was read

    latest: the tensor that was quantised last, because its parts are read one after the other
    """

    bits: int
    squares: dict[str, tuple[float, float]] = field(default_factory=dict)
    latest: tuple[str, Array, Array] | None = None

    def __post_init__(self) -> None:
        """Raises UsageError."""
        if self.bits not in BITS:
            raise UsageError(
                f"weights cannot have {self.bits} bits",
                hint=f"Choose one of {', '.join(map(str, BITS[1:]))}",
            )

    @property
    def error(self) -> float:
        """The root mean square of the errors, divided by that of the weights."""
        errors, sizes = (sum(pair[i] for pair in self.squares.values()) for i in (0, 1))
        return sqrt(errors / sizes) if sizes else 0.0

    def tensor(self, role: str, tensor: ModelTensor) -> ModelTensor:
        """A matrix with fewer bits, if its rows have whole blocks; else the tensor as it is."""
        if len(tensor.shape) != 2 or not self.bits:
            return tensor
        if self.bits == 32:
            return replace(tensor, stored="")
        if self.bits == 16:
            return replace(tensor, stored="f16", whole=partial(self._half, tensor))
        if tensor.shape[1] % GROUP:
            return tensor
        bits = 8 if role in TABLES else self.bits
        return replace(
            tensor, kind=f"{bits} bits", dtype=I8, stored="", group=GROUP, halves=True,
            whole=partial(self._part, tensor, bits, 1), scale=partial(self._part, tensor, bits, 2),
        )  # fmt: skip

    def _half(self, tensor: ModelTensor) -> Array:
        whole = _finite(tensor)
        made = np.clip(whole, -MOST_HALF, MOST_HALF).astype(np.float16).astype(np.float32)
        self.squares[tensor.name] = _squares(whole - made), _squares(whole)
        return made

    def _part(self, tensor: ModelTensor, bits: int, part: int) -> Array:
        """Integers [rows, columns], or scales [rows, blocks]."""
        if self.latest is None or self.latest[0] != tensor.name:
            self.latest = (tensor.name, *self._quantised(tensor, bits))
        return np.asarray(self.latest[part])

    def _quantised(self, tensor: ModelTensor, bits: int) -> tuple[Array, Array]:
        whole = _finite(tensor)
        rows, columns = whole.shape
        integers = np.empty((rows, columns), np.int8)
        scales = np.empty((rows, columns // GROUP), np.float32)
        error, step = 0.0, max(1, AT_ONCE // columns)
        for start in range(0, rows, step):
            part = whole[start : start + step]
            made, scale, wrong = blocks_of(part.reshape(len(part), -1, GROUP), bits)
            integers[start : start + step] = made.reshape(part.shape)
            scales[start : start + step] = scale
            error += wrong
        self.squares[tensor.name] = error, _squares(whole)
        return integers, scales


def blocks_of(x: Array, bits: int) -> tuple[Array, Array, float]:
    """Integers and scales of blocks [rows, blocks, weights], and the sum of squared errors."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    far = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)
    integers = np.zeros(x.shape, np.int8)
    scales = np.zeros(x.shape[:2], np.float32)
    least = np.square(x).sum(-1)
    for largest in LARGEST[bits]:
        # negative, because there is one more negative integer
        scale = np.clip(far / -largest, -MOST_HALF, MOST_HALF)
        scale = scale.astype(np.float16).astype(np.float32)
        whole = np.rint(np.divide(x, scale, out=np.zeros_like(x), where=scale != 0))
        whole = np.clip(whole, low, high)
        error = np.square(whole * scale - x).sum(-1)
        better = error < least
        least = np.where(better, error, least)
        scales = np.where(better, scale[..., 0], scales)
        np.copyto(integers, whole.astype(np.int8), where=better[..., None])
    return integers, scales, float(least.sum(dtype=np.float64))


def _finite(tensor: ModelTensor) -> Array:
    whole = tensor.whole()
    if not np.isfinite(whole).all():
        raise InvalidModel(
            f"the tensor {tensor.name!r} has numbers that are not finite", tensor=tensor.name
        )
    return whole


def _squares(x: Array) -> float:
    return float(np.vdot(x, x))
