"""Engines that go on after a lost device (web/engine/restart.js), with engines that are
made up: a new start may fail, and is tried again by the next job."""

from __future__ import annotations

from typing import Any

from node import run

SCRIPT = """
const { EngineError } = await import('TUNE/../engine/errors.js');
const { restarting } = await import('TUNE/../engine/restart.js');
const { loses, fails } = <given>;
let starts = 0;
const told = [];
// Number of the start, of which those listed lose their device, or fail.
function made() {
  const number = starts++;
  if (fails.includes(number)) throw new EngineError('unsupported-host', 'This browser gives no WebGPU adapter');
  let disposed = false;
  const job = async () => {
    if (disposed) throw new EngineError('disposed', 'The engine was disposed');
    if (loses.includes(number)) throw new EngineError('host', 'The GPU device was lost: why', '', { lost: true });
    return number;
  };
  const parts = { manifest: { states: [] }, lent: new Set(), again: async () => made() };
  return {
    get info() { return { digest: 'd', lost: ['usual'] }; },
    get parts() { return parts; },
    states: { names: [] },
    run: job, time: job, profile: job,
    dispose: () => (disposed = true),
    onjob() {},
  };
}
const engine = restarting(made());
engine.onlost = ({ lost }) => told.push(lost.length);
const seen = [];
for (let job = 0; job < 3; job++) {
  const both = await Promise.all([engine.run(), engine.run()].map((one) => one.catch(({ code }) => code)));
  await null;
  seen.push({ both, lost: engine.info.lost });
}
engine.dispose();
const after = await engine.run().catch(({ code }) => code);
console.log(JSON.stringify({ seen, told, starts, after }));
"""  # noqa: E501


def recovers(loses: list[int], fails: list[int]) -> Any:
    return run(SCRIPT, given={"loses": loses, "fails": fails})


LOST = "The GPU device was lost: why. The engine has a new device."
FAILED = "The engine could not start again: This browser gives no WebGPU adapter."


def test_jobs_go_on_after_a_new_start() -> None:
    found = recovers([0], [])
    assert found["seen"] == [{"both": [1, 1], "lost": ["usual", LOST]}] * 3
    assert found["told"] == [2]
    assert found["after"] == "disposed"


def test_a_new_start_that_fails_is_tried_again_by_the_next_job() -> None:
    """Jobs that waited for it reject, and the engine says why while it has none."""
    found = recovers([0], [1])
    first, *later = found["seen"]
    assert first == {"both": ["unsupported-host"] * 2, "lost": ["usual", FAILED]}
    assert later == [{"both": [2, 2], "lost": ["usual", LOST]}] * 2
    assert found["starts"] == 3
    assert found["told"] == [2]


def test_devices_that_are_lost_one_after_the_other() -> None:
    found = recovers([0, 1, 2, 3], [])
    assert found["seen"][-1]["both"] == ["host", "host"]
    assert found["starts"] == 4
