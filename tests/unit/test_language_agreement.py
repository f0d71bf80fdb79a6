"""How logits of two engines are compared: likeliest tokens, divergence, perplexity."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from benchmarks.language.agreement import agreement, perplexity

#: Probabilities 1/2, 1/4, 1/4, and 1/4, 1/2, 1/4, with an offset that must not count.
HALF_FIRST = np.log(np.array([0.5, 0.25, 0.25])) + 3
HALF_SECOND = np.log(np.array([0.25, 0.5, 0.25])) - 2


def test_equal_logits_agree_whatever_their_offset() -> None:
    found = agreement(np.array([HALF_FIRST, HALF_SECOND]), np.array([HALF_FIRST + 5, HALF_SECOND]))
    assert (found.top1, found.gap) == (1.0, 0.0)
    assert found.kl == pytest.approx(0, abs=1e-12)


def test_differing_logits_count_by_token() -> None:
    found = agreement(np.array([HALF_FIRST, HALF_FIRST]), np.array([HALF_FIRST, HALF_SECOND]))
    assert found.top1 == 0.5
    assert found.gap == pytest.approx(log(2))
    assert found.kl == pytest.approx((0.25 * log(0.5) + 0.5 * log(2)) / 2)


def test_perplexity_is_over_the_next_tokens() -> None:
    logits = np.array([HALF_FIRST, HALF_SECOND, HALF_FIRST])
    assert perplexity(logits, [2, 0, 1]) == pytest.approx(exp(-(log(0.5) + log(0.5)) / 2))
