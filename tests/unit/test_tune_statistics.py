"""The verdict on pairs of times (tune/trial/), on clocks whose truth is known.

Node runs it; the noise is made up, so nothing here depends on a machine.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from node import run

CLOCK = """
import { contest } from 'TUNE/trial/paired_times.js';

let state = 12345;
const uniform = () => {
  state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
  return (state >>> 0) / 4294967296;
};
const normal = () => Math.sqrt(-2 * Math.log(uniform() + 1e-12)) * Math.cos(2 * Math.PI * uniform());
const MARGIN = 1.01;

/**
 * A machine on which the first kernel takes `time` milliseconds and the second one `truth` times less.
 * Disturbances only ever add time, now and then a lot of it; its speed drifts by 3 %, fast and slowly;
 * a core is busy for some time; the second call in a row finds caches warm; times are whole ticks.
 */
function machine({ truth, time, level, tail = 0.05, tick = 0.005, longest = 2 }) {
  const parts = Math.max(1, Math.ceil(time / longest));
  const phase = 100 * uniform();
  let [clock, drift, busy] = [0, 0, 0];
  const noise = () => {
    drift = 0.98 * drift + 0.006 * normal();
    busy = uniform() < 0.01 ? 10 * uniform() : Math.max(0, busy - 1);
    const heavy = uniform() < tail ? 1 + 3 * uniform() : 1;
    return (1 + 0.03 * Math.sin(phase + clock / 150)) * Math.exp(drift) * (1 + level * Math.abs(normal())) * heavy * (busy ? 1.4 : 1);
  };
  const side = (which, part, late) => {
    // Parts are cut differently by the two.
    const cut = parts > 1 ? 1 + 0.3 * Math.sin(part + 2 * which) : 1;
    const work = cut * (which ? time / truth : time) / parts;
    const repeats = Math.max(1, Math.round(Math.max(0.4, 20 * tick) / work));
    const spent = work * repeats * noise() * (late ? 1 : 1.01);
    clock += spent;
    return Math.round(spent / tick + uniform() - 0.5) * tick / repeats;
  };
  let sums = [0, 0];
  for (let part = 0; part < parts; part++) sums = sums.map((sum, which) => sum + (parts > 1 ? 1 + 0.3 * Math.sin(part + 2 * which) : 1));
  return {
    parts, long: time + time / truth > 4, truth: truth * sums[0] / sums[1],
    over: (limit) => (times) => clock > times * limit, clock: () => clock,
    async measure(part, order) {
      const early = side(order, part, false);
      const late = side(1 - order, part, true);
      clock += 0.1;
      return order ? { first: late, second: early } : { first: early, second: late };
    },
  };
}
"""  # noqa: E501

TRIALS = (
    CLOCK
    + """
const found = [];
for (const { count, grant, ...given } of <cases>) {
  const verdicts = {};
  let won = 0;
  const [clocks, errors] = [[], []];
  for (let trial = 0; trial < count; trial++) {
    // What is equal is equal as a whole, however it was cut.
    const one = machine(given);
    const { measure } = one;
    const fair = one.truth / given.truth;
    const pairs = { ...one, measure: async (part, order) => {
      const { first, second } = await measure(part, order);
      return { first, second: second * fair };
    } };
    const overs = [250, 500].map(one.over);
    const { verdict, wins, ratio } = await contest(pairs, { margin: MARGIN, grant }, overs);
    won += wins;
    verdicts[verdict] = (verdicts[verdict] ?? 0) + 1;
    clocks.push(one.clock());
    if (verdict === 'faster') errors.push(Math.log(ratio / given.truth));
  }
  clocks.sort((a, b) => a - b);
  const bias = errors.reduce((sum, error) => sum + error, 0) / errors.length;
  found.push({ verdicts, won, middle: clocks[count >> 1], most: clocks.at(-1), bias });
}
console.log(JSON.stringify(found));
"""
)

#: Milliseconds of the kernel in use, noise of one time, share of times that are much too long.
MACHINES: dict[str, dict[str, float]] = {
    "short": {"time": 0.3, "level": 0.03},
    "short, noisy": {"time": 0.3, "level": 0.15, "tail": 0.15},
    "short, coarse clock": {"time": 0.3, "level": 0.05, "tick": 0.1},
    "two parts": {"time": 3, "level": 0.03},
    "10 ms": {"time": 10, "level": 0.03},
    "10 ms, noisy": {"time": 10, "level": 0.15, "tail": 0.15},
    "10 ms, in one part": {"time": 10, "level": 0.03, "longest": 99},
    "40 ms": {"time": 40, "level": 0.03},
    "40 ms, noisy": {"time": 40, "level": 0.15, "tail": 0.15},
}
EQUAL, GAIN = 1000, 60
NEAR = 16 * GAIN  # of a gain whose share is near the bound


@cache
def trial(machine: str, truth: float, count: int = GAIN, grant: float = 1) -> dict[str, Any]:
    case = {**MACHINES[machine], "truth": truth, "count": count, "grant": grant}
    (found,) = run(TRIALS, cases=[case])
    return dict(found)


def trials(truth: float, grant: float) -> dict[str, dict[str, Any]]:
    return {machine: trial(machine, truth, grant=grant) for machine in MACHINES}


def adopted(found: dict[str, Any]) -> int:
    return int(found["verdicts"].get("faster", 0))


@pytest.mark.seldom(4)
@pytest.mark.parametrize("machine", MACHINES)
def test_equal_kernels_are_not_adopted(machine: str) -> None:
    """Fewer than 2 in 1000, on each machine."""
    found = trial(machine, 1.0, EQUAL)
    assert adopted(found) < 0.002 * EQUAL, found


@pytest.mark.parametrize("machine", [name for name in MACHINES if "noisy" not in name])
def test_a_gain_of_a_twentieth_is_found(machine: str) -> None:
    found = trial(machine, 1.05, NEAR)
    assert adopted(found) > 0.55 * NEAR, found


@pytest.mark.parametrize(("machine", "truth"), [("short", 1.03), ("short, coarse clock", 1.04)])
def test_a_gain_of_few_hundredths_is_found_where_runs_are_short(machine: str, truth: float) -> None:
    found = trial(machine, truth)
    assert adopted(found) > 0.55 * GAIN, found


def test_noise_hides_no_gain_of_a_twentieth_where_runs_are_short() -> None:
    """Ten pairs often say the opposite; many do not."""
    found = trial("short, noisy", 1.05)
    assert adopted(found) > 0.7 * GAIN, found


@pytest.mark.parametrize("machine", MACHINES)
def test_a_gain_of_a_fifth_is_found(machine: str) -> None:
    found = trial(machine, 1.2)
    assert adopted(found) > 0.8 * GAIN, found
    assert abs(found["bias"]) < 0.03, found


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_far_off_takes_few_pairs(machine: str) -> None:
    """Of a long kernel ten parts and ten more; else four rounds and four more."""
    time = MACHINES[machine]["time"]
    better, worse = trial(machine, 4.0), trial(machine, 0.25)
    assert adopted(better) == GAIN
    assert worse["verdicts"].keys() <= {"same", "slower"}
    if time > 5:
        disturbed = 1.6 * (1 if time > 20 else 4)
        assert better["middle"] < 2 * 1.25 * time * disturbed
        assert worse["middle"] < 5 * time * disturbed


def test_what_is_a_little_slower_is_given_up_early() -> None:
    """One round of a long kernel's many parts says it, where four are needed for an interval."""
    found = trial("40 ms", 0.93)
    assert adopted(found) == 0
    assert found["middle"] < 2 * 2 * 40 * 1.6


def test_what_is_no_better_is_given_up_after_two_rounds() -> None:
    """Of many parts; four rounds are for those that seem to be faster."""
    (found,) = run(
        TRIALS, cases=[{"time": 70, "level": 0.03, "truth": 0.99, "count": GAIN, "grant": 1}]
    )
    assert adopted(found) == 0
    assert found["middle"] < 2 * 2 * 70 * 1.6


def test_a_very_long_kernel_has_its_verdict_within_a_second() -> None:
    """Groups of its parts give an interval after two rounds, where rounds alone need eight."""
    same = {"time": 70, "level": 0.03, "grant": 1}
    found = run(TRIALS, cases=[{**same, "truth": t, "count": c} for t, c in [(1.2, 60), (1, 500)]])
    faster, equal = found
    assert adopted(faster) > 0.9 * 60, faster
    assert abs(faster["bias"]) < 0.03
    assert faster["middle"] < 1000
    assert adopted(equal) == 0, equal


UNDECIDED = """
import { compare } from 'TUNE/trial/paired_times.js';

const found = [];
for (const { granted, stop } of <cases>) {
  let count = 0;
  const measure = async () => ({ first: 0.913 + 0.2 * ((17 * count++) % 40) / 39, second: 1 });
  const over = (times) => count >= times * stop;
  const { pairs, ratio } = await compare({ measure, parts: 1, long: false, granted }, 1.01, over);
  found.push([pairs, ratio]);
}
console.log(JSON.stringify(found));
"""


def test_what_stays_undecided_ends() -> None:
    """After as many pairs as there are at most, or within two pairs of twice the time."""
    cases = [(False, 10_000), (True, 10_000), (False, 61)]
    found = run(UNDECIDED, cases=[{"granted": g, "stop": s} for g, s in cases])
    assert [pairs for pairs, _ in found] == [320, 80, 122]
    assert all(ratio > 1.005 for _, ratio in found)


def test_a_kernel_that_is_many_times_as_fast_takes_four_parts() -> None:
    """And four more: the kernel in use may take a second, of which this is a fifth."""
    found = trial("40 ms", 20.0)
    assert adopted(found) == GAIN
    assert found["middle"] < 2 * 4 * (2 + 0.1 + 0.1) * 1.6


#: As web/tune/loop/objective.js grants it to who needs less.
GRANT = 1.04


def test_who_need_not_be_faster_must_not_be_slower() -> None:
    """Equal ones mostly win where it is quiet, 2 % slower ones hardly ever, 3 % slower never."""
    equal, two, three = (trials(truth, GRANT) for truth in (1.0, 0.98, 0.97))
    quiet = [name for name in MACHINES if "noisy" not in name]
    assert sum(equal[name]["won"] for name in quiet) > 0.5 * GAIN * len(quiet), equal
    assert sum(found["won"] for found in two.values()) < 0.02 * GAIN * len(two), two
    assert not any(found["won"] for found in three.values()), three


def test_what_is_granted_is_no_gain() -> None:
    """The verdict and the figures are what was measured."""
    equal, better = trials(1.0, GRANT), trials(1.2, GRANT)
    assert sum(adopted(found) for found in equal.values()) < 0.01 * GAIN * len(equal), equal
    for name, found in better.items():
        assert abs(found["bias"]) < 0.03, (name, found)


@pytest.mark.seldom(4)
@pytest.mark.parametrize("machine", MACHINES)
def test_without_a_grant_who_is_faster_wins(machine: str) -> None:
    for truth, count in ((1.0, EQUAL), (1.05, NEAR), (1.2, GAIN)):
        found = trial(machine, truth, count)
        assert found["won"] == adopted(found)


INTERVALS = (
    CLOCK
    + """
import { compare } from 'TUNE/trial/paired_times.js';
import { interval, judged } from 'TUNE/trial/statistics.js';

const never = () => false;
const orders = async (parts) => {
  const seen = Array.from({ length: parts }, () => [0, 0]);
  const measure = async (part, order) => {
    seen[part][order]++;
    return { first: 1 + 0.5 * uniform(), second: 1 + 0.5 * uniform() - 0.0001 * part };
  };
  await compare({ measure, parts, long: false }, 1e9, never);
  return seen;
};
const broken = async (every) => {
  let calls = 0;
  const measure = async () => (++calls % every ? { first: 1 + uniform(), second: 1 + uniform() } : null);
  return { ...await contest({ measure, parts: 1, long: false }, { margin: 0.99, grant: 1 }, [never, never]), calls };
};
const pairs = (ratios) => ratios.map((ratio) => ({ first: ratio, second: 1 }));
console.log(JSON.stringify({
  few: interval([0.5, 0.6, 0.7]).high === Infinity,
  outlier: interval([...Array.from({ length: 20 }, (_, at) => at / 1000), 1e6]),
  none: judged([], 1).low === 0,
  half: judged(pairs([2]), 2).low === 0,
  far: judged(pairs([2, 3, 2, 4]), 1), near: judged(pairs([2, 3, 1.2, 4]), 1), behind: judged(pairs([0.5, 0.2, 0.7, 0.1]), 1),
  sums: judged([[1, 2], [3, 2]].map(([first, second]) => ({ first, second })), 2),
  clipped: judged(Array.from({ length: 20 }, (_, at) => ({ first: at === 7 ? 100 : 1, second: 1 })), 2),
  orders: [await orders(1), await orders(2), await orders(5)],
  always: await broken(1), often: await broken(2), seldom: await broken(4),
}));
"""  # noqa: E501
)


@cache
def parts() -> Any:
    return run(INTERVALS)


def test_too_few_values_decide_nothing() -> None:
    found = parts()
    assert found["few"]
    assert found["none"]
    assert found["half"]


def test_an_outlier_moves_little() -> None:
    assert parts()["outlier"]["centre"] < 0.05
    assert parts()["clipped"]["ratio"] == pytest.approx(1)


def test_few_rounds_that_are_far_off_decide() -> None:
    found = parts()
    assert found["far"]["low"] == 1.25
    assert found["near"]["low"] == 0
    assert found["behind"]["high"] == 0.8


def test_only_sums_are_compared() -> None:
    assert parts()["sums"]["ratio"] == pytest.approx(1)


def test_each_kernel_is_the_first_one_as_often() -> None:
    for number in parts()["orders"]:
        for first, second in number:
            assert abs(first - second) <= 1


def test_interruptions_end_a_comparison() -> None:
    """Nothing is said of the candidate then, and nobody waits for ever."""
    found = parts()
    always = found["always"]
    assert (always["verdict"], always["undecided"], always["ratio"]) == ("same", True, None)
    assert always["calls"] < 100
    assert not found["often"]["undecided"]
    assert not found["seldom"]["undecided"]
