"""What a session's trials teach (web/tune/loop/forecast.js), in Node: kernels are numbers."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from node import run

#: A session without an engine.  A candidate's speed is the product of its choices'; two kernels
#: share them.  It answers with the trials in order, and what was told as done.
SESSION = """
const { openForecast } = await import('TUNE/loop/forecast.js');
const [speeds, lists, objective, gold] = <asked>;
const offers = new Map(lists.map((_, spec) => [spec, { checksum: 'same', gold }]));
const forecast = openForecast({ offers }, objective);
const line = lists.flatMap((list, spec) => [
  ...list.map((schedule, n) => {
    return { header: { spec, candidate: n + 1, schedule, checksum: 'same' } };
  }),
  { done: spec },
]);
const said = [];
for (;;) {
  const next = forecast.ready() ?? forecast.sift(line.shift() ?? null);
  if (next === undefined) continue;
  if (!next) break;
  if ('done' in next) { said.push([next.done, 'done']); continue; }
  const { spec, candidate, schedule } = next.header;
  const [, ...choices] = schedule.split(' ');
  const ratio = choices.reduce((product, choice) => product * (speeds[choice] ?? 1), 1);
  said.push([spec, candidate]);
  forecast.learn(next.header, ratio);
}
console.log(JSON.stringify(said));
"""

#: Two kernels; every second candidate has one step to a pass, the others eight.
CHOICES = list(product((2, 4, 6), ("mn", "nm"), (8, 1)))
LISTS = [[f"contraction x0={x} r0={r} order={o}" for x, o, r in CHOICES]] * 2
IN_ORDER = list(range(1, 13))
EIGHT, ONE = IN_ORDER[::2], IN_ORDER[1::2]


def session(
    speeds: dict[str, float],
    objective: str = "latency",
    gold: Any = None,
    lists: list[list[str]] = LISTS,
) -> list[Any]:
    found: list[Any] = run(SESSION, asked=[speeds, lists, objective, gold])
    return found


def trials(found: list[Any], spec: int) -> list[int]:
    return [candidate for own, candidate in found if own == spec and candidate != "done"]


def test_slow_choices_wait_in_all_kernels() -> None:
    """The first of each kernel is what others are compared with, then fast choices come first."""
    found = session({"r0=8": 0.5, "x0=4": 1.1})
    for spec in (0, 1):
        assert trials(found, spec)[:7] == [1, *ONE]


def test_a_kernel_uses_what_another_one_taught() -> None:
    """In the second kernel both choices change at once; which of them is slow, the first knows."""
    lists = [LISTS[0], [f"contraction x0={x} r0={r}" for x, r in ((2, 1), (4, 8), (4, 1), (6, 8))]]
    speeds = {"r0=8": 0.5, "x0=4": 1.1}
    assert trials(session(speeds, lists=lists), 1) == [1, 3, 2, 4]


def test_nothing_is_lost_and_kernels_end_after_their_last_candidate() -> None:
    found = session({"r0=8": 0.5, "order=nm": 0.7})
    for spec in (0, 1):
        own = [what for kernel, what in found if kernel == spec]
        assert sorted(own[:-1]) == IN_ORDER
        assert own[-1] == "done"


def test_where_choices_do_not_matter_the_order_stays() -> None:
    found = session({"r0=8": 0.95, "x0=2": 1.05})
    assert trials(found, 0) == trials(found, 1) == IN_ORDER


@pytest.mark.parametrize("objective", ["traffic", "scratch"])
def test_other_objectives_keep_their_order(objective: str) -> None:
    """What a candidate needs is known beforehand, and speed is not what counts."""
    assert trials(session({"r0=8": 0.3}, objective), 1) == IN_ORDER


def test_questions_are_answered_in_their_turn() -> None:
    """The two candidates of a gold question are compared, however slow one of them is."""
    found = trials(session({"r0=8": 0.3}, gold={"a": 1, "b": 3}), 1)
    assert found[:3] == [1, 2, 3]
    assert found[:3] != trials(session({"r0=8": 0.3}), 1)[:3]


AGAIN = """
const { openForecast } = await import('TUNE/loop/forecast.js');
const offers = new Map([[0, { checksum: 'old' }]]);
const forecast = openForecast({ offers }, 'latency');
const sent = (candidate, r0) => (
  { header: { spec: 0, candidate, schedule: `map r0=${r0}`, checksum: 'old' } });
forecast.learn(sent(1, 1).header, 1);
forecast.learn(sent(2, 8).header, 0.3);
const came = [sent(3, 8), sent(3, 8)].map((one) => forecast.sift(one) ?? 'waits');
const twice = [forecast.sift(null)?.header.candidate, forecast.sift(null)];
forecast.sift(sent(4, 8));
offers.set(0, { checksum: 'new' });
console.log(JSON.stringify([came, twice, forecast.ready(), forecast.sift(null)]));
"""


def test_a_new_connection_doubles_nothing_and_another_space_forgets() -> None:
    came, twice, ready, left = run(AGAIN, asked=None)
    assert came == ["waits", "waits"]
    assert twice == [3, None]
    assert ready is None
    assert left is None
