"""What a session's trials teach, and which candidate is tried next (web/tune/loop/forecast.js), in
Node: kernels are numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from node import run

#: A session without an engine.  A candidate's speed is the product of its choices', over that of
#: the bundle's own kernel.  It answers with the trials in order, and with how many candidates had
#: come at each.  `stalls`, `fails`: the place of a candidate for which the source takes for ever,
#: or which it cannot send.
SESSION = """
const { openForecast } = await import('TUNE/loop/forecast.js');
const { openQueue } = await import('TUNE/sources/connection.js');
const { EngineError } = await import('TUNE/../engine/errors.js');
const asked = <asked>;
const { speeds, lists, objective, gold, count, winner, own, shares, question, most } = asked;
const { milliseconds, stalls, fails, code, numbers, seconds } = asked;
const speedOf = (schedule) => (
  schedule.split(' ').slice(1).reduce((product, one) => product * (speeds[one] ?? 1), 1));
const offer = { checksum: 'same', gold, count, schedule: own };
const offers = new Map(lists.map((_, spec) => [spec, offer]));
let inQuestion = question;
const ledger = {
  offers, winner: () => winner ?? undefined, unknown: () => false,
  inQuestion: (spec) => spec === inQuestion,
};
const shareOf = (spec) => shares[spec];
const forecast = openForecast({ ledger, objective, effects: new Map(), shareOf });
const sent = lists.flatMap((list, spec) => list.map((schedule, n) => (
  { header: { spec, schedule, candidate: numbers?.[n] ?? n + 1, checksum: 'same' },
    milliseconds })));
let came = 0;
const line = {
  async next() {
    if (came === stalls) return new Promise(() => {});
    if (came === fails) throw new EngineError(code, 'it is gone', 'hint');
    return came < sent.length ? sent[came++] : null;
  },
};
const [trials, had] = [[], []];
const spent = [];
const pace = { spend: (ms) => spent.push(ms), turn: async () => spent.push('turn') };
const isOver = () => spent.filter((one) => one !== 'turn').reduce((a, b) => a + b, 0) > seconds;
const { signal } = new AbortController();
const supply = openQueue({ line, forecast, pace, signal, isOver });
let error = '';
// A source that takes for ever keeps no candidate from its trial, but then nothing else comes.
for (let next; trials.length < most; ) {
  try {
    next = await supply.next();
  } catch (why) {
    error = why.code;
  }
  if (error || !next) break;
  const { spec, candidate, schedule } = next.header;
  if (candidate === 0) inQuestion = null;
  trials.push([spec, candidate]);
  had.push(came);
  forecast.learn(next.header, speedOf(schedule) / (own ? speedOf(own) : 1));
}
const left = lists.map((_, spec) => forecast.held(spec));
console.log(JSON.stringify({ trials, had, left, error, spent }));
process.exit(0);
"""

#: Two kernels; every second candidate has one step to a pass, the others eight.
CHOICES = list(product((2, 4, 6), ("mn", "nm"), (8, 1)))
LISTS = [[f"contraction x0={x} r0={r} order={o}" for x, o, r in CHOICES]] * 2
IN_ORDER = list(range(1, 13))
ONE = IN_ORDER[1::2]


@dataclass(frozen=True)
class Done:
    """trials: pairs of kernel and candidate;  had: how many candidates had come at each;  left: by
    kernel, what is in hand at the end"""

    trials: list[list[int]]
    had: list[int]
    left: list[list[int]]
    error: str
    spent: list[Any]

    def of(self, spec: int) -> list[int]:
        return [candidate for own, candidate in self.trials if own == spec]


#: What a session is asked unless a test says otherwise.
USUAL: Mapping[str, Any] = {
    "lists": LISTS, "objective": "latency", "gold": None, "count": 99, "winner": None, "own": "",
    "shares": [0.0, 0.0], "question": None, "most": 1000, "milliseconds": 0, "stalls": -1,
    "fails": -1, "code": "network", "numbers": None, "seconds": 1e9,
}  # fmt: skip


def session(speeds: Mapping[str, float], **asked: Any) -> Done:
    return Done(**run(SESSION, asked={**USUAL, "speeds": speeds, **asked}))


def test_slow_choices_wait_in_all_kernels() -> None:
    """The first of each kernel is what others are compared with, then fast choices come first."""
    found = session({"r0=8": 0.5, "x0=4": 1.1})
    for spec in (0, 1):
        assert found.of(spec)[0] == 1
        assert sorted(found.of(spec)[1:7]) == ONE
        assert sorted(found.of(spec)) == IN_ORDER, "nothing is lost"


def test_the_bundles_own_kernel_is_what_the_first_is_compared_with() -> None:
    """So the second kernel's first trial has what the first kernel's taught."""
    found = session({"r0=8": 0.5}, own="contraction x0=2 r0=8 order=mn")
    assert found.of(0)[:2] == [1, 2]
    assert sorted(found.of(1)[:6]) == ONE


def test_choices_that_nobody_tried_do_not_wait() -> None:
    lists = [[f"contraction r0={r}" for r in (8, 1, 4, 2)], ["contraction r0=1", "walk r0=8"]]
    found = session({"r0=8": 0.5}, lists=lists).trials
    assert found[:4] == [[0, 1], [0, 2], [0, 3], [0, 4]]
    assert sorted(found[4:]) == [[1, 1], [1, 2]]


def test_where_choices_do_not_matter_the_order_stays() -> None:
    """A difference of less than 2 % for each place is no reason to leave it."""
    found = session({"r0=8": 0.995, "x0=2": 1.005})
    assert found.of(0) == found.of(1) == IN_ORDER


def test_what_is_expected_to_be_faster_comes_before_its_place() -> None:
    lists = [[f"map x0={x} y0={y}" for y in (1, 2) for x in (1, 2, 3, 9)]]
    found = session({"x0=9": 1.5}, own="map x0=1 y0=1", lists=lists)
    assert found.of(0)[:5] == [1, 2, 3, 4, 8]


@pytest.mark.parametrize("share", [0.2, 0.0001])
def test_what_should_save_most_of_the_models_time_comes_before_the_kernel_whose_turn_it_is(
    share: float,
) -> None:
    lists = [[f"map x0={x} y0={y}" for x, y in ((1, 1), (9, 1), (9, 2), (9, 3))], ["map x0=9 y0=1"]]
    found = session({"x0=9": 2}, own="map x0=1 y0=4", shares=[0.3, share], lists=lists).trials
    assert found[:2] == [[0, 1], [0, 2]]
    assert (found[2] == [1, 1]) is (share > 0.1)


FASTER = """
const { openForecast } = await import('TUNE/loop/forecast.js');
const offers = new Map([0, 1, 2].map((spec) => [spec, { schedule: 'map a=1 b=1' }]));
const ledger = {
  offers, winner: () => undefined, unknown: () => false, inQuestion: () => false,
};
const shareOf = (spec) => [0.6, 0.3, 0][spec];
const forecast = openForecast({ ledger, objective: 'latency', effects: new Map(), shareOf });
const header = (spec, schedule) => ({ spec, candidate: 1, schedule });
forecast.learn(header(2, 'map a=1 b=2'), 1.5);
forecast.learn(header(0, 'map a=2 b=1'), <speed>);
forecast.take({ header: header(0, 'map a=2 b=2') });
forecast.take({ header: header(1, 'map a=1 b=2') });
console.log(forecast.next(1).header.spec);
"""


@pytest.mark.parametrize(("speed", "chosen"), [(1.1, 0), (20, 1)])
def test_a_kernel_that_got_faster_has_less_to_save(speed: float, chosen: int) -> None:
    """Kernel 0 took twice as much of the time as kernel 1; both are expected to gain the same."""
    assert run(FASTER, speed=speed) == chosen


@pytest.mark.parametrize("objective", ["traffic", "scratch"])
def test_other_objectives_keep_their_order(objective: str) -> None:
    """What a candidate needs is known beforehand, and speed is not what counts."""
    found = session({"r0=8": 0.3}, objective=objective)
    assert found.of(1) == IN_ORDER
    assert found.had == list(range(1, 25)), "each is tried as it comes"


def test_once_something_was_learned_eight_are_chosen_from() -> None:
    """The first trial need not wait for others to come."""
    found = session({}, own="contraction x0=1 r0=1 order=mn")
    assert found.had[:4] == [1, 9, 10, 11]


def test_a_source_that_takes_long_keeps_nothing_from_its_trial() -> None:
    found = session({}, own="contraction x0=1 r0=1 order=mn", stalls=5, most=5)
    assert found.of(0) == [1, 2, 3, 4, 5]


def test_what_came_before_a_source_was_lost_is_tried() -> None:
    found = session({"r0=8": 0.5}, fails=5)
    assert sorted(found.of(0)) == [1, 2, 3, 4, 5]
    assert found.error == "network"


def test_but_a_source_that_may_not_be_trusted_ends_the_session_at_once() -> None:
    found = session({}, own="contraction x0=1 r0=1 order=mn", fails=5, code="signature")
    assert (found.of(0), found.error) == ([1], "signature")


def test_what_this_device_compiles_is_tried_as_it_comes() -> None:
    """Compilation takes time of the session, which may be over afterwards."""
    own = "contraction x0=1 r0=1 order=mn"
    found = session({}, own=own, milliseconds=5, most=4)
    assert found.had == [1, 2, 3, 4]
    assert found.spent == [5, "turn"] * 4


def test_after_the_end_nothing_slow_is_tried() -> None:
    lists = [["map r0=8 x0=1", "map r0=1 x0=1", *(f"map r0=8 x0={x}" for x in range(2, 9))]]
    found = session({"r0=8": 0.5}, lists=lists, milliseconds=5, seconds=24)
    assert found.of(0) == [1, 2]
    assert found.had[-1] == 2
    assert found.left == [[3, 4, 5]], "the fifth ended it"


def test_questions_are_answered_at_once() -> None:
    """The two candidates of a gold question are compared, however slow one of them is."""
    asked = session({"r0=8": 0.3}, gold={"a": 1, "b": 5}).of(1)
    usual = session({"r0=8": 0.3}).of(1)
    assert asked.index(5) < asked.index(6)
    assert usual.index(5) > usual.index(12)


def test_the_slow_kernel_of_a_question_teaches_nothing() -> None:
    """It differs from all candidates in everything, and is many times as slow."""
    lists = [["walk x0=1 r0=1", "walk x0=9 r0=9"], [f"walk x0={x} r0=1" for x in (1, 9, 9, 1)]]
    found = session({"r0=9": 0.01}, gold={"a": 1, "b": 2}, count=2, lists=lists)
    assert found.of(1) == [1, 2, 3, 4]


def test_others_wait_for_the_compilers_own_where_the_bundles_is_in_question() -> None:
    lists = [[f"walk x0={x}" for x in (3, 2, 1, 4)], ["walk x0=7"]]
    found = session({}, question=0, lists=lists, numbers=[3, 2, 0, 1])
    assert found.of(0)[0] == 0
    assert sorted(found.of(0)) == [0, 1, 2, 3]


def test_if_it_does_not_come_they_are_not_tried() -> None:
    lists = [[f"walk x0={x}" for x in range(12)], ["walk x0=77"]]
    found = session({}, question=0, lists=lists)
    assert found.trials == [[1, 1]]
    assert found.left == [list(range(1, 9)), []], "and no more than eight are kept"


def test_the_kernel_in_use_is_what_others_are_compared_with() -> None:
    """On a later visit its choices are known, and so is how fast it is."""
    lists = [[f"walk r0={r} x0={x}" for r, x in ((8, 1), (8, 2), (1, 2), (8, 3), (1, 3))]]
    found = session({"r0=8": 0.5}, winner={"schedule": "walk r0=1 x0=1", "ratio": 1}, lists=lists)
    assert found.of(0)[:3] == [1, 3, 5]


@pytest.mark.parametrize(("made", "had"), [(0, 42), (5, 35)])
def test_of_many_that_wait_the_most_promising_comes(made: int, had: int) -> None:
    """No more than 32 in hand that this device compiled, since that takes time of the session."""
    slow = [f"walk r0=8 x0={x}" for x in range(2, 40)]
    lists = [["walk r0=8 x0=1", "walk r0=1 x0=1", "walk r0=8 x0=1 y0=2", *slow, "walk r0=1 x0=9"]]
    found = session({"r0=8": 0.5}, lists=lists, milliseconds=made)
    assert sorted(found.of(0)) == list(range(1, 43))
    assert found.of(0)[:2] == [1, 2]
    assert found.had[2] == had
    place = found.of(0).index(42)
    assert place == 2 if not made else 2 < place < 12, "the last one is fast"


AGAIN = """
const { openForecast } = await import('TUNE/loop/forecast.js');
const offers = new Map([[0, { checksum: 'old' }]]);
const ledger = {
  offers, winner: () => undefined, unknown: () => false, inQuestion: () => false,
};
const forecast = openForecast({ ledger, objective: 'latency', effects: new Map(), shareOf: () => 0 });
const sent = (candidate, r0) => (
  { header: { spec: 0, candidate, schedule: `map r0=${r0}`, checksum: 'old' } });
forecast.learn(sent(1, 1).header, 1);
forecast.learn(sent(2, 8).header, 0.3);
forecast.take(sent(3, 8));
forecast.take(sent(3, 8));
const held = forecast.held(0);
const waits = [forecast.peek(), forecast.next(1)];
const twice = [forecast.next(0)?.header.candidate, forecast.next(0)];
forecast.take(sent(4, 1));
const peeked = forecast.peek()?.header.candidate;
offers.set(0, { checksum: 'new' });
const later = [forecast.held(0), forecast.peek(), forecast.next(0)];
console.log(JSON.stringify({ held, waits, twice, peeked, later }));
"""  # noqa: E501


def test_a_new_connection_doubles_nothing_and_another_space_forgets() -> None:
    assert run(AGAIN, asked=None) == {
        "held": [3],
        "waits": [None, None],
        "twice": [3, None],
        "peeked": 4,
        "later": [[], None, None],
    }
