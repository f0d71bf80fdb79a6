"""The sizes of a language model, as its graph needs them.

Input: numbers that a reader took from the model's settings.  Output: `Hyperparameters`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.errors import UnsupportedOp
from tilewright.frontend.language.architectures import Architecture

#: No published model comes near.
MOST_LAYERS = 1 << 10


@dataclass(frozen=True)
class Hyperparameters:
    """name: the architecture's;  head: numbers of a head
    trained: tokens that the model was trained for;  scale: of scores
    pairs: whether rotation turns neighbours (2i, 2i + 1) instead of halves (i, i + n / 2)
    window: keys that a row of a local layer sees;  local: for each layer whether it is one
    turned: for each layer whether its queries and keys are rotated
    caps: of scores and of logits; 0 if none
    """

    name: str
    kind: Architecture
    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    trained: int
    epsilon: float
    scale: float
    pairs: bool
    window: int
    local: tuple[bool, ...]
    turned: tuple[bool, ...]
    caps: tuple[float, float]

    def __post_init__(self) -> None:
        """Raises UnsupportedOp."""
        if self.heads % self.kv_heads or self.head % 2:
            raise UnsupportedOp(
                f"{self.heads} heads of queries beside {self.kv_heads} of keys with {self.head} "
                "numbers are not supported",
                architecture=self.name,
            )
