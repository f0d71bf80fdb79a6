"""How likely a model found the tokens of an answer.

Input: logits, ids.  Output: natural logarithms of probabilities.  They are those of the model
itself: before temperature, penalties, biases and whatever else limits the choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.numpy_scalars import Array
from tilewright.language.vocabulary import Vocabulary

#: Told instead of the logarithm of 0, which JSON does not have.
LEAST = -9999.0


@dataclass(frozen=True)
class TokenLogprob:
    """id, name, piece: of a token; a control token has no bytes
    logprob: how likely it was;  top: the likeliest tokens in its place, the likeliest first
    """

    id: int
    name: str
    piece: bytes
    logprob: float
    top: Sequence[TokenLogprob] = ()


def token_logprob(logits: Array, token: int, top: int, known: Vocabulary) -> TokenLogprob:
    """Of the token that was chosen, with the `top` likeliest ones."""
    values = logits.astype(np.float64)
    values -= values.max()
    values = np.maximum(values - np.log(np.exp(values).sum()), LEAST)
    first = np.argsort(-values, kind="stable")[:top] if top else np.zeros(0, np.int64)

    def told(each: int, others: Sequence[TokenLogprob] = ()) -> TokenLogprob:
        value = float(values[each])
        return TokenLogprob(each, known.name(each), known.piece(each), value, others)

    return told(token, [told(each) for each in first.tolist()])
