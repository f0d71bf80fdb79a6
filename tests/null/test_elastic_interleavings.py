"""The elastic form's protocols in all interleavings of a few workers: exactly once, no deadlock.

The models are tests/helpers/interleavings.py and plan_interleavings.py; that kernels follow them is
checked by running them (test_cuda_elastic.py, test_cuda_whole.py).
"""

from __future__ import annotations

from typing import get_args

import pytest
from helpers.interleavings import Mistake, Model, Wrong
from helpers.plan_interleavings import PlanMistake, PlanModel

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


#: Workers, tiles, chunks, launches, budgets that are written, and how often in a launch.
PLANS = [(2, 1, 2, 2, (0, 1, 2), 2), (2, 2, 1, 2, (0, 1), 1)]
LARGE_PLANS = [(2, 2, 2, 2, (0, 1, 2), 2)]


def _plan(
    workers: int, tiles: int, chunks: int, launches: int, lower: tuple[int, ...], writes: int,
    steps: int = 2, mistake: str = "",
) -> PlanModel:  # fmt: skip
    return PlanModel(workers, tiles, chunks, launches, lower, mistake, steps, writes)


@pytest.mark.parametrize(
    "sizes",
    [*PLANS, *(pytest.param(s, marks=pytest.mark.nightly) for s in LARGE_PLANS)],
    ids=str,
)
def test_one_kernel_of_all_steps_computes_every_chunk_exactly_once(
    sizes: tuple[int, int, int, int, tuple[int, ...], int],
) -> None:
    assert _plan(*sizes).explore() > 10_000


@pytest.mark.parametrize("mistake", get_args(PlanMistake))
def test_a_mistake_between_steps_is_found(mistake: str) -> None:
    with pytest.raises(Wrong, match=r"begin · "):
        _plan(2, 2, 2, 2, (0, 1), 1, mistake=mistake).explore()


@pytest.mark.nightly
@pytest.mark.parametrize("mistake", [m for m in get_args(Mistake) if m])
def test_a_mistake_within_a_step_is_found(mistake: str) -> None:
    with pytest.raises(Wrong, match=r"begin · "):
        _plan(2, 3, 2, 3, (0, 1), 1, steps=1, mistake=mistake).explore()
