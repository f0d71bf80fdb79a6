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
    """The sizes of a model.

    name:    the name of the architecture
    head:    width of a head
    trained: number of tokens that the model was trained for
    scale:   factor of the scores before the softmax
    pairs:   whether rotation turns neighbours (2i, 2i + 1) instead of halves (i, i + n / 2)
    window:  number of keys that a row of a local layer sees
    local:   for each layer, whether it is local
    turned:  for each layer, whether its queries and keys are rotated
    caps:    soft caps of scores and of logits; 0 if there is none
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
        """Raises UnsupportedOp for numbers of heads or a width that are not supported."""
        if self.heads % self.kv_heads or self.head % 2:
            raise UnsupportedOp(
                f"{self.heads} query heads and {self.kv_heads} key heads of {self.head} numbers "
                "are not supported",
                architecture=self.name,
            )
