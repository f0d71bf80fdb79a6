"""When tuning goes on (web/tune/loop/pace.js), on a clock of the tests."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import node
import pytest
from clock import CLOCK

#: A page with a clock that only `until` moves, an engine, and a trial that never ends.
WORLD = """
globalThis.document = Object.assign(new EventTarget(), { visibilityState: 'visible' });
function show(visible) {
  document.visibilityState = visible ? 'visible' : 'hidden';
  document.dispatchEvent(new Event('visibilitychange'));
}

const engine = { onjob() {} };
async function runs(count, length, gap) {
  for (let run = 0; run < count; run++) {
    engine.onjob(1);
    await until(time + length);
    engine.onjob(1, 0, length);
    engine.onjob(0);
    if (gap) await until(time + gap);
  }
}

/** Stretches of work: [from, to] in milliseconds. */
const stretches = [];
const resumed = [];
let since = null;
const trials = {
  pause(on) {
    if (!on && since === null && time > 0) resumed.push(time);
    if (on && since !== null && time > since) stretches.push([since, time]);
    since = on ? null : (since ?? time);
  },
};
const { makePace } = await import('TUNE/loop/pace.js');
const stop = new AbortController();
const events = [];
const make = (more) => makePace({
  engine, budget: 0.05, signal: stop.signal, onEvent: ({ type }) => events.push(type), ...more,
});
function begin(pace) {
  pace.guard(trials);
  pace.trial(() => new Promise(() => {})).catch(() => {});
}
function ended(more) {
  trials.pause(true);
  console.log(JSON.stringify({ stretches, resumed, events, ...more }));
}
"""


def run(script: str, **values: Any) -> Any:
    return node.run(CLOCK + WORLD + script, **values)


def worked(found: Any, first: float = 0, last: float = float("inf")) -> float:
    return sum(max(0, min(b, last) - max(a, first)) for a, b in found["stretches"])


@pytest.mark.parametrize("budget", [0.01, 0.05, 0.3, 0.8, 1])
def test_a_trial_takes_its_share_in_pieces(budget: float) -> None:
    found = run("begin(make({ budget: <budget> })); await until(60_000); ended();", budget=budget)
    assert budget * 60_000 * 0.95 - 100 <= worked(found) <= budget * 60_000 + 60
    if budget <= 0.3:
        assert max(b - a for a, b in found["stretches"]) <= 50 / (1 - budget) + 2


@pytest.mark.parametrize("budget", [0.05, 1])
@pytest.mark.parametrize("times", [1, 30])
def test_a_clock_that_goes_back(budget: float, times: int) -> None:
    """By an hour, now and then: work goes on within its share, but for what the clock hid."""
    script = """
    let hours = 0;
    performance.now = () => time - 3_600_000 * hours;
    begin(make({ budget: <budget> }));
    for (let back = 0; back < <times>; back++) {
      await until(time + 60_000 / <times> / 2);
      hours++;
      await until(time + 60_000 / <times> / 2);
    }
    ended();
    """
    found = run(script, budget=budget, times=times)
    assert budget * 60_000 / 3 <= worked(found) <= budget * 60_000 + 60 + 60 * times
    if budget < 1:
        assert max(b - a for a, b in found["stretches"]) <= 110


@pytest.mark.parametrize("budget", [0.05, 1])
def test_a_clock_that_goes_back_in_a_run_of_the_page(budget: float) -> None:
    """Before, in and after it: trials rest in it, and go on soon after."""
    script = """
    let hours = 0;
    performance.now = () => time - 3_600_000 * hours;
    begin(make({ budget: <budget> }));
    await until(3000);
    for (const at of [0, 1, 2]) {
      if (at === 0) hours++;
      engine.onjob(1);
      await until(time + 15);
      if (at === 1) hours++;
      await until(time + 15);
      engine.onjob(0, 0, 30);
      if (at === 2) hours++;
      await until(time + 4970);
    }
    ended();
    """
    found = run(script, budget=budget)
    for begun in (3000, 8000, 13_000):
        assert worked(found, begun, begun + 30) <= 1
        assert worked(found, begun + 30, begun + 5000) >= 0.9 * budget * (4970 - 2000)


def test_a_job_in_which_the_clock_goes_back_costs_nothing() -> None:
    script = """
    let hours = 0;
    performance.now = () => time - 3_600_000 * hours;
    const pace = make();
    await pace.job(async () => hours++);
    const first = pace.spent;
    const work = () => pace.job(() => new Promise((resolve) => setTimeout(resolve, 100)));
    work().then(work).then(() => ended({ spent: [first, pace.spent], took: time }));
    await until(60_000);
    """
    found = run(script)
    assert found["spent"] == [0, 200]
    assert 2000 <= found["took"] <= 4300


@pytest.mark.parametrize("hidden", [False, True])
def test_nothing_is_saved_up(hidden: bool) -> None:
    """Neither while nothing is to be done nor in a hidden tab."""
    script = """
    const pace = make();
    if (<hidden>) show(false);
    await until(600_000);
    show(true);
    begin(pace);
    await until(601_000);
    ended();
    """
    assert 0 < worked(run(script, hidden=hidden)) <= 100


def test_jobs_one_after_the_other_wait_for_the_budget() -> None:
    script = """
    const pace = make();
    const turns = [];
    (async () => {
      for (;;) {
        await pace.job(() => new Promise((resolve) => setTimeout(resolve, 100)));
        turns.push(time);
      }
    })().catch(() => {});
    await until(30_000);
    ended({ turns });
    """
    turns = run(script)["turns"]
    assert 10 <= len(turns) <= 16
    assert all(1900 < b - a < 2200 for a, b in pairwise(turns))


def test_own_jobs_are_no_reason_to_wait() -> None:
    script = """
    const pace = make({ budget: 1 });
    (async () => {
      for (let job = 0; job < 20; job++) {
        await pace.job(async () => {
          engine.onjob(1);
          await new Promise((resolve) => setTimeout(resolve, 5));
          engine.onjob(0);
        });
      }
    })().then(() => ended({ took: time }));
    await until(10_000);
    """
    assert run(script)["took"] == 100


def test_trials_go_on_some_time_after_a_run() -> None:
    script = """
    begin(make({ budget: 1 }));
    await until(100);
    await runs(1, 30, 500);
    ended();
    """
    (_, first), (second, _) = run(script)["stretches"]
    assert first == 100
    assert 20 <= second - 130 <= 50


@pytest.mark.parametrize(("length", "gap"), [(10, 0), (10, 3), (0.25, 0), (0.25, 0.25)])
def test_runs_without_a_pause_feel_little(length: float, gap: float) -> None:
    """A trial goes on, for some 2 ms into a run; fewer than one run in twenty can feel it."""
    script = """
    begin(make({ budget: 1 }));
    await runs(<count>, <length>, <gap>);
    ended({ count: <count> });
    """
    found = run(script, length=length, gap=gap, count=int(20_000 / (length + gap)))
    times = len(found["resumed"])
    assert times >= 30
    assert times * (1 + 2 / (length + gap)) < found["count"] / 20
    assert min(b - a for a, b in pairwise(found["resumed"])) >= 100


@pytest.mark.parametrize("budget", [0.05, 1])
def test_a_page_that_is_never_idle_lends_some_gaps(budget: float) -> None:
    """Thirty runs per second: tuning makes progress, and fewer than one run in twenty feels it."""
    script = "begin(make({ budget: <budget> })); await runs(2000, 10, 23); ended();"
    found = run(script, budget=budget)
    begun = [(a // 33 * 33, a % 33, b % 33) for a, b in found["stretches"]]
    assert 40 <= len({run for run, *_ in begun}) < 2000 / 20
    # only between a run and the next one
    assert all(first >= 10 and (last == 0 or last > first) for _, first, last in begun)
    assert worked(found) > 500


def test_nothing_goes_on_in_a_hidden_tab() -> None:
    script = """
    let left = 0;
    begin(make({ budget: 1, leave: () => left++ }));
    await until(100);
    show(false);
    await until(20_000);
    show(true);
    await until(21_000);
    show(false);
    await until(100_000);
    ended({ left });
    """
    found = run(script)
    assert found["stretches"] == [[0, 100], [20_000, 21_000]]
    assert found["events"] == ["paused", "resumed", "paused"]
    assert found["left"] == 1


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_two_on_one_engine_end_in_any_order(order: list[int]) -> None:
    """Neither puts back what it found when the other is still there."""
    script = """
    const page = [];
    const own = engine.onjob = (open) => page.push(open);
    const paces = [make({ budget: 1 }), make({ budget: 1 })];
    engine.onjob(1, 0, 5);
    const heard = [paces.map((pace) => pace.latest)];
    paces[<order>[0]].end();
    engine.onjob(1, 3, 5);
    heard.push(paces.map((pace) => pace.latest));
    paces[<order>[1]].end();
    engine.onjob(0, 4, 5);
    heard.push(paces.map((pace) => pace.latest));
    ended({ heard, page, back: engine.onjob === own });
    """
    found = run(script, order=order)
    later = [3, 3]
    later[order[0]] = 0
    assert found["heard"] == [[0, 0], later, later]
    assert found["page"] == [1, 1, 0]
    assert found["back"]


@pytest.mark.parametrize("budget", [0.05, 1])
def test_what_rests_goes_on_though_nobody_waits(budget: float) -> None:
    """The worker is asked for the device's cache, which is no trial, when the page runs once."""
    script = """
    make({ budget: <budget> }).guard(trials);
    await until(1000);
    await runs(1, 30, 500);
    ended();
    """
    _, (second, _) = run(script, budget=budget)["stretches"]
    assert 1050 <= second <= 1100


def test_a_job_is_not_left_half_way() -> None:
    """Whoever ends the session: what changes the engine also changes the record."""
    script = """
    const pace = make({ budget: 1 });
    const done = [];
    const job = () => pace.job(() => new Promise((resolve) => setTimeout(() => resolve(time), 100)))
      .then((value) => done.push([value, time]), ({ name }) => done.push([name, time]));
    job();
    await until(50);
    stop.abort();
    job();
    await until(200);
    ended({ done });
    """
    assert run(script)["done"] == [["AbortError", 50], [100, 100]]


@pytest.mark.parametrize("how", ["other", "chain", "back"])
def test_a_page_may_listen_to_jobs_itself(how: str) -> None:
    """While it is tuned, instead of before, or besides: both hear each job once."""
    script = """
    const page = [];
    const first = engine.onjob = (open) => page.push(['first', open]);
    const pace = make({ budget: 1 });
    const found = engine.onjob;
    const second = (open) => page.push(['second', open]);
    const chain = (...news) => (second(...news), found(...news));
    engine.onjob = <how> === 'chain' ? chain : second;
    if (<how> === 'back') engine.onjob = found;
    const heard = [];
    pace.turn().then(() => heard.push('turn'));
    await until(10);
    engine.onjob(1, 7, 5);
    pace.turn().then(() => heard.push('late'));
    await until(20);
    heard.push(pace.latest, pace.recent(7));
    pace.end();
    engine.onjob(0);
    const { set, value } = Object.getOwnPropertyDescriptor(engine, 'onjob');
    ended({ page, heard, plain: !set, same: value === second });
    """
    found = run(script, how=how)
    told = {"other": ["second"], "chain": ["second", "first"], "back": ["first"]}[how]
    assert found["page"] == [[name, n] for n in (1, 0) for name in told]
    assert found["heard"] == ["turn", 7, [5]]
    assert found["plain"]
    assert found["same"] == (how == "other")
