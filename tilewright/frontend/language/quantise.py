"""Weights of fewer bits: integers with a scale for each block of a row.

Input: a `ModelTensor` of numbers.  Output: the same with integers of 4 or 8 bits, or with numbers
of 16 bits, and how exact they are.  Tensors are quantised when they are read, one after the other.

    weight = integer * scale, with a scale of f16 for 32 weights
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from math import sqrt

import numpy as np

from tilewright.base.dtypes import I8
from tilewright.base.errors import InvalidModel, UsageError
from tilewright.frontend.language.weights import ModelTensor
from tilewright.graph.ops import Array

#: The bits that a user can choose.
BITS = (4, 8, 16, 32)
#: Weights that share a scale.
GROUP = 32
#: Roles that get 8 bits where others get 4: rows that are looked up, and logits.
TABLES = ("token_embd.weight", "output.weight")
#: Integers that the largest weight of a block is divided to; of these the one with the least error
#: is taken.  The largest integer of 4 bits is 7, the smallest -8.
LARGEST = {4: (6.5, 7.0, 7.5, 8.0, 8.5), 8: (127.0,)}
MOST_HALF = float(np.finfo(np.float16).max)
#: Weights that are quantised at once.
AT_ONCE = 1 << 17


@dataclass
class Quantiser:
    """bits: of weights; None keeps them as they are

    By the name of each tensor that was read: squares: of errors and of weights
    scales: of its blocks, which take the most time
    """

    bits: int | None
    squares: dict[str, tuple[float, float]] = field(default_factory=dict)
    scales: dict[str, Array] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Raises UsageError."""
        if self.bits is not None and self.bits not in BITS:
            raise UsageError(
                f"weights cannot have {self.bits} bits",
                hint=f"Choose one of {', '.join(map(str, BITS))}",
            )

    @property
    def is_rounding(self) -> bool:
        return self.bits not in (None, 32)

    @property
    def error(self) -> float:
        """The root mean square of the errors, divided by that of the weights."""
        errors, sizes = (sum(pair[i] for pair in self.squares.values()) for i in (0, 1))
        return sqrt(errors / sizes) if sizes else 0.0

    def error_of(
        self, tensors: Collection[ModelTensor], progress: Callable[[int, int], None]
    ) -> float:
        """The error after all these tensors were read.

        progress: told how many of how many were read
        """
        matrices = [t for t in tensors if self.is_rounding and len(t.shape) == 2]
        for number, tensor in enumerate(matrices):
            progress(number, len(matrices))
            (tensor.scale or tensor.whole)()
        return self.error

    def tensor(self, role: str, tensor: ModelTensor) -> ModelTensor:
        """A matrix with fewer bits, if its rows have whole blocks; else the tensor as it is."""
        if len(tensor.shape) != 2 or self.bits is None:
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
            whole=partial(self._integers, tensor, bits),
            scale=partial(self._scales, tensor, bits),
        )  # fmt: skip

    def _half(self, tensor: ModelTensor) -> Array:
        whole = _finite(tensor)
        made = np.clip(whole, -MOST_HALF, MOST_HALF).astype(np.float16).astype(np.float32)
        self.squares[tensor.name] = _squares(whole - made), _squares(whole)
        return made

    def _integers(self, tensor: ModelTensor, bits: int) -> Array:
        """[rows, columns]"""
        scales = self._scales(tensor, bits)
        whole = tensor.whole()
        made = np.empty(whole.shape, np.int8)
        for rows in _parts(whole):
            made[rows] = integers_of(_blocks(whole[rows]), scales[rows], bits).reshape(
                whole[rows].shape
            )
        return made

    def _scales(self, tensor: ModelTensor, bits: int) -> Array:
        """[rows, blocks]"""
        if tensor.name not in self.scales:
            whole, error = _finite(tensor), 0.0
            scales = np.empty((whole.shape[0], whole.shape[1] // GROUP), np.float16)
            for rows in _parts(whole):
                scales[rows], wrong = scales_of(_blocks(whole[rows]), bits)
                error += wrong
            self.squares[tensor.name] = error, _squares(whole)
            self.scales[tensor.name] = scales
        return self.scales[tensor.name].astype(np.float32)


def _parts(whole: Array) -> list[slice]:
    """Rows that are quantised at once."""
    step = max(1, AT_ONCE // whole.shape[1])
    return [slice(start, start + step) for start in range(0, len(whole), step)]


def _blocks(rows: Array) -> Array:
    return rows.reshape(len(rows), -1, GROUP)


def integers_of(x: Array, scales: Array, bits: int) -> Array:
    """The nearest integers of blocks [rows, blocks, weights]."""
    scale = scales[..., None]
    whole = np.rint(np.divide(x, scale, out=np.zeros_like(x), where=scale != 0))
    return np.asarray(np.clip(whole, -(1 << bits - 1), (1 << bits - 1) - 1))


def scales_of(x: Array, bits: int) -> tuple[Array, float]:
    """The best scales of blocks [rows, blocks, weights], as f16, and the sum of squared errors."""
    far = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)[..., 0]
    least, best = np.square(x).sum(-1), np.zeros(far.shape, np.float16)
    for largest in LARGEST[bits]:
        # negative, because there is one more negative integer
        scales = np.clip(far / -largest, -MOST_HALF, MOST_HALF).astype(np.float16)
        wide = scales.astype(np.float32)
        error = np.square(integers_of(x, wide, bits) * wide[..., None] - x).sum(-1)
        best = np.where(error < least, scales, best)
        least = np.minimum(error, least)
    return best, float(least.sum(dtype=np.float64))


def _finite(tensor: ModelTensor) -> Array:
    whole = tensor.whole()
    if not np.isfinite(whole).all():
        raise InvalidModel(
            f"the tensor {tensor.name!r} has numbers that are not finite", tensor=tensor.name
        )
    return whole


def _squares(x: Array) -> float:
    return float(np.vdot(x, x))
