"""The choice between two devices by their times (web/engine/auto.js), on times and clocks that are
made up."""

from __future__ import annotations

from typing import Any

import pytest
from node import run

JUDGE = """
const { judged } = await import('TUNE/../engine/auto.js');
console.log(JSON.stringify(judged(<times>)));
"""

# Each device has its list of milliseconds; a run moves the clock, and one of null never ends.
RACE = """
const { raced } = await import('TUNE/../engine/auto.js');
const lists = <times>;
let now = 0;
const counts = { wasm: 0, webgpu: 0 };
globalThis.setTimeout = (late, wait, ...given) => {
  if (stuck) queueMicrotask(() => { now += wait; late(...given); });
};
let stuck = false;
const runOf = (device) => async () => {
  const times = lists[device];
  const time = times[Math.min(counts[device]++, times.length - 1)];
  if (time === null) {
    stuck = true;
    return new Promise(() => {});
  }
  now += time;
};
const found = await raced({ wasm: runOf('wasm'), webgpu: runOf('webgpu') }, () => now);
console.log(JSON.stringify({ ...found, counts, now }));
"""


def judge(wasm: list[float], webgpu: list[float]) -> Any:
    return run(JUDGE, times={"wasm": wasm, "webgpu": webgpu})


def race(wasm: list[float | None], webgpu: list[float | None]) -> Any:
    return run(RACE, times={"wasm": wasm, "webgpu": webgpu})


@pytest.mark.parametrize(
    ("wasm", "webgpu", "chosen", "clear"),
    [
        ([200, 10, 11, 12], [200, 3, 3, 4], "webgpu", True),
        ([200, 3, 3, 4], [200, 10, 11, 12], "wasm", True),
        ([200, 3, 9, 4], [200, 8, 11, 12], "wasm", False),
        ([200, 3, 3], [200, 10, 11], "wasm", False),
        ([200, 5, 5, 5], [200, 5, 5, 5], "wasm", False),
        ([900], [80], "webgpu", False),
    ],
    ids=["GPU", "processor", "overlap", "few", "tie", "only cold"],
)
def test_verdicts(wasm: list[float], webgpu: list[float], chosen: str, clear: bool) -> None:
    found = judge(wasm, webgpu)
    assert (found["chosen"], found["clear"]) == (chosen, clear)


def test_cold_runs_do_not_count() -> None:
    """WebAssembly begins ten times slower, and is the faster one when it is warm."""
    found = judge([100, 60, 4, 5, 4], [20] * 12)
    assert found["milliseconds"] == {"wasm": 4, "webgpu": 20}
    assert found["chosen"] == "wasm"


def test_it_stops_when_the_verdict_is_clear() -> None:
    found = race([100, 60, 4], [40])
    assert (found["chosen"], found["clear"]) == ("wasm", True)
    assert found["counts"]["wasm"] == found["counts"]["webgpu"] == 7
    assert found["now"] < 1200


def test_it_stops_at_the_end_of_its_budget() -> None:
    found = race([10, 11] * 80, [11, 10] * 80)
    assert not found["clear"]
    assert 1200 <= found["now"] < 1230


def test_a_slow_model_is_run_once_on_each() -> None:
    found = race([4000], [900])
    assert found["chosen"] == "webgpu"
    assert found["counts"] == {"wasm": 1, "webgpu": 1}


def test_a_run_without_end_is_not_waited_for() -> None:
    found = race([10], [None])
    assert (found["chosen"], found["late"]) == ("wasm", "webgpu")
    assert found["milliseconds"]["webgpu"] >= 1000


def test_a_stall_does_not_void_earlier_runs() -> None:
    found = race([40, 40, 20] * 9, [30] * 8 + [None])
    assert (found["chosen"], found["late"]) == ("webgpu", "webgpu")
    assert found["milliseconds"] == {"wasm": 40, "webgpu": 30}
