"""The elastic form's protocol in all interleavings of a few workers: exactly once, no deadlock, and
one launch that nobody disturbs leaves nothing.

The model is tests/helpers/interleavings.py; that kernels follow it is checked by running them
(test_cuda_elastic.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from helpers.interleavings import Mistake, Model, Wrong

#: Three tiles: two first ones and a ticket.  Two tiles: no tickets.  One chunk: left between tiles.
SMALL = [
    Model(2, 3, 2),
    Model(2, 2, 2, launches=3, lower=(0, 1)),
    Model(2, 3, 1, launches=3, lower=(0, 1)),
    # a tile that was drawn draws the next one
    Model(2, 5, 1),
    # launches of fewer workers; of the last one nothing is left
    Model(2, 3, 2, blocks=(1, 2)),
    Model(2, 3, 2, blocks=(2, 1)),
    Model(2, 2, 1, launches=3, lower=(0, 1), blocks=(2, 1, 1)),
    Model(3, 3, 1, blocks=(3, 2)),
    # the second kernel's turn comes when the first is complete; both have the same claims
    Model(2, 2, 1, launches=3, lower=(0, 1), kernels=2),
    Model(2, 2, 2, kernels=2),
    Model(2, 3, 2, lower=(1,), blocks=(2, 1), kernels=2),
    # the budget falls and rises again
    Model(2, 3, 2, lower=(1,), writes=2),
    Model(2, 3, 1, lower=(0, 1), writes=2),
    # the budget as it was when the tile began
    Model(2, 3, 1, launches=3, lower=(0, 1), patient=True),
    Model(2, 4, 1, lower=(0, 1), writes=2, patient=True),
    Model(3, 3, 1, blocks=(3, 2), patient=True),
]
LARGE = [
    Model(2, 3, 3, launches=3, lower=(0, 1)),
    Model(2, 4, 2, launches=3, lower=(0, 1)),
    Model(3, 3, 1, launches=2, lower=(0, 1)),
    Model(2, 3, 2, launches=3, lower=(0, 1), kernels=2),
]


@pytest.mark.seldom(4)
@pytest.mark.parametrize(
    "model", [*SMALL, *(pytest.param(m, marks=pytest.mark.nightly) for m in LARGE)], ids=str
)
def test_every_chunk_is_computed_exactly_once(model: Model) -> None:
    assert model.explore() > 500


def test_one_worker_has_few_states() -> None:
    """The model has no choice where there is none: it walks, it does not jump."""
    assert Model(1, 2, 2, launches=1).explore() < 40


#: Where each mistake is found.
FOUND: dict[Mistake, Model] = {
    "claims without comparing": Model(2, 2, 1, blocks=(1, 2)),
    "keeps the claim that it does not need": Model(2, 2, 1),
    "gives back nothing instead of the older claim": Model(2, 2, 1, kernels=2),
    "does not look for first tiles": Model(2, 2, 1, blocks=(2, 1)),
    "asks nobody though workers are missing": Model(2, 2, 1, blocks=(2, 1)),
    "asks nobody after a tile that was left": Model(2, 2, 2),
}


@pytest.mark.parametrize("mistake", [m for m in get_args(Mistake) if m])
def test_a_mistake_is_found(mistake: Mistake) -> None:
    model = FOUND.get(mistake, Model(2, 3, 2, launches=3))
    with pytest.raises(Wrong, match=r"begin · "):
        replace(model, mistake=mistake).explore()
