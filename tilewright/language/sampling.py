"""Which token comes next: greedy, or drawn at random from the likeliest ones.

Input: logits, the ids so far.  Output: an id.  A seed draws the same tokens everywhere:
web/language/sampling.js has the same generator of random numbers, and the same roundings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.base.errors import InvalidModel, UsageError
from tilewright.base.numpy_scalars import Array


@dataclass(frozen=True)
class Sampling:
    """temperature: 0 takes the likeliest token;  top_k: the number of likeliest tokens to choose
    from, 0: all
    top_p: of these, the fewest likeliest tokens whose probabilities add up to this
    min_p: of these, tokens with at least this share of the likeliest token's probability
    penalty, recent: logits of tokens among the last `recent` are divided by it, negative logits
        multiplied
    frequency_penalty: is subtracted from a token's logit for each time that the answer has it
    presence_penalty: is subtracted once from logits of tokens that the answer has
    logit_bias: what is added to logits, by id, after all penalties
    """

    temperature: float = 0.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    penalty: float = 1.0
    recent: int = 64
    seed: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises UsageError."""
        shares = 0 < self.top_p <= 1 and 0 <= self.min_p <= 1
        # in this form NaN is refused, too
        if not (self.temperature >= 0 and self.top_k >= 0 and self.penalty > 0 and shares):
            raise UsageError(
                "these settings cannot choose a token",
                hint="Temperature and top-k are 0 or more, the penalty is above 0, top-p and min-p "
                "are probabilities",
            )
        added = (self.frequency_penalty, self.presence_penalty, *self.logit_bias.values())
        if not all(map(math.isfinite, added)):
            raise UsageError(
                "the frequency penalty, the presence penalty and biases must be finite numbers",
                hint="A bias of -100 bans a token, one of 100 forces it",
            )

    def check_ids(self, words: int) -> None:
        """Raises UsageError for a bias of an id that a model of so many words does not have."""
        for token in self.logit_bias:
            if not (isinstance(token, int) and 0 <= token < words):
                raise UsageError(
                    f"logit_bias names the token {token!r}, and the model has {words}",
                    hint="Ids count from 0; an answer's `ids` has those of its tokens",
                    option="logit_bias",
                )


class Sampler:
    """Chooses one id after the other, of one answer."""

    def __init__(self, choice: Sampling) -> None:
        self._choice = choice
        self._random = Mulberry32(choice.seed)
        self._counts: Counter[int] = Counter()
        self._bias = _table(choice.logit_bias)

    def __call__(self, logits: Array, ids: Sequence[int], allowed: Array | None = None) -> int:
        """ids: the text so far, prompt and answer;  allowed: which tokens may come, None: all

        Raises InvalidModel for logits that are not numbers.
        """
        if np.isnan(logits).any():
            raise InvalidModel(
                "the model computes logits that are not numbers",
                hint="Its weights or settings are damaged, or their sums exceed f32",
            )
        values = self._adjusted(logits.astype(np.float64), ids)
        if allowed is not None:
            values[~allowed] = -np.inf
        token = self._chosen(values)
        self._counts[token] += 1
        return token

    def _adjusted(self, values: Array, ids: Sequence[int]) -> Array:
        c = self._choice
        values = _penalised(values, ids[-c.recent :] if c.recent else (), c.penalty)
        if self._counts and (c.frequency_penalty or c.presence_penalty):
            at, counts = _table(self._counts)
            values[at] -= counts * c.frequency_penalty + c.presence_penalty
        at, bias = self._bias
        values[at] += bias
        return values

    def _chosen(self, values: Array) -> int:
        c = self._choice
        if c.temperature == 0:
            return int(np.argmax(values))
        order = np.argsort(-values, kind="stable")[: c.top_k or None]
        shares = _softmax(values[order])
        kept = max(1, int(np.searchsorted(np.cumsum(shares), c.top_p)) + 1)
        order, shares = order[:kept], shares[:kept]
        order = order[shares >= c.min_p * shares[0]]
        with np.errstate(over="ignore"):  # the power of -inf is 0
            below = (values[order] - values[order[0]]) / c.temperature
        sums = np.cumsum(_softmax(below))
        place = int(np.searchsorted(sums, self._random.next() * sums[-1], side="right"))
        return int(order[min(place, len(order) - 1)])


def _table(numbers: Mapping[int, float]) -> tuple[Array, Array]:
    """Ids, and a number for each."""
    return np.array([*numbers], np.int64), np.array([*numbers.values()], np.float64)


class Mulberry32:
    """mulberry32: a number in [0, 1) from 32 bits of state."""

    def __init__(self, seed: int) -> None:
        self._state = seed & 0xFFFFFFFF

    def next(self) -> float:
        self._state = (self._state + 0x6D2B79F5) & 0xFFFFFFFF
        t = self._state
        t = ((t ^ t >> 15) * (t | 1)) & 0xFFFFFFFF
        t ^= (t + ((t ^ t >> 7) * (t | 61) & 0xFFFFFFFF)) & 0xFFFFFFFF
        return ((t ^ t >> 14) & 0xFFFFFFFF) / 2**32


def _penalised(values: Array, ids: Sequence[int], penalty: float) -> Array:
    if penalty != 1 and len(ids):
        at = np.unique(np.asarray(ids))
        values[at] = np.where(values[at] > 0, values[at] / penalty, values[at] * penalty)
    return values


#: log2(e), and ln(2) in two parts, of which the first has few digits.
LOG2E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
#: The power of a smaller number is 0.
LEAST = -485.0


def _softmax(values: Array) -> Array:
    """Adds up from the first to the last, as NumPy's `sum` does not."""
    powers = _exp(values - values.max())
    return np.asarray(powers / np.cumsum(powers)[-1])


def _exp(values: Array) -> Array:
    """exp of numbers <= 0, by sums and products alone: JavaScript's own function rounds
    differently from NumPy's."""
    bounded = np.maximum(values, LEAST - 1)
    twos = np.floor(bounded * LOG2E + 0.5)
    rest = (bounded - twos * LN2_HIGH) - twos * LN2_LOW
    sums = np.zeros_like(rest)
    for n in range(13, -1, -1):
        sums = sums * rest + 1 / math.factorial(n)
    return np.where(values >= LEAST, np.ldexp(sums, twos.astype(np.int64)), 0.0)
