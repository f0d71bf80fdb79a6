"""Times and pairs of times of trials (web/tune/trial/timing.js): made-up clock and kernels."""

from __future__ import annotations

from typing import Any

import pytest
from node import run

SCRIPT = """
const { tick, costs, tiles } = <given>;
let now = 0;
globalThis.self = { postMessage() {} };
// Reading the clock takes time as well.
performance.now = () => Math.floor((now += 5e-5) / tick) * tick;
const { finest, pairsOf, warmEstimate, readClock, warm } = await import('TUNE/trial/timing.js');
const { contest } = await import('TUNE/trial/paired_times.js');
readClock();
const runners = costs.map((cost) => ({
  tiles, run: (first, last) => { now += (last - first) / tiles * cost; },
}));
const [other, runner] = runners;
await warm(other, NaN);
const least = await warmEstimate(other);
const time = await warm(runner, least);
const pairs = pairsOf(other, runner, [least, time]);
const found = await contest(pairs, { margin: 1.02, grant: 1 }, [() => false, () => false]);
console.log(JSON.stringify({ least, time, found, spent: now }));
"""


def compared(tick: float, costs: list[float], tiles: int = 3) -> Any:
    return run(SCRIPT, given={"tick": tick, "costs": costs, "tiles": tiles})


@pytest.mark.parametrize("tick", [0.005, 0.02, 1.0])
@pytest.mark.parametrize("cost", [2e-4, 3.7e-3, 0.9])
def test_equal_kernels_are_equal_whatever_the_clock(tick: float, cost: float) -> None:
    """A kernel of a microsecond takes a fiftieth of a tick in Firefox."""
    found = compared(tick, [cost, cost])
    assert found["least"] == pytest.approx(cost, rel=0.4)
    assert found["found"]["verdict"] == "same"
    assert found["found"]["ratio"] == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("tick", [0.02, 1.0])
@pytest.mark.parametrize("tiles", [1, 96])
def test_a_faster_kernel_is_faster_by_as_much(tick: float, tiles: int) -> None:
    found = compared(tick, [1.5e-3, 1e-3], tiles)["found"]
    assert found["verdict"] == "faster"
    assert found["ratio"] == pytest.approx(1.5, rel=0.06)
    assert found["first"] == pytest.approx(1.5e-3, rel=0.1)


def test_a_clock_that_stands_still_decides_nothing() -> None:
    found = compared(1e9, [1e-3, 2e-3])
    assert found["found"]["undecided"]


JUDGED = """
const { cost, tiles } = <given>;
let [now, answer, listen] = [0, null, null];
performance.now = () => (now += 5e-5);
const ran = { own: 0, candidate: 0 };
const made = (name, time) => ({
  tiles, run: (first, last) => { now += (last - first) / tiles * time; ran[name] += last - first; },
});
const [own, candidate] = [made('own', 1), made('candidate', cost)];
globalThis.self = {
  postMessage: (data) => data.id && answer(data),
  addEventListener: (_, given) => { listen = given; },
};
const { judge } = await import('TUNE/trial/judge.js');
const clock = await import('TUNE/trial/timing.js');
const done = async () => '';
let loaded = null;
judge({
  get loaded() { return loaded; }, use: (next) => { loaded = next; }, lay: () => ({}),
  own: async () => own, runnerFor: async () => candidate, beating: () => () => {},
  compiled: done, begin: done, accept: done, doubt: done, check: done, refutation: done,
  runAll: async (runner) => runner.run(0, runner.tiles), open: done,
}, clock);
const ask = (kind, params) => new Promise((resolve) => {
  answer = resolve;
  listen({ data: { id: 1, kind, params } });
});
await ask('open', {});
const given = {
  spec: 0, facts: { spec: 0, special: false, buffers: [], scalars: [] }, forget: [], judge: false,
  candidate: { module: null, tiles, digest: 'x' }, incumbent: null, confirm: false,
  bar: { margin: 1.02, grant: 1 },
};
const { value, error } = await ask('attempt', given);
console.log(JSON.stringify({ value, error, ran }));
"""


@pytest.mark.parametrize(
    ("cost", "tiles", "most"),
    [
        (100.0, 96, 3 * 7),
        (100.0, 1000, 3 * 63),
        (100.0, 8, 3),
        (100.0, 1, 3),
        (5000.0, 8, 1),
        (5000.0, 1, 1),
    ],
)
def test_a_hopeless_candidate_is_dropped_after_its_first_tiles(
    cost: float, tiles: int, most: int
) -> None:
    """The kernel in use takes a millisecond; one long tile is enough."""
    found = run(JUDGED, given={"cost": cost, "tiles": tiles})
    assert found.get("error") is None
    assert found["value"]["verdict"] == "slower"
    assert found["value"]["ratio"] == pytest.approx(1 / cost, rel=0.05)
    assert 1 <= found["ran"]["candidate"] <= most


def test_a_candidate_that_may_still_warm_up_is_not_dropped() -> None:
    """Ten times slower in cold code, it is warmed up before anything is said about it."""
    found = run(JUDGED, given={"cost": 10.0, "tiles": 2})
    assert found["ran"]["candidate"] > 6
