"""The vote as pure functions: robust figures, thresholds, stages, and liars up to a third."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from helpers.seeds import seeds
from hypothesis import given
from hypothesis import strategies as st

from tilewright.store import StoredVote, Thresholds
from tilewright.store.votes import (
    WEIGHTS,
    Staged,
    Stages,
    Voice,
    advance,
    contradicted,
    prefer,
    refuted,
    robust,
    share,
    tally,
    winner,
)

LIMITS = Thresholds()
GOOD = {3: 1.5, 4: 1.4}


def voices(
    *tops: dict[int, float], day: int = 0, first: int = 1, asked: bool = True
) -> list[Voice]:
    found = []
    for number, top in enumerate(tops, first):
        votes = sorted((StoredVote(c, r) for c, r in top.items()), key=lambda v: -v.ratio)
        found.append(Voice(number, day, tuple(votes), tuple(votes) if asked else ()))
    return found


def step(state: Stages, given_voices: list[Voice], limits: Thresholds = LIMITS) -> Stages:
    return advance(state, given_voices, tally(given_voices), limits)


def best(given_voices: list[Voice]) -> int | None:
    found = winner(given_voices, tally(given_voices), LIMITS)
    return found and found.candidate


def test_a_ballot_has_the_bundles_default_in_its_place() -> None:
    (voice,) = voices({7: 1.4, 3: 0.9})
    assert voice.ballot == {7: 0, 0: 1, 3: 2}
    (voice,) = voices({c: 1 + c / 10 for c in range(1, 6)})
    assert voice.ballot == {5: 0, 4: 1, 3: 2, 2: 3, 1: 4, 0: 5}
    (voice,) = voices({})
    assert voice.ballot == {0: 0}


def test_scores_are_rank_weights() -> None:
    found = tally(voices({3: 1.5, 4: 1.4}, {4: 1.5, 3: 1.4}, {3: 1.2}))
    scores = {t.candidate: t.score for t in found}
    assert scores[3] == pytest.approx((WEIGHTS[0] * 2 + WEIGHTS[1]) / 3)
    assert scores[4] == pytest.approx((WEIGHTS[0] + WEIGHTS[1]) / 3)
    assert scores[0] == pytest.approx((WEIGHTS[2] * 2 + WEIGHTS[1]) / 3)
    assert [t.candidate for t in found] == [3, 0, 4]
    assert {t.candidate: t.reporters for t in found} == {3: 3, 0: 3, 4: 2}


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=60))
def test_robust_lies_within_the_values(ratios: list[float]) -> None:
    ratio, low, high = robust(ratios)
    assert min(ratios) * 0.999 <= ratio <= max(ratios) * 1.001
    assert low <= ratio * 1.0001
    assert high >= ratio * 0.9999


@given(st.lists(st.floats(0.9, 1.1), min_size=20, max_size=40), st.floats(0.001, 1000))
def test_robust_cannot_be_moved_by_a_fifth(ratios: list[float], lie: float) -> None:
    lied = ratios + [lie] * (len(ratios) // 5)
    assert 0.9 * 0.999 <= robust(lied)[0] <= 1.1 * 1.001 or 0.9 <= lie <= 1.1


def test_the_interval_of_ratios_covers_the_truth() -> None:
    """A 95 % interval that is made for medians holds at least nine times in ten."""
    chance = random.Random(1)
    held = 0
    for _ in range(400):
        _, low, high = robust([math.exp(chance.gauss(0.3, 0.1)) for _ in range(25)])
        held += low <= math.exp(0.3) <= high
    assert held > 360


@pytest.mark.parametrize(
    ("count", "total", "low", "high"),
    # Wilson's interval, worked out by hand.
    [(0, 0, 0, 1), (5, 5, 0.5655, 1.0), (3, 5, 0.2307, 0.8824), (50, 100, 0.4038, 0.5962)],
)
def test_intervals_of_shares(count: int, total: int, low: float, high: float) -> None:
    assert share(count, total) == pytest.approx((low, high), abs=1e-4)


def test_prefer() -> None:
    given_voices = voices({3: 1.5, 4: 1.4}, {4: 1.5, 3: 1.4}, {3: 1.2}, {})
    assert prefer(given_voices, 3, 4) == (2, 1)
    assert prefer(given_voices, 4, 3) == (1, 2)
    assert prefer(given_voices, 0, 3) == (1, 3)
    assert prefer(given_voices, 8, 9) == (0, 0)


def test_fewer_than_a_quorum_say_nothing() -> None:
    assert best(voices(*[GOOD] * 4)) is None
    assert best(voices(*[GOOD] * 5)) == 3
    spread = [v for day in range(9) for v in voices(GOOD, GOOD, day=day, first=2 * day + 1)]
    assert best(spread) is None, "never three on one day"


def test_nobody_wins_without_more_than_a_third() -> None:
    scattered = voices(*[{c: 1.5} for c in range(1, 31)] * 3)
    assert best(scattered) == 0
    high = {10: 1.9, 11: 1.8, 12: 1.7, 13: 1.6}
    assert best(voices(*[{1: 3.0} | high] * 30, *[{2: 1.5} | high] * 70)) == 10


@pytest.mark.parametrize("liars", [0.2, 0.3])
@pytest.mark.parametrize("trick", ["alone", "copy", "lift"])
def test_liars_do_not_choose(liars: float, trick: str) -> None:
    honest = {1: 1.5, 2: 1.4, 3: 1.3, 4: 1.2, 5: 1.1}
    lie = {
        "alone": {9: 3.0},
        "copy": honest | {9: 3.0},
        "lift": {5: 3.0, 6: 1.4, 7: 1.3, 8: 1.2, 9: 1.1},
    }[trick]
    lie = dict(sorted(lie.items(), key=lambda v: -v[1])[:5])
    count = round(100 * liars)
    crowd = voices(*[lie] * count, *[honest] * (100 - count))
    assert best(crowd) == 1
    assert best(crowd[::-1]) == 1


def test_stages_need_fresh_voices() -> None:
    crowd = voices(*[GOOD] * 15)
    shadow = step(Stages(), crowd[:5])
    assert shadow == Stages(shadow=Staged(3, 5))
    assert step(shadow, crowd[:14]) == shadow
    assert step(shadow, crowd) == Stages(default=Staged(3, 15))


def test_a_trial_counts_only_those_that_were_asked() -> None:
    shadow = Stages(shadow=Staged(3, 0))
    assert step(shadow, voices(*[GOOD] * 60, asked=False)) == shadow
    nine = [*voices(*[GOOD] * 9), *voices(*[GOOD] * 50, first=10, asked=False)]
    assert step(shadow, nine) == shadow
    ten = [*nine, *voices(GOOD, first=60)]
    assert step(shadow, ten).default == Staged(3, 60)


def test_more_traffic_asks_for_more_answers() -> None:
    crowd = voices(*[GOOD] * 360, asked=False)
    state = Stages(shadow=Staged(3, 360))
    more = [*crowd, *voices(*[GOOD] * 17, first=361)]
    assert step(state, more) == state
    assert step(state, [*more, *voices(GOOD, first=378)]).default == Staged(3, 378)


@pytest.mark.parametrize(("fast", "slow", "passes"), [(10, 0, True), (9, 1, False), (15, 3, True)])
def test_a_trial_needs_a_clear_majority(fast: int, slow: int, passes: bool) -> None:
    """Which two fifths of liars do not have, nor one that is just 1 % faster on the median."""
    crowd = voices(*[GOOD] * fast, *[{3: 0.8, 4: 1.4}] * slow)
    assert (step(Stages(shadow=Staged(3, 0)), crowd).default is not None) == passes
    barely = voices(*[{3: 1.01}] * 30)
    assert step(Stages(shadow=Staged(3, 0)), barely).default is None


def test_a_shadow_that_most_measure_slower_falls_and_is_not_tried_again() -> None:
    """Liars go on naming it; honest devices that were asked found it slow."""
    lie, honest = {9: 3.0}, {9: 0.7, 4: 1.4}
    crowd = voices(*[lie, lie, honest, honest, honest] * 10)
    state = step(Stages(shadow=Staged(9, 0)), crowd)
    assert (state.default, state.shadow) == (None, Staged(4, 50))
    unheard = voices(*[lie] * 40, first=51, asked=False)
    assert step(Stages(), [*crowd[:20], *unheard]).shadow is None


def test_old_answers_and_new_ones_must_both_pass() -> None:
    """A default that fell cannot come back by the answers that made it, nor without them."""
    lie, honest = {9: 3.0}, {9: 0.7}
    crowd = voices(*[lie] * 30, *[honest] * 8)
    assert step(Stages(shadow=Staged(9, 38)), crowd).default is None
    silent = voices(*[lie] * 40, first=39, asked=False)
    assert step(Stages(shadow=Staged(9, 38)), [*crowd, *silent]).default is None
    slow = voices(*[honest] * 20, *[lie] * 12)
    assert step(Stages(shadow=Staged(9, 20)), slow).default is None


@pytest.mark.parametrize(("proven", "needed"), [(False, 8), (True, 4)])
def test_a_default_falls_after_few_refutations(proven: bool, needed: int) -> None:
    praise = voices(*[{9: 3.0}] * 50)
    state = Stages(default=Staged(9, 0))
    told = voices(*[{9: 0.7, 4: 1.4}] * needed, first=51)
    told = [replace(voice, proven=proven) for voice in told]
    assert step(state, [*praise, *told[:-1]]).default == Staged(9, 0), "praise is not saved up"
    assert step(state, [*praise, *told]).default is None


def test_a_fifth_of_liars_does_not_end_a_default_soon() -> None:
    chance = random.Random(1)
    crowd = voices(*[{3: 0.7} if chance.random() < 0.2 else GOOD for _ in range(300)])
    assert not refuted(3, crowd, LIMITS)


def test_a_default_does_not_fall_to_an_unfit_one() -> None:
    crowd = voices(*[{4: 0.8}] * 6, *[{3: 0.7}] * 8)
    assert step(Stages(default=Staged(3, 6), previous=4), crowd).default is None
    assert step(Stages(default=Staged(3, 6), previous=5), crowd).default == Staged(5, 14)


def test_a_shadow_that_is_not_confirmed_falls() -> None:
    crowd = voices(*[GOOD] * 5, *[{4: 1.4}] * 12)
    state = step(Stages(shadow=Staged(3, 5)), crowd)
    assert state.shadow is None or state.shadow.candidate != 3


def test_an_undecided_shadow_is_given_up() -> None:
    crowd = voices(*[GOOD, {4: 1.4}, {}] * 70)
    state = Stages(shadow=Staged(7, 0))
    undecided = voices(*([{7: 1.1, 4: 1.5}] + [{4: 1.5}] * 2) * 10)
    assert step(state, undecided).shadow == Staged(7, 0)
    assert step(state, crowd).shadow != Staged(7, 0)


def test_a_default_falls_to_the_one_before() -> None:
    crowd = voices(*[GOOD] * 10, *[{4: 1.4, 3: 0.8}] * 20)
    state = step(Stages(default=Staged(3, 10), previous=4), crowd)
    assert (state.default, state.previous) == (Staged(4, 30), None)
    assert step(Stages(default=Staged(3, 10)), crowd).default is None


def test_what_is_not_faster_than_the_bundle_is_not_promoted() -> None:
    assert step(Stages(), voices(*[{3: 1.01}] * 50)) == Stages()
    assert step(Stages(), voices(*[{3: 0.9}] * 50)) == Stages()
    assert step(Stages(), voices(*[{}] * 50)) == Stages()


def test_a_better_one_replaces_the_default_only_with_a_majority() -> None:
    state = Stages(default=Staged(3, 0))
    even = voices(*[{3: 1.5, 4: 1.49}] * 20, *[{4: 1.5, 3: 1.49}] * 24)
    assert step(state, even) == state
    clear = voices(*[{3: 1.5, 4: 1.49}] * 20, *[{4: 1.5, 3: 1.49}] * 80)
    assert step(state, clear).shadow == Staged(4, 100)


def test_contradiction_is_more_than_chance() -> None:
    assert not contradicted(3, voices(*[{}] * 4), LIMITS)
    assert contradicted(3, voices(*[{}] * 20), LIMITS)
    assert contradicted(3, voices(*[{3: 0.9}] * 20), LIMITS)
    assert not contradicted(3, voices(*[{3: 1.2}] * 12, *[{}] * 8), LIMITS)


@pytest.mark.parametrize("seed", seeds(30))
def test_order_of_candidates_does_not_matter(seed: int) -> None:
    """Renaming candidates renames the winner: no number is preferred."""
    chance = random.Random(seed)
    truth = {c: chance.uniform(0.8, 1.6) for c in range(1, 12)}
    names = [0, *chance.sample(range(1, 12), 11)]
    tops = []
    for _ in range(40):
        found = {c: r * math.exp(chance.gauss(0, 0.03)) for c, r in truth.items()}
        tops.append(dict(sorted(found.items(), key=lambda v: -v[1])[:5]))
    renamed = [{names[c]: r for c, r in top.items()} for top in tops]
    plain, other = best(voices(*tops)), best(voices(*renamed))
    assert plain is not None
    assert other == names[plain]
