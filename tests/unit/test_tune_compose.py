"""The order of candidates: pure, complete, each once; what the crowd knows comes first."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from node import run

from tilewright.tuning import candidate_order as composing
from tilewright.tuning.candidate_order import (
    KNOWN_MOST,
    KNOWN_SHARE,
    KnownCandidate,
    Pick,
    Tunable,
    asks_gold,
)


def compose(subjects: list[Tunable], seed: int, skip: int = 0) -> tuple[Pick, ...]:
    """The candidates; the end of each kernel comes once, after its last."""
    picks = tuple(composing.compose(subjects, seed, skip))
    for one in subjects:
        own = [p.candidate for p in picks if p.spec == one.spec]
        assert own.count(None) == 1
        assert own[-1] is None
    return tuple(p for p in picks if p.candidate is not None)


def subject(spec: int = 0, count: int = 30, share: float = 1.0, **changes: object) -> Tunable:
    order = tuple(range(1, count))
    plain = Tunable(spec=spec, share=share, lite=count - 1, order=order)
    return replace(plain, **changes)  # type: ignore[arg-type]


@st.composite
def subjects(draw: st.DrawFn) -> list[Tunable]:
    found = []
    for spec in range(draw(st.integers(0, 4))):
        count = draw(st.integers(1, 25))
        order = tuple(draw(st.permutations(range(1, count))))
        numbers = st.integers(0, count - 1)
        known = draw(st.lists(st.builds(KnownCandidate, numbers, st.floats(0.1, 5)), max_size=7))
        found.append(
            Tunable(
                spec=spec,
                share=draw(st.floats(0, 1)),
                lite=draw(st.integers(0, count)),
                order=order,
                known=tuple(known),
                settled=draw(st.booleans()),
                tried=frozenset(draw(st.sets(numbers))),
                gold=draw(st.sampled_from((None, count))),
            )
        )
    return found


@given(subjects(), st.integers(0, 1 << 48))
def test_everything_once_and_nothing_that_was_tried(given_: list[Tunable], seed: int) -> None:
    picks = compose(given_, seed)
    assert picks == compose(given_, seed)
    assert len(set(picks)) == len(picks)
    for one in given_:
        sent = {p.candidate for p in picks if p.spec == one.spec}
        named = dict.fromkeys(k.candidate for k in one.known if k.candidate)
        known = set(list(named)[:KNOWN_MOST])
        may = (set(one.order) | known | {one.gold} - {None}) - one.tried
        assert sent <= may
        assert known - one.tried <= sent
        if not one.settled:
            assert sent == may


@given(subjects(), st.integers(0, 1 << 48), st.data())
def test_a_session_can_be_resumed_anywhere(
    given_: list[Tunable], seed: int, data: st.DataObject
) -> None:
    """What was tried does not come again; all the rest comes, in the same order."""
    picks = compose(given_, seed)
    cut = data.draw(st.integers(0, len(picks)))
    sent = {s.spec: {p.candidate for p in picks[:cut] if p.spec == s.spec} for s in given_}
    resumed = compose([replace(s, tried=s.tried | sent[s.spec]) for s in given_], seed)
    assert resumed == picks[cut:]


@given(subjects(), st.integers(0, 1 << 48), st.integers(0, 120))
def test_what_earlier_visits_are_likely_to_have_tried_comes_last(
    given_: list[Tunable], seed: int, skip: int
) -> None:
    """Nothing is lost by that, and whatever was not tried yet comes in its order."""
    picks, turned = compose(given_, seed), compose(given_, seed, skip)
    assert sorted(turned, key=str) == sorted(picks, key=str)
    places = [picks.index(pick) for pick in turned]
    assert len([n for n, place in enumerate(places[1:]) if place < places[n]]) <= 2


def test_skipping_spares_the_first_but_neither_known_nor_gold() -> None:
    one = subject(0, count=9, known=(KnownCandidate(7, 1.5),), gold=20)
    order = [p.candidate for p in compose([one], 0, skip=4)]
    assert order == [7, 20, 4, 5, 6, 8, 1, 2, 3]


def test_what_others_found_comes_before_what_nobody_knows() -> None:
    cold = subject(0, share=0.6)
    warm = subject(1, share=0.4, known=(KnownCandidate(7, 1.5), KnownCandidate(3, 1.2)))
    picks = compose([cold, warm], 0)
    assert picks[:2] == (Pick(1, 7), Pick(1, 3))


def test_the_hottest_kernel_comes_first_and_most_often() -> None:
    picks = compose([subject(0, share=0.75), subject(1, share=0.25)], 0)
    first = [p.spec for p in picks[:16]]
    assert picks[0] == Pick(0, 1)
    assert first.count(0) == 12
    assert first.count(1) == 4


def test_known_candidates_come_by_what_they_save() -> None:
    little = subject(0, share=0.9, known=(KnownCandidate(4, 1.02),))
    much = subject(1, share=0.1, known=(KnownCandidate(9, 3.0),))
    assert compose([little, much], 0)[:2] == (Pick(1, 9), Pick(0, 4))


def test_a_settled_space_leaves_a_tenth_to_explore() -> None:
    settled = subject(count=101, known=(KnownCandidate(5, 1.4),), settled=True)
    seen: set[int] = set()
    for seed in range(200):
        picks = compose([settled], seed)
        assert picks[0] == Pick(0, 5)
        assert len(picks) == 1 + 100 // KNOWN_SHARE
        seen |= {p.candidate for p in picks}
    assert seen == set(settled.order)  # all devices together look at all of it


def test_a_settled_space_without_a_lite_one_is_explored_as_well() -> None:
    """Attention, softmax, layer norm and products of bytes have none."""
    seen: set[int] = set()
    for seed in range(200):
        picks = compose(
            [subject(count=42, lite=0, known=(KnownCandidate(5, 1.4),), settled=True)], seed
        )
        assert len(picks) == 1 + 5  # a tenth of 41, and what is known
        seen |= {p.candidate for p in picks if p.candidate is not None}
    assert seen == set(range(1, 42))
    assert len(compose([subject(count=3, lite=0, settled=True)], 0)) == 1


def test_the_gold_candidate_comes_early_and_once() -> None:
    picks = compose([subject(gold=30)], 0)
    assert [p.candidate for p in picks[:3]] == [1, 30, 2]
    assert len(picks) == 30
    settled = compose([subject(count=11, gold=11, settled=True)], 0)
    assert 11 in [p.candidate for p in settled]


def test_gold_questions_are_rare() -> None:
    asked = sum(asks_gold(spec, seed) for spec in range(40) for seed in range(40))
    assert 100 < asked < 300
    assert [asks_gold(s, 7) for s in range(99)] == [asks_gold(s, 7) for s in range(99)]


def test_nothing_to_tune() -> None:
    assert compose([], 1) == ()
    assert compose([subject(count=1)], 1) == ()


def test_of_many_known_candidates_the_best_come_first_and_the_rest_is_explored() -> None:
    known = tuple(KnownCandidate(c, 2 - c / 100) for c in range(20, 4, -1))
    picks = compose([subject(known=known)], 0)
    assert [p.candidate for p in picks[:6]] == [20, 19, 18, 17, 16, 1]
    assert len(picks) == 29


def test_a_bundle_with_another_default_may_try_the_compilers() -> None:
    """A relinked bundle starts with a winner; one with a schedule of its own has no number."""
    order = tuple(range(30))
    relinked = compose([subject(order=order, default=7)], 0)
    assert relinked[0] == Pick(0, 0)
    assert {p.candidate for p in relinked} == set(order) - {7}
    foreign = compose([subject(order=order, default=None)], 0)
    assert {p.candidate for p in foreign} == set(order)


def test_the_compilers_own_comes_first_where_a_bundle_has_another() -> None:
    """Settled or not: devices judge what they were given by it."""
    known = (KnownCandidate(7, 1.5), KnownCandidate(5, 1.2))
    for settled in (False, True):
        one = subject(default=7, known=known, settled=settled)
        assert [p.candidate for p in compose([one], 1)][:2] == [0, 5]
        tried = replace(one, tried=frozenset({0}))
        assert 0 not in [p.candidate for p in compose([tried], 1)]
    assert 0 not in [p.candidate for p in compose([subject(known=known)], 1)]


def test_what_others_found_must_serve_this_devices_objective() -> None:
    """Another objective has other candidates that may be tried; the compiler's own always may."""
    known = (KnownCandidate(9, 2.0), KnownCandidate(4, 1.5), KnownCandidate(0, 1.0))
    one = subject(order=(0, 3, 4), default=7, known=known)
    assert [p.candidate for p in compose([one], 0)] == [0, 4, 3]


ALONE = """
const { inOrder } = await import('TUNE/loop/candidate_order.js');
const found = <asked>.map(([kernels, hello]) => inOrder(kernels, hello));
const plain = found.map((all) => all.map(({ spec, candidate }) => [spec, candidate]));
console.log(JSON.stringify(plain));
"""


def alone(rng: Random, shares: bool, defaults: tuple[int | None, ...]) -> list[Tunable]:
    """Kernels of which nobody reported; shares are of 1/1024, whose sums are exact."""
    found = []
    for number, spec in enumerate(rng.sample(range(20), rng.randrange(7))):
        count, default = rng.randrange(1, 30), rng.choice(defaults)
        order = tuple(c for c in rng.sample(range(1, count), count - 1) if c != default)
        one = subject(
            spec, share=rng.randrange(300) / 1024 if shares else 1 / (number + 1),
            order=(0, *order), default=default,
            tried=frozenset(rng.sample(range(count), rng.randrange(count))),
        )  # fmt: skip
        found.append(one)
    return found


@pytest.mark.parametrize("defaults", [(0,), (0, 3, None)], ids=["built", "relinked"])
@pytest.mark.parametrize("shares", [True, False])
def test_who_has_no_server_tries_in_the_same_order(
    shares: bool, defaults: tuple[int | None, ...]
) -> None:
    """candidate_order.js: runs of four, and the compiler's own first where a bundle has another."""
    rng = Random(f"{shares} {defaults}")
    cases = [alone(rng, shares, defaults) for _ in range(30)]
    assert sum(len(case) > 3 for case in cases) > 5
    asked = [
        (
            [{"spec": s.spec, "order": s.order if s.default != 0 else s.order[1:]} for s in case],
            {
                "specs": [s.spec for s in case],
                "shares": [s.share for s in case] if shares else [],
                "tried": {s.spec: sorted(s.tried) for s in case},
            },
        )
        for case in cases
    ]
    wanted = [[[p.spec, p.candidate] for p in compose(case, 0)] for case in cases]
    assert run(ALONE, asked=asked) == wanted
