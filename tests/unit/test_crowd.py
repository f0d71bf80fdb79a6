"""A small simulated crowd; benchmarks/serving/crowd.py has the large one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.serving import crowd
from benchmarks.serving.crowd_devices import MARGIN, compare


@pytest.mark.parametrize("scenario", ["honest", "swap", "early"])
def test_the_honest_winner_becomes_the_default(scenario: str, tmp_path: Path) -> None:
    found = crowd.run_class(tmp_path, scenario, 0, seed=1, clients=200, kernels=2)
    assert found.ours.within == found.keys == 2
    assert found.ours.bad == 0
    assert found.counts.adopted > 100
    assert found.counts.adopted_wrong == 0
    assert found.counts.worst >= 0.99


@pytest.mark.parametrize(("scenario", "share"), [("spread", 0.2), ("early", 0.4)])
def test_no_bad_default_stays(scenario: str, share: float, tmp_path: Path) -> None:
    found = crowd.run_class(tmp_path, scenario, 0, 1, clients=150, kernels=1, malicious=share)
    assert found.ours.bad == 0


@pytest.mark.seldom(4)
def test_without_the_guards_liars_would_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulated liars are no straw men: plain rank weights follow them."""
    from tilewright.store import votes

    monkeypatch.setattr(votes, "WEIGHTS", (1.0, 0.1, 0.05, 0.02, 0.01, 0.0))
    monkeypatch.setattr(votes, "winner", lambda _voices, tallies, _limits: tallies[0])
    monkeypatch.setattr(votes, "contradicted", lambda *_: False)
    monkeypatch.setattr(votes, "confirmed", lambda *_: True)
    monkeypatch.setattr(votes, "refuted", lambda *_: False)
    found = crowd.run_class(tmp_path, "early", 0, seed=1, clients=120, kernels=3)
    assert found.ours.bad > 0


@pytest.mark.seldom(4)
def test_the_papers_vote_follows_liars_who_come_first(tmp_path: Path) -> None:
    found = crowd.run_class(tmp_path, "early", 0, 1, clients=100, kernels=4, malicious=0.45)
    assert found.paper.bad > 1
    assert found.ours.bad == 0


def test_trials_of_equal_kernels_are_almost_never_won() -> None:
    random = np.random.default_rng(1)
    equal, loud = np.zeros(4000), np.arange(4000) % 3 == 0
    _, low, high = compare(random, equal, loud, MARGIN)
    assert (low > MARGIN).mean() < 0.02
    assert (low <= high).all()
    faster = np.full(4000, np.log(1.2))
    _, low, _ = compare(random, faster, ~loud, MARGIN)
    assert (low > MARGIN).mean() > 0.6
