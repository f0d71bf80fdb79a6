"""Colluding liars against a real server, over sockets: benchmarks/serving/liars.py, smaller."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from tuning_site import bundle
from tuning_votes import site

from benchmarks.serving import liars
from tilewright.server import async_store


@pytest.mark.parametrize(
    ("share", "tactic", "voices"), [(0.4, "first", 90), (0.2, "mixed", 60)], ids=["40%", "20%"]
)
def test_no_bad_default_survives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, share: float, tactic: str, voices: int
) -> None:
    """Not even if all liars come first, know the protocol, and then refute what is good."""
    monkeypatch.setattr(async_store, "FRESH", 0.0)
    crowd = liars.crowd_of(bundle(), "m")
    with site(f"sqlite:///{tmp_path / 'store.db'}") as server:
        work = liars.attacks(server.url, crowd, 3, voices=voices, share=share, tactic=tactic)
        found = asyncio.run(work)
    assert (found["keys"], found["liars"]) == (3, round(voices * share))
    assert found["bad"] == 0


def test_the_liars_are_as_many_as_said() -> None:
    chance = random.Random(1)
    for tactic in liars.TACTICS:
        who = liars.liars_of(tactic, 60, 0.4, chance)
        assert (len(who), sum(who)) == (60, 24)
        if tactic != "mixed":
            assert not any(who[30:]), "the last half is honest"
