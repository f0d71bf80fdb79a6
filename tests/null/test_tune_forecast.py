"""What a session's trials teach (web/tune/loop/forecast.js), in Node: kernels are numbers."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from node import run

#: A session without an engine, as `rounds` of tuner.js leads it.  A candidate's speed is the
#: product of its choices'.  It answers with the trials in order.
SESSION = """
const { openForecast } = await import('TUNE/loop/forecast.js');
const [speeds, lists, objective, gold, count, winner, milliseconds] = <asked>;
const offers = new Map(lists.map((_, spec) => [spec, { checksum: 'same', gold, count }]));
const ledger = { offers, winner: () => winner ?? undefined, unknown: () => false };
const forecast = openForecast(ledger, objective, new Map());
const line = lists.flatMap((list, spec) => list.map((schedule, n) => (
  { header: { spec, candidate: n + 1, schedule, checksum: 'same' }, milliseconds })));
const said = [];
for (;;) {
  let next = forecast.ready();
  while (!next && line.length) next = forecast.sift(line.shift());
  next ??= forecast.last();
  if (!next) break;
  const { spec, candidate, schedule } = next.header;
  const [, ...choices] = schedule.split(' ');
  said.push([spec, candidate]);
  forecast.learn(next.header, choices.reduce((product, one) => product * (speeds[one] ?? 1), 1));
}
if (lists.some((_, spec) => forecast.holds(spec))) throw new Error('something still waits');
console.log(JSON.stringify(said));
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
    made: int = 0,
    lists: list[list[str]] = LISTS,
) -> list[Any]:
    found: list[Any] = run(SESSION, asked=[speeds, lists, objective, gold, count, winner, made])
    return found


def trials(found: list[Any], spec: int) -> list[int]:
    return [candidate for own, candidate in found if own == spec]


def test_slow_choices_wait_in_all_kernels() -> None:
    """The first of each kernel is what others are compared with, then fast choices come first."""
    found = session({"r0=8": 0.5, "x0=4": 1.1})
    for spec in (0, 1):
        assert trials(found, spec)[:7] == [1, *ONE]
        assert sorted(trials(found, spec)) == IN_ORDER, "nothing is lost"


def test_a_kernel_uses_what_another_one_taught() -> None:
    """The second kernel's first trial has one step; what eight cost, it did not try itself."""
    lists = [LISTS[0], [f"contraction x0={x} r0={r}" for x, r in ((2, 1), (4, 8), (4, 1), (6, 1))]]
    assert trials(session({"r0=8": 0.5}, lists=lists), 1) == [1, 3, 4, 2]


def test_choices_that_nobody_tried_do_not_wait() -> None:
    lists = [[f"contraction r0={r}" for r in (8, 1, 4, 2)], ["contraction r0=1", "walk r0=8"]]
    assert session({"r0=8": 0.5}, lists=lists) == [[0, 1], [0, 2], [0, 3], [0, 4], [1, 1], [1, 2]]


def test_where_choices_do_not_matter_the_order_stays() -> None:
    found = session({"r0=8": 0.95, "x0=2": 1.05})
    assert trials(found, 0) == trials(found, 1) == IN_ORDER


@pytest.mark.parametrize("objective", ["traffic", "scratch"])
def test_other_objectives_keep_their_order(objective: str) -> None:
    """What a candidate needs is known beforehand, and speed is not what counts."""
    assert trials(session({"r0=8": 0.3}, objective), 1) == IN_ORDER


def test_questions_are_answered_in_their_turn() -> None:
    """The two candidates of a gold question are compared, however slow one of them is."""
    asked = trials(session({"r0=8": 0.3}, gold={"a": 1, "b": 5}), 1)
    usual = trials(session({"r0=8": 0.3}), 1)
    assert asked.index(5) < asked.index(6)
    assert usual.index(5) > usual.index(12)


def test_the_slow_kernel_of_a_question_teaches_nothing() -> None:
    """It differs from all candidates in everything, and is many times as slow."""
    lists = [["walk x0=1 r0=1", "walk x0=9 r0=9"], [f"walk x0={x} r0=1" for x in (1, 9)] * 2]
    assert trials(session({"r0=9": 0.01}, gold={"a": 1, "b": 2}, count=2, lists=lists), 1) == [
        1, 2, 3, 4,
    ]  # fmt: skip


def test_the_kernel_in_use_is_what_others_are_compared_with() -> None:
    """On a later visit its choices are known, and so is how fast it is."""
    lists = [[f"walk r0={r} x0={x}" for r, x in ((8, 1), (8, 2), (1, 2), (8, 3), (1, 3))]]
    found = session({"r0=8": 0.5}, winner={"schedule": "walk r0=1 x0=1", "ratio": 1}, lists=lists)
    assert trials(found, 0)[:3] == [1, 3, 5]


def test_of_many_that_wait_the_most_promising_comes() -> None:
    """No more than 32 that this device compiled, since that takes time of the session."""
    slow = [f"walk r0=8 x0={x}" for x in range(2, 40)]
    lists = [["walk r0=8 x0=1", "walk r0=1 x0=1", "walk r0=8 x0=1 y0=2", *slow, "walk r0=1 x0=9"]]
    for made, before in ((0, 2), (5, 2 + 39 - 32)):
        found = trials(session({"r0=8": 0.5}, lists=lists, made=made), 0)
        assert sorted(found) == list(range(1, 43))
        assert found.index(42) == before, "the last one is fast"


AGAIN = """
const { openForecast } = await import('TUNE/loop/forecast.js');
const offers = new Map([[0, { checksum: 'old' }]]);
const ledger = { offers, winner: () => undefined, unknown: () => false };
const forecast = openForecast(ledger, 'latency', new Map());
const sent = (candidate, r0) => (
  { header: { spec: 0, candidate, schedule: `map r0=${r0}`, checksum: 'old' } });
forecast.learn(sent(1, 1).header, 1);
forecast.learn(sent(2, 8).header, 0.3);
const came = [sent(3, 8), sent(3, 8)].map((one) => forecast.sift(one));
const twice = [forecast.last()?.header.candidate, forecast.last()];
forecast.sift(sent(4, 8));
offers.set(0, { checksum: 'new' });
console.log(JSON.stringify([came, twice, forecast.ready(), forecast.last()]));
"""


def test_a_new_connection_doubles_nothing_and_another_space_forgets() -> None:
    came, twice, ready, left = run(AGAIN, asked=None)
    assert came == [None, None], "both wait"
    assert twice == [3, None]
    assert ready is None
    assert left is None
