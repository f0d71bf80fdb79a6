"""Tables of cosines and sines for rotary embeddings, with the scalings that models have.

Input: `Rotation`, which a reader took from the model's settings.  Output: `[room, pairs]` of
cosines and of sines, computed in f64.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log, pi

import numpy as np

from tilewright.base.errors import InvalidModel, UnsupportedOp
from tilewright.graph.ops import Array

HINT = "The model's settings are damaged, or their converter is wrong"
KINDS = ("none", "linear", "yarn")


@dataclass(frozen=True)
class Rotation:
    """How queries and keys are rotated.

    width:  number of elements of a head that are rotated;  base: base of the rates
    kind:   "none", "linear" or "yarn";  factor: by which this slows rates down
    trained: tokens that the model was trained for before it was scaled
    size:   factor of cosines and sines
    divisors: for each pair, the divisor of its rate
    far:    the same if the caches hold more tokens than `trained`
    fast, slow: of YaRN: rotations of a pair over the trained length from which it keeps its rate,
            and up to which it is slowed down fully;  whole: whether these pairs are rounded
    """

    width: int
    base: float
    kind: str = "none"
    factor: float = 1.0
    trained: int = 1
    size: float = 1.0
    divisors: Array | None = None
    far: Array | None = None
    fast: float = 32.0
    slow: float = 1.0
    whole: bool = True

    def __post_init__(self) -> None:
        """Raises InvalidModel, UnsupportedOp."""
        if self.base <= 1:
            raise InvalidModel(
                f"the base of the rotation cannot be {self.base}", hint=HINT, base=self.base
            )
        if self.factor <= 0:
            raise InvalidModel(
                f"the rotation cannot be scaled by {self.factor}", hint=HINT, factor=self.factor
            )
        if self.kind not in KINDS:
            raise UnsupportedOp(
                f"rotations scaled by {self.kind!r} are not supported", scaling=self.kind
            )

    def tables(self, room: int) -> tuple[Array, Array]:
        """Cosines and sines for positions from 0 on."""
        rates = self.base ** (-np.arange(0, self.width, 2, dtype=np.float64) / self.width)
        divisors = self.far if room > self.trained and self.far is not None else self.divisors
        rates = self._scaled(rates if divisors is None else rates / divisors)
        angles = np.arange(room, dtype=np.float64)[:, None] * rates
        cos, sin = self.size * np.cos(angles), self.size * np.sin(angles)
        return cos.astype(np.float32), sin.astype(np.float32)

    def _scaled(self, rates: Array) -> Array:
        if self.kind == "none":
            return rates
        if self.kind == "linear":
            return np.asarray(rates / self.factor)
        low, high = self._place(self.fast), self._place(self.slow)
        low, high = (floor(low), ceil(high)) if self.whole else (low, high)
        low, high = max(0, low), min(self.width - 1, high)
        kept = 1 - np.clip((np.arange(len(rates)) - low) / max(0.001, high - low), 0, 1)
        return np.asarray(rates / self.factor * (1 - kept) + rates * kept)

    def _place(self, turns: float) -> float:
        """The pair that turns this number of times over the trained length."""
        rate = log(max(self.trained, 1) / (turns * 2 * pi))
        return self.width * rate / (2 * log(self.base))
