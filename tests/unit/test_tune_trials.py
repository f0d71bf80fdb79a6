"""The page's side of the trial worker (web/tune/trial/trials.js), beside a worker that is made up.

The worker's own side runs in real browsers: tests/browser/test_tuning_trials.py.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from clock import CLOCK
from node import run

SCRIPT = """
import { openTrials } from 'TUNE/trial/trials.js';

freely();
const workers = [];
/** What the next workers do with a request; by default they give a verdict. */
let acts = {};
globalThis.Worker = class {
  constructor(url, options) {
    if (acts.refuse) throw new Error('no workers here');
    this.heard = [];
    this.ended = false;
    this.listeners = {};
    workers.push(this);
    if (acts.missing) setTimeout(() => this.listeners.error({ preventDefault() {} }), 5);
  }
  addEventListener(name, listener) { this.listeners[name] = listener; }
  say(data) { if (!this.ended) this.listeners.message({ data }); }
  terminate() { this.ended = true; }
  postMessage(data) {
    this.heard.push(data);
    const act = acts[data.kind ?? 'pause'];
    const answer = { id: data.id, value: { verdict: 'same' } };
    if (act) act(this, data, answer);
    else if (data.kind && !acts.missing) setTimeout(() => this.say(answer), 1);
  }
};
const trials = (more = {}) => openTrials({ code: new ArrayBuffer(8), slots: 1, bytes: 1 << 30, scratchBytes: 0, patience: 500, ...more });
const real = (bytes) => ({ bytes, real: new Uint8Array(bytes) });
const work = (spec, bytes = 1000, more = {}) => ({ spec, bytes, facts: () => ({ buffers: [{ bytes, real: null }] }), candidate: { digest: 'd' }, ...more });
const outcome = (promise) => Promise.race([
  promise.then(({ verdict, why }) => ({ verdict, why }), ({ code, message }) => ({ code, message })),
  sleep(1e6).then(() => 'waits'),
]);
const seen = {};

// Runs come one after the other; the candidate never returns from its first call.
async function paused(late) {
  acts = {
    attempt: (worker) => worker.say({ trying: true }),
    pause: (worker, { pause }) => {
      if (!late || pause) return;
      worker.say({ rests: 1 });
      late = false;
    },
  };
  const one = trials();
  let on = false;
  const toggling = setInterval(() => one.pause(on = !on), 200);
  const found = await outcome(one.attempt(work(1)));
  clearInterval(toggling);
  return found;
}
seen.hangs = await paused(false);
seen.late = await paused(true);

// Its worker beats, but the page's own device does not answer.
acts = { attempt: (worker) => {
  worker.say({ trying: true });
  setInterval(() => worker.say({ beat: true }), 50);
} };
{
  let silence = 0;
  const begun = time;
  const one = trials({ silent: (limit, each) => each * ++silence > limit });
  seen.taken = { ...await outcome(one.attempt(work(1))), took: time - begun };
}

// A pause that is much longer than any patience.
acts = {
  attempt: (worker, data, answer) => (worker.answer = answer),
  pause: (worker, { pause }) => {
    if (pause) worker.say({ rests: pause });
    else if (worker.answer) setTimeout(() => worker.say(worker.answer), 5);
  },
};
{
  const one = trials();
  const found = outcome(one.attempt(work(1)));
  await sleep(5);
  one.pause(true);
  await sleep(100_000);
  one.pause(false);
  seen.rests = await found;
}
// Slow, but alive; and alive for ever.
acts = { attempt: (worker, data, answer) => {
  const beats = setInterval(() => worker.say({ beat: true }), 500);
  setTimeout(() => (clearInterval(beats), worker.say(answer)), 4000);
} };
seen.slow = await outcome(trials().attempt(work(1)));
acts = { attempt: (worker) => {
  worker.say({ trying: true });
  const beats = setInterval(() => (worker.ended ? clearInterval(beats) : worker.say({ beat: true })), 200);
} };
seen.endless = await outcome(trials({ patience: 100 }).attempt(work(1)));

// Faults of the host, and a right trial by the same object after each of them.
async function host(fault, more = {}, options = {}) {
  acts = fault;
  const one = trials(options);
  const first = await outcome(one.attempt(work(1, 1000, more)));
  acts = {};
  return [first, await outcome(one.attempt(work(1)))];
}
const fails = (worker, { id }) => setTimeout(() => worker.say({ id, error: 'RangeError: no memory' }), 1);
seen.faults = {
  refuse: await host({ refuse: true }),
  missing: await host({ missing: true }),
  memory: await host({ open: fails }),
  dead: await host({ open: () => {} }, {}, { patience: 100 }),
  within: await host({ attempt: fails }),
  silent: await host({ attempt: () => {} }),
  post: await host({ attempt: () => { throw new Error('cannot be cloned'); } }),
  facts: await host({}, { facts: () => { throw new Error('torn'); } }),
  crash: await host({ attempt: (worker) => worker.listeners.error({ message: 'gone', preventDefault() {} }) }),
};
// Messages of a worker that was ended say nothing of the next one.
seen.closed = await (async () => {
  acts = { open: () => {} };
  const one = trials();
  const first = outcome(one.attempt(work(1)));
  await sleep(5);
  one.close();
  return [await first, await outcome(one.attempt(work(1)))];
})();

// Memory: facts are told once; large kernels are forgotten; so is a large worker.
acts = {};
{
  const one = trials();
  const before = workers.length;
  const facts = () => ({ buffers: [{ bytes: 8, real: null }, real(64)] });
  await one.attempt(work(1, 72, { facts }));
  await one.attempt(work(1, 72, { facts }));
  seen.told = workers.at(-1).heard.filter(({ kind }) => kind === 'attempt').map(({ params }) => params.facts !== null);
  await one.attempt(work(2, 80 << 20));
  await one.attempt(work(3, 80 << 20));
  seen.forgets = workers.at(-1).heard.at(-1).params.forget;
  const started = workers.length;
  for (let time = 0; time < 8; time++) await one.attempt(work(4));
  seen.kept = workers.length - started;
  for (let time = 0; time < 4; time++) await one.attempt(work(4));
  seen.exchanged = workers.length - started;
  seen.ended = workers.slice(before).map(({ ended }) => ended);
}

// What was timed is warm sooner in a later trial: the bundle's own, or a candidate that won.
{
  acts = { attempt: (worker, data, answer) => setTimeout(() => worker.say({ ...answer, value: { verdict: 'same', times: [4, 3] } }), 1) };
  const one = trials();
  for (const [spec, incumbent] of [[1, null], [1, null], [1, { digest: 'd' }], [1, { digest: 'e' }], [2, null]]) {
    await one.attempt(work(spec, 1000, { incumbent }));
  }
  seen.usual = workers.at(-1).heard.filter(({ kind }) => kind === 'attempt').map(({ params }) => params.usual);
  one.close();
}

// A device is lost once, or each time; in the trial, or in the confirmation of a winner.
{
  const told = (verdicts) => ({ attempt: (worker, data, answer) => setTimeout(() => worker.say({ ...answer, value: { milliseconds: 1, stages: {}, ...verdicts.shift() } }), 1) });
  const lost = { verdict: 'trapped', why: 'lost', gone: true };
  const won = { verdict: 'faster', module: 'm' };
  seen.lost = {};
  for (const [name, verdicts] of Object.entries({ once: [lost, { verdict: 'same' }], twice: [lost, lost], confirmed: [won, lost, won], unconfirmed: [won, lost, lost] })) {
    const since = workers.length;
    acts = told(verdicts);
    const one = trials();
    const { verdict } = await one.attempt(work(1));
    seen.lost[name] = [verdict, workers.length - since];
    one.close();
  }
}

// It is lost, and no other comes.
{
  acts = {
    attempt: (worker, data, answer) => {
      acts = { open: (other, { id }) => setTimeout(() => other.say({ id, error: 'no adapter' }), 1) };
      worker.say({ ...answer, value: { verdict: 'trapped', why: 'lost', gone: true, milliseconds: 1, stages: {} } });
    },
  };
  const one = trials();
  seen.alone = await outcome(one.attempt(work(1)));
  one.close();
}

// A trial's GPU must be the engine's.
{
  acts = {};
  const one = trials({ powerPreference: 'low-power' });
  await one.attempt(work(1));
  seen.preference = workers.at(-1).heard[0].params.powerPreference;
  one.close();
}

// A second device may be refused while the first one lives.
{
  const since = workers.length;
  acts = {};
  const one = trials({ early: true, patience: 100 });
  await one.attempt(work(1));
  const reserve = workers.at(-1);
  reserve.say({ id: reserve.heard[0].id, error: 'no adapter' });
  acts = { attempt: (worker, data, answer) => setTimeout(() => worker.say({ ...answer, value: { verdict: 'wrong', milliseconds: 1 } }), 1) };
  await one.attempt(work(1));
  acts = {};
  await one.attempt(work(1));
  seen.refused = workers.slice(since).map(({ ended }) => ended);
  one.close();
}

// Where it takes long to start a worker, another one is ready: the next fresh one, unless it broke or something hung.
{
  const told = (verdict) => ({ attempt: (worker, data, answer) => setTimeout(() => worker.say({ ...answer, value: verdict(data.params) }), 1) });
  const since = workers.length;
  const kinds = () => workers.slice(since).map(({ heard, ended }) => [heard.map(({ kind, ahead, params }) => (params?.confirm ? 'confirm' : kind ?? (ahead && `ahead ${ahead.tiles}`))).filter(Boolean).join(), ended]);
  acts = {};
  const one = trials({ early: true, patience: 100 });
  await one.attempt(work(1));
  one.ahead({ module: 'm', tiles: 7 });
  seen.reserve = kinds();
  acts = told(() => ({ verdict: 'faster', module: 'm', milliseconds: 1 }));
  await one.attempt(work(1));
  seen.confirmed = kinds();
  workers.at(-1).listeners.error({ message: 'gone', preventDefault() {} });
  acts = told(() => ({ verdict: 'wrong', milliseconds: 1 }));
  await one.attempt(work(1));
  acts = {};
  await one.attempt(work(1));
  seen.broken = kinds();
  acts = { attempt: (worker) => worker.say({ trying: true }) };
  await one.attempt(work(1));
  seen.dropped = kinds().map(([, ended]) => ended);
  one.close();
  seen.none = workers.slice(since).every(({ ended }) => ended);
}
console.log(JSON.stringify(seen));
process.exit(0);
"""  # noqa: E501


@cache
def found() -> Any:
    return run(CLOCK + SCRIPT)


def test_a_hang_is_noticed_while_runs_pause_the_trial() -> None:
    assert found()["hangs"]["verdict"] == "hung"
    assert "no sign of life" in found()["hangs"]["why"]


def test_a_pause_that_is_over_excuses_nobody() -> None:
    """Word of it may come late, when the candidate runs again and hangs."""
    assert found()["late"]["verdict"] == "hung"


def test_a_candidate_that_took_the_pages_device_hangs() -> None:
    """Whatever its own worker says, as it may while a driver compiles."""
    taken = found()["taken"]
    assert (taken["verdict"], taken["why"]) == (
        "hung",
        "the engine's GPU did not answer for 0.25 s",
    )
    assert taken["took"] <= 1000


def test_a_rest_is_no_hang() -> None:
    assert found()["rests"]["verdict"] == "same"


def test_what_gives_signs_of_life_may_take_long() -> None:
    assert found()["slow"]["verdict"] == "same"


def test_but_not_for_ever() -> None:
    assert found()["endless"]["verdict"] == "hung"
    assert "not done" in found()["endless"]["why"]


def test_faults_of_the_host_are_no_verdicts() -> None:
    for name, (first, later) in found()["faults"].items():
        assert first.get("code") == "host", name
        assert later["verdict"] == "same", name


def test_closed_trials_end_at_once() -> None:
    assert [f["code"] for f in found()["closed"]] == ["disposed", "disposed"]


def test_a_device_that_is_lost_for_good_is_the_fault_of_a_candidate() -> None:
    assert found()["alone"] == {"verdict": "trapped", "why": "lost"}


def test_a_lost_device_is_the_fault_of_a_candidate_only_if_it_is_lost_again() -> None:
    """It is tried again in a fresh worker; so is its confirmation, which has one of its own."""
    assert found()["lost"] == {
        "once": ["same", 2],
        "twice": ["trapped", 2],
        "confirmed": ["faster", 3],
        "unconfirmed": ["trapped", 3],
    }


def test_a_trial_is_on_the_gpu_that_the_page_prefers() -> None:
    assert found()["preference"] == "low-power"


def test_facts_are_told_once() -> None:
    assert found()["told"] == [True, False]


def test_how_fast_a_kernel_was_is_told_again() -> None:
    assert found()["usual"] == [None, 4, 3, None, None], "JSON has no NaN"


def test_memory_does_not_stay_large() -> None:
    assert found()["forgets"] == [2]
    assert found()["kept"] == 0
    assert found()["exchanged"] == 1
    assert found()["ended"] == [True, False]


JUDGE = """
let hear;
const said = [];
globalThis.self = {
  addEventListener: (name, listener) => (hear = listener),
  postMessage: (data) => said.push(data),
};
await import('TUNE/trial/trial_worker.js');
const module = Uint8Array.from(KERNEL);
// The bundle's code has no kernel of that number.
const ask = (id, kind, params) => hear({ data: { id, kind, params } });
await ask(1, 'open', { code: module.buffer, entries: 1, bytes: 65536, scratchBytes: 0 });
const facts = { spec: 0, buffers: [], scalars: [], slot: 7, tiles: 1, special: false };
const candidate = { digest: 'd', module, tiles: 1 };
const bar = { margin: 1.01, grant: 1 };
await ask(2, 'attempt', { spec: 0, facts, forget: [], candidate, judge: true, bar });
console.log(JSON.stringify(said.filter(({ id }) => id)));
process.exit(0);
"""


def test_a_judge_is_not_blamed_for_the_bundles_own_kernel() -> None:
    opened, answer = run(JUDGE)
    assert "error" not in opened
    assert "no function 'k7'" in answer["error"]


def test_a_worker_that_takes_long_to_start_is_started_before_it_is_needed() -> None:
    assert found()["reserve"] == [["open,attempt,ahead 7", False], ["open", False]]
    first, second, third = found()["confirmed"]
    assert first == ["open,attempt,ahead 7,attempt", True]
    assert second == ["open,confirm", False]
    assert third == ["open", False]


def test_a_reserve_that_broke_is_not_taken() -> None:
    *_, second, third, fourth, fifth = found()["broken"]
    assert second == ["open,confirm,attempt", True]
    assert third[0] == "open"
    assert fourth == ["open,attempt", False]
    assert fifth == ["open", False]


def test_a_reserve_that_got_no_device_is_not_taken() -> None:
    assert found()["refused"] == [True, True, False, False]


def test_a_hang_takes_the_reserve_with_it() -> None:
    assert found()["dropped"] == [True] * 5
    assert found()["none"]
