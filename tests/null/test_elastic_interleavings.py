"""The elastic form's protocol in all interleavings of a few workers: exactly once, no deadlock.

The model is tests/helpers/interleavings.py; that kernels follow it is checked by running them
(test_cuda_elastic.py).
"""

from __future__ import annotations

from typing import get_args

import pytest
from helpers.interleavings import Mistake, Model, Wrong

#: Workers, tiles, chunks, launches, budgets that are written while one runs.
SMALL = [
    (2, 3, 2, 2, (0,)),
    (2, 2, 2, 3, (0, 1)),
]
LARGE = [
    (2, 3, 3, 3, (0, 1)),
    (3, 3, 2, 2, (0, 1)),
]


@pytest.mark.parametrize(
    "sizes", [*SMALL, *(pytest.param(s, marks=pytest.mark.nightly) for s in LARGE)], ids=str
)
def test_every_chunk_is_computed_exactly_once(
    sizes: tuple[int, int, int, int, tuple[int, ...]],
) -> None:
    assert Model(*sizes).explore() > 10_000


def test_one_worker_has_few_states() -> None:
    """The model has no choice where there is none: it walks, it does not jump."""
    assert Model(1, 2, 2, launches=1).explore() < 40


@pytest.mark.parametrize("mistake", [m for m in get_args(Mistake) if m])
def test_a_mistake_is_found(mistake: Mistake) -> None:
    with pytest.raises(Wrong, match=r"begin · "):
        Model(2, 3, 2, launches=3, mistake=mistake).explore()
