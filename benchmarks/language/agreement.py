"""How far the logits of two engines are apart on one text.

Input: logits of every token, the ids of the text.  Output: `Agreement`, `perplexity`.  It runs no
engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.numpy_scalars import Array


@dataclass(frozen=True)
class Agreement:
    """One engine's logits against another's, over all tokens.

    top1: share of tokens after which both hold the same token for the likeliest
    kl:   mean Kullback-Leibler divergence from the other engine's probabilities, in nats
    gap:  of the tokens after which they differ: the most that the other engine's likeliest logit
          is above its logit of this engine's choice; 0 if they never differ
    """

    top1: float
    kl: float
    gap: float


def agreement(found: Array, wanted: Array) -> Agreement:
    """Of logits [tokens, words]."""
    same, gap, divergence = 0, 0.0, 0.0
    for ours, theirs in zip(found, wanted, strict=True):
        one, other = int(ours.argmax()), int(theirs.argmax())
        same += one == other
        gap = max(gap, float(theirs[other] - theirs[one]))
        p, q = _logs(theirs), _logs(ours)
        divergence += float((np.exp(p) * (p - q)).sum())
    return Agreement(same / len(wanted), divergence / len(wanted), gap)


def perplexity(logits: Array, ids: Sequence[int]) -> float:
    """exp of the mean negative logarithm of each next token's probability."""
    pairs = zip(logits[:-1], ids[1:], strict=True)
    return float(np.exp(-np.mean([_logs(row)[token] for row, token in pairs])))


def _logs(row: Array) -> Array:
    """Logarithms of the probabilities."""
    row = row.astype(np.float64)
    row = row - row.max()
    return np.asarray(row - np.log(np.exp(row).sum()))
