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
const { finest, pairsOf, quick, readClock, warm } = await import('TUNE/trial/timing.js');
const { contest } = await import('TUNE/trial/pairs.js');
readClock();
const runners = costs.map((cost) => ({
  tiles, run: (first, last) => { now += (last - first) / tiles * cost; },
}));
const [other, runner] = runners;
await warm(other, NaN);
const least = await quick(other);
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
