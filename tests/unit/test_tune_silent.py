"""A GPU that a candidate took (unresponsive_gpu.js, guard.js), with engines that are made
up and a clock that the test turns: the engine starts again elsewhere within five seconds."""

from __future__ import annotations

from typing import Any

import pytest
from clock import CLOCK
from node import run
from tuned_page import PAGE

SCRIPT = (
    CLOCK
    + """
freely();
const { guardOf } = await import('TUNE/exchange/guard.js');
const { EngineError } = await import('TUNE/../engine/errors.js');
// By start: how its device answers a probe, what a run does there, how the start itself ends.
const { starts, states = [], run: usual = 1, wasm = 'runs', open = true } = <given>;
globalThis.navigator?.locks && Object.defineProperty(globalThis, 'navigator', { value: {} });
const forever = () => new Promise(() => {});
const lost = () => { throw new EngineError('host', 'The GPU device was lost', 'hint', { lost: true }); };
let made = 0;
let aborted = 0;
const devices = [];

async function again({ signal, onProgress } = {}) {
  const how = starts[made]?.start ?? 'comes';
  if (how === 'none') { made++; throw new EngineError('unsupported-host', 'no adapter', 'hint'); }
  if (how === 'never') {
    made++;
    return new Promise((_, reject) => signal.addEventListener('abort', () => (aborted++, reject(signal.reason))));
  }
  if (how === 'slow') for (let part = 0; part < 3; part++) { await sleep(900); onProgress({}); }
  return engineOn('webgpu');
}

async function elsewhere() {
  if (wasm === 'fails') throw new EngineError('unsupported-host', 'no code for it', 'hint');
  return engineOn('wasm');
}

function engineOn(device) {
  const { probe = 'answers', runs = 'well' } = device === 'wasm' ? {} : starts[made] ?? {};
  const number = made++;
  devices.push(device);
  let end;
  const ended = new Promise((_, reject) => (end = reject));
  ended.catch(() => {});
  let disposed = false;
  return {
    get info() {
      return { device, plans: [{ flops: 1 }], url: 'https://a.example/m/', digest: 'd', tool: 't', variant: { name: device }, features: {}, lost: ['usual'] };
    },
    parts: {
      device, memory: null, lent: new Set(), manifest: { states }, program: { plans: [], memory: {} }, limits: {}, again, elsewhere,
      probe: { answers: async () => {}, never: forever, lost: async () => lost(), slow: () => sleep(1500) }[probe],
    },
    states: { names: [] },
    onjob() {},
    async run(what) {
      if (disposed) throw new EngineError('disposed', 'The engine was disposed', 'hint');
      if (what === 'first') await sleep(usual);
      else if (runs === 'never') await ended;
      else if (runs === 'lost') lost();
      return { milliseconds: usual, number };
    },
    time: async () => ({}), profile: async () => ({}), swap: async () => {}, preempt() {},
    dispose() {
      disposed = true;
      end(new EngineError('host', 'The engine was disposed', 'hint'));
    },
  };
}

const engine = engineOn('webgpu');
guardOf(engine).install();
const told = [];
engine.onlost = ({ device }) => told.push(device);
await engine.run('first');
const answered = async () => engine.run('more').then(({ number }) => number, ({ code, hint, facts }) => ({ code, hint: Boolean(hint), restarted: Boolean(facts.restarted) }));
const begin = time;
const waiting = open ? answered() : null;
const moved = await guardOf(engine).outlive().catch(({ code, message }) => ({ code, message }));
const took = time - begin;
const seen = [await waiting, await answered(), await answered()];
console.log(JSON.stringify({ moved, took, seen, devices, aborted, told, lost: engine.info.lost, on: engine.info.device }));
process.exit(0);
"""  # noqa: E501
)

#: Milliseconds within which an engine goes on.
MOST = 5000
SILENT = {"probe": "never", "runs": "never"}
HUNG = "The GPU did not answer after a candidate was tried."


def outlived(*starts: dict[str, str], **given: Any) -> Any:
    return run(SCRIPT, given={"starts": starts} | given)


def test_a_device_that_answers_is_kept() -> None:
    found = outlived({})
    assert found["moved"] is False
    assert found["seen"] == [0, 0, 0]
    assert (found["devices"], found["told"], found["lost"]) == (["webgpu"], [], ["usual"])


def test_a_run_that_waits_gets_its_result_from_a_new_device() -> None:
    found = outlived(SILENT)
    assert found["moved"] is True
    assert found["took"] <= MOST
    assert found["seen"] == [1, 1, 1]
    assert (found["devices"], found["told"]) == (["webgpu"] * 2, ["webgpu"])
    assert found["lost"] == ["usual", f"{HUNG} The engine has a new device."]


@pytest.mark.parametrize(("start", "aborted"), [("never", 1), ("none", 0)])
def test_without_a_new_device_webassembly_goes_on(start: str, aborted: int) -> None:
    """Also where nobody ever says that there is none."""
    found = outlived(SILENT, {"start": start})
    assert found["took"] <= MOST
    assert found["seen"] == [2, 2, 2]
    assert (found["on"], found["told"], found["aborted"]) == ("wasm", ["wasm"], aborted)
    assert "went over to WebAssembly" in found["lost"][-1]


def test_a_start_that_shows_progress_is_awaited() -> None:
    """A large model takes longer."""
    found = outlived(SILENT, {"start": "slow"})
    assert (found["seen"], found["on"], found["aborted"]) == ([1, 1, 1], "webgpu", 0)


def test_a_device_that_is_lost_after_the_hang() -> None:
    """The browser ended its GPU process: as if the device were silent."""
    found = outlived({"probe": "lost", "runs": "never"}, {"start": "none"})
    assert (found["seen"], found["on"]) == ([2, 2, 2], "wasm")
    later = outlived(SILENT, {"runs": "lost"}, {"start": "never"})
    assert (later["seen"], later["on"]) == ([3, 3, 3], "wasm")
    assert later["devices"] == ["webgpu", "webgpu", "wasm"]


def test_neither_a_device_nor_webassembly() -> None:
    """Runs reject, and the next one tries again."""
    found = outlived(SILENT, {"start": "never"}, {"start": "none"}, wasm="fails")
    assert found["moved"]["code"] == "host"
    assert "no code for it" in found["moved"]["message"]
    assert found["took"] <= MOST
    refused = {"code": "host", "hint": True, "restarted": False}
    assert found["seen"] == [refused, 3, 3]
    assert (found["on"], found["told"]) == ("webgpu", ["webgpu"])


@pytest.mark.parametrize("open_", [True, False], ids=["in flight", "later"])
def test_states_that_are_gone_are_told_once(open_: bool) -> None:
    """By the run that was open, or by the next one: it would go on from zeros."""
    found = outlived(SILENT, states=["s"], open=open_)
    gone = {"code": "host", "hint": True, "restarted": True}
    assert found["seen"] == ([gone, 1, 1] if open_ else [None, gone, 1])


def test_a_device_that_is_busy_with_a_long_run_is_kept() -> None:
    assert outlived({"probe": "slow"}, run=1000)["moved"] is False
    assert outlived({"probe": "slow"}, run=1)["moved"] is True


LISTENING = """
const { listening } = await import('TUNE/exchange/unresponsive_gpu.js');
const { device, slowest, answers } = <given>;
let looks = 0;
const pending = [];
const probe = () => new Promise((resolve) => pending.push(resolve));
const silent = listening({ device, probe }, () => slowest);
const seen = [];
for (; looks < 24; looks++) {
  seen.push(silent(2000, 250));
  if (answers.includes(looks)) pending.pop()();
  await new Promise((resolve) => setImmediate(resolve));
}
console.log(JSON.stringify({ first: seen.indexOf(true), asked: pending.length }));
"""


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ({}, 9),
        ({"answers": [7]}, 17),
        ({"answers": list(range(0, 24, 4))}, -1),
        ({"slowest": 2000}, 17),
        ({"device": "wasm"}, -1),
    ],
)
def test_a_device_is_silent_after_two_seconds(given: dict[str, Any], first: int) -> None:
    """Of looks every 250 ms since it was asked; a run of its own may take longer."""
    given = {"device": "webgpu", "slowest": 0, "answers": []} | given
    assert run(LISTENING, given=given)["first"] == first


SESSION = """
const order = [];
// It is tuned as if it were WebAssembly, until its device matters.
Object.assign(engine.info, { device: 'webgpu', lost: [] });
acts.attempt = () => (engine.parts.device = 'webgpu');
engine.parts.probe = async () => {
  const keys = [...stored.keys()];
  order.push({ keys, noted: (await recall(engine)).bad });
  return new Promise(() => {});
};
acts.again = () => order.push('again');
const fresh = engine.parts.again;
engine.parts.again = async () => {
  throw new EngineError('unsupported-host', 'no adapter', 'hint');
};
engine.parts.elsewhere = async () => {
  const made = await fresh();
  made.parts.device = 'wasm';
  const info = { ...made.info, device: 'wasm', lost: [] };
  return Object.defineProperty(made, 'info', { get: () => info });
};
await session();
await sleep(10);
await out({ order, keys: [...stored.keys()], lost: engine.info.lost });
"""


def test_the_candidate_is_noted_before_the_device_is_given_up() -> None:
    """In the device's own record: that of the device where the engine goes on stays as it is."""
    found = run(
        PAGE + SESSION, given={"candidates": [1, 2], "outcome": {"verdict": "hung", "module": None}}
    )
    first, then = found["order"]
    assert [("device=webgpu" in key) for key in first["keys"]] == [True]
    assert first["noted"] == {"0": [1]}
    assert then == "again"
    assert found["keys"] == first["keys"]
    assert found["verdicts"] == ["hung"]
    assert found["events"][-2:] == ["fault", "end"]
    assert "went over to WebAssembly" in found["lost"][0]
