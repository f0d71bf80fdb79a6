"""The verdict on pairs of times (web/tune/statistics.js), on clocks whose truth is known.

Node runs it; the noise is made up, so nothing here depends on a machine.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from node import run

TRIALS = 200

SCRIPT = """
import { interval, judged } from 'TUNE/statistics.js';

let state = 12345;
const uniform = () => {
  state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
  return (state >>> 0) / 4294967296;
};
const normal = () => Math.sqrt(-2 * Math.log(uniform() + 1e-12)) * Math.cos(2 * Math.PI * uniform());
// Disturbances only ever add time, now and then a lot of it.
const noise = (level) => (1 + level * Math.abs(normal())) * (uniform() < 0.05 ? 1 + 3 * uniform() : 1);

function session(truth, level, parts, rounds) {
  const pairs = [];
  for (let turn = 0; turn < parts * rounds; turn++) {
    const part = turn % parts;
    // Parts are cut differently by the two.
    const cut = parts > 1 ? 1 + 0.3 * Math.sin(part) : 1;
    pairs.push({ part, first: noise(level), second: cut * noise(level) / truth });
  }
  let sum = 0;
  for (let part = 0; part < parts; part++) sum += parts > 1 ? 1 + 0.3 * Math.sin(part) : 1;
  return { ...judged(pairs, parts), truth: truth * parts / sum };
}

const cases = <cases>;
console.log(JSON.stringify({
  cases: cases.map(([truth, level, parts, rounds]) => Array.from({ length: <trials> }, () => session(truth, level, parts, rounds))),
  few: interval([0.5, 0.6, 0.7]).high === Infinity,
  outlier: interval([...Array.from({ length: 20 }, (_, at) => at / 1000), 1e6]),
  none: judged([], 1).low === 0,
  gap: judged([{ part: 0, first: 1, second: 1 }], 2),
}));
"""  # noqa: E501

#: True ratio, level of noise, parts, rounds (or pairs).
CASES = [
    (1.0, 0.05, 1, 40),
    (1.0, 0.05, 6, 4),
    (1.0, 0.02, 30, 3),
    (1.1, 0.05, 1, 40),
    (1.1, 0.05, 6, 8),
    (1.1, 0.02, 30, 3),
]


@cache
def results() -> Any:
    return run(SCRIPT, cases=CASES, trials=TRIALS)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_the_interval_holds_the_truth(number: int) -> None:
    found = results()["cases"][number]
    held = [f["low"] <= f["truth"] <= f["high"] for f in found]
    assert sum(held) >= 0.95 * TRIALS


@pytest.mark.parametrize("number", range(3))
def test_equal_kernels_are_not_called_faster(number: int) -> None:
    found = results()["cases"][number]
    assert sum(f["low"] > 1.01 * max(1, f["truth"]) for f in found) <= 0.02 * TRIALS


@pytest.mark.parametrize("number", range(3, 6))
def test_a_tenth_is_seen(number: int) -> None:
    found = results()["cases"][number]
    assert sum(f["low"] > 1.01 * f["truth"] / 1.1 for f in found) >= 0.9 * TRIALS


def test_too_few_values_decide_nothing() -> None:
    found = results()
    assert found["few"]
    assert found["none"]
    assert found["gap"]["low"] == 0


def test_an_outlier_moves_little() -> None:
    outlier = results()["outlier"]
    assert outlier["centre"] < 0.05
