"""What a session's trials teach, and which candidate is tried next (web/tune/loop/forecast.js), in
Node: kernels are numbers."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from node import run

#: A session without an engine, as `rounds` of tuner.js leads it.  A candidate's speed is the
#: product of its choices', over that of the bundle's own kernel.  It answers with the trials in
#: order, and with how many candidates had been asked for at each.
SESSION = """
const { openForecast } = await import('TUNE/loop/forecast.js');
const [speeds, lists, objective, gold, count, winner, own, shares, milliseconds] = <asked>;
const speedOf = (schedule) => (
  schedule.split(' ').slice(1).reduce((product, one) => product * (speeds[one] ?? 1), 1));
const offer = { checksum: 'same', gold, count, schedule: own };
const offers = new Map(lists.map((_, spec) => [spec, offer]));
const ledger = { offers, winner: () => winner ?? undefined, unknown: () => false };
const shareOf = (spec) => shares[spec];
const forecast = openForecast({ ledger, objective, effects: new Map(), shareOf });
const line = lists.flatMap((list, spec) => list.map((schedule, n) => (
  { header: { spec, candidate: n + 1, schedule, checksum: 'same' }, milliseconds })));
const [trials, asked, all] = [[], [], line.length];
for (let dry = false; ;) {
  const peeked = forecast.peek();
  const next = forecast.next(dry);
  if (next) {
    if (next !== peeked) throw new Error('another one than `peek` said');
    const { spec, candidate, schedule } = next.header;
    trials.push([spec, candidate]);
    asked.push(all - line.length);
    forecast.learn(next.header, speedOf(schedule) / (own ? speedOf(own) : 1));
  } else if (line.length) forecast.take(line.shift());
  else if (dry) break;
  else dry = true;
}
if (lists.some((_, spec) => forecast.holds(spec))) throw new Error('something is still in hand');
console.log(JSON.stringify([trials, asked]));
"""

#: Two kernels; every second candidate has one step to a pass, the others eight.
CHOICES = list(product((2, 4, 6), ("mn", "nm"), (8, 1)))
LISTS = [[f"contraction x0={x} r0={r} order={o}" for x, o, r in CHOICES]] * 2
IN_ORDER = list(range(1, 13))
ONE = IN_ORDER[1::2]


def session(
    speeds: dict[str, float],
    objective: str = "latency",
    *,
    gold: Any = None,
    count: int = 99,
    winner: Any = None,
    own: str = "",
    shares: tuple[float, ...] = (0.0, 0.0),
    made: int = 0,
    lists: list[list[str]] = LISTS,
) -> tuple[list[Any], list[int]]:
    given = [speeds, lists, objective, gold, count, winner, own, shares, made]
    trials, asked = run(SESSION, asked=given)
    return trials, asked


def trials(found: tuple[list[Any], list[int]], spec: int) -> list[int]:
    return [candidate for own, candidate in found[0] if own == spec]


def test_slow_choices_wait_in_all_kernels() -> None:
    """The first of each kernel is what others are compared with, then fast choices come first."""
    found = session({"r0=8": 0.5, "x0=4": 1.1})
    for spec in (0, 1):
        assert trials(found, spec)[0] == 1
        assert sorted(trials(found, spec)[1:7]) == ONE
        assert sorted(trials(found, spec)) == IN_ORDER, "nothing is lost"


def test_the_bundles_own_kernel_is_what_the_first_is_compared_with() -> None:
    """So the second kernel's first trial has what the first kernel's taught."""
    found = session({"r0=8": 0.5}, own="contraction x0=2 r0=8 order=mn")
    assert trials(found, 0)[:2] == [1, 2]
    assert sorted(trials(found, 1)[:6]) == ONE


def test_choices_that_nobody_tried_do_not_wait() -> None:
    lists = [[f"contraction r0={r}" for r in (8, 1, 4, 2)], ["contraction r0=1", "walk r0=8"]]
    found, _ = session({"r0=8": 0.5}, lists=lists)
    assert sorted(found) == [[0, 1], [0, 2], [0, 3], [0, 4], [1, 1], [1, 2]]
    assert found[:4] == [[0, 1], [0, 2], [0, 3], [0, 4]]


def test_where_choices_do_not_matter_the_order_stays() -> None:
    """A difference of less than 2 % for each place is no reason to leave it."""
    found = session({"r0=8": 0.995, "x0=2": 1.005})
    assert trials(found, 0) == trials(found, 1) == IN_ORDER


def test_what_is_expected_to_be_faster_comes_before_its_place() -> None:
    lists = [[f"map x0={x} y0={y}" for y in (1, 2) for x in (1, 2, 3, 9)]]
    found = trials(session({"x0=9": 1.5}, own="map x0=1 y0=1", lists=lists), 0)
    assert found[:5] == [1, 2, 3, 4, 8]


@pytest.mark.parametrize("share", [0.2, 0.0001])
def test_what_should_save_most_of_the_models_time_comes_before_the_kernel_whose_turn_it_is(
    share: float,
) -> None:
    lists = [[f"map x0={x} y0={y}" for x, y in ((1, 1), (9, 1), (9, 2), (9, 3))], ["map x0=9 y0=1"]]
    found, _ = session({"x0=9": 2}, own="map x0=1 y0=4", shares=(0.3, share), lists=lists)
    assert found[:2] == [[0, 1], [0, 2]]
    assert (found[2] == [1, 1]) is (share > 0.1)


@pytest.mark.parametrize("objective", ["traffic", "scratch"])
def test_other_objectives_keep_their_order(objective: str) -> None:
    """What a candidate needs is known beforehand, and speed is not what counts."""
    found = session({"r0=8": 0.3}, objective)
    assert trials(found, 1) == IN_ORDER
    assert found[1] == list(range(1, 25)), "each is tried as it comes"


def test_eight_are_in_hand_once_something_was_learned() -> None:
    """The first trial need not wait for others to come."""
    _, asked = session({}, own="contraction x0=1 r0=1 order=mn")
    assert asked[:4] == [1, 9, 10, 11]


def test_questions_are_answered_at_once() -> None:
    """The two candidates of a gold question are compared, however slow one of them is."""
    asked = trials(session({"r0=8": 0.3}, gold={"a": 1, "b": 5}), 1)
    usual = trials(session({"r0=8": 0.3}), 1)
    assert asked.index(5) < asked.index(6)
    assert usual.index(5) > usual.index(12)


def test_the_slow_kernel_of_a_question_teaches_nothing() -> None:
    """It differs from all candidates in everything, and is many times as slow."""
    lists = [["walk x0=1 r0=1", "walk x0=9 r0=9"], [f"walk x0={x} r0=1" for x in (1, 9)] * 2]
    found = session({"r0=9": 0.01}, gold={"a": 1, "b": 2}, count=2, lists=lists)
    assert trials(found, 1) == [1, 2, 3, 4]


def test_the_kernel_in_use_is_what_others_are_compared_with() -> None:
    """On a later visit its choices are known, and so is how fast it is."""
    lists = [[f"walk r0={r} x0={x}" for r, x in ((8, 1), (8, 2), (1, 2), (8, 3), (1, 3))]]
    found = session({"r0=8": 0.5}, winner={"schedule": "walk r0=1 x0=1", "ratio": 1}, lists=lists)
    assert trials(found, 0)[:3] == [1, 3, 5]


def test_of_many_that_wait_the_most_promising_comes() -> None:
    """No more than 32 in hand that this device compiled, since that takes time of the session."""
    slow = [f"walk r0=8 x0={x}" for x in range(2, 40)]
    lists = [["walk r0=8 x0=1", "walk r0=1 x0=1", "walk r0=8 x0=1 y0=2", *slow, "walk r0=1 x0=9"]]
    for made, most in ((0, 42), (5, 35)):
        found, asked = session({"r0=8": 0.5}, lists=lists, made=made)
        assert sorted(candidate for _, candidate in found) == list(range(1, 43))
        assert found[:2] == [[0, 1], [0, 2]]
        assert asked[2] == most
        place = found.index([0, 42])
        assert place == 2 if not made else 2 < place < 12, "the last one is fast"


AGAIN = """
const { openForecast } = await import('TUNE/loop/forecast.js');
const offers = new Map([[0, { checksum: 'old' }]]);
const ledger = { offers, winner: () => undefined, unknown: () => false };
const parts = { ledger, objective: 'latency', effects: new Map(), shareOf: () => 0 };
const forecast = openForecast(parts);
const sent = (candidate, r0) => (
  { header: { spec: 0, candidate, schedule: `map r0=${r0}`, checksum: 'old' } });
forecast.learn(sent(1, 1).header, 1);
forecast.learn(sent(2, 8).header, 0.3);
forecast.take(sent(3, 8));
forecast.take(sent(3, 8));
const waits = forecast.next(false);
const twice = [forecast.next(true)?.header.candidate, forecast.next(true)];
forecast.take(sent(4, 8));
offers.set(0, { checksum: 'new' });
console.log(JSON.stringify([waits, twice, forecast.next(true)]));
"""


def test_a_new_connection_doubles_nothing_and_another_space_forgets() -> None:
    waits, twice, left = run(AGAIN, asked=None)
    assert waits is None
    assert twice == [3, None]
    assert left is None
