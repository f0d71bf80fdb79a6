"""Expected results of slow kernels (web/tune/trial/): computed once, where no candidate had run.

The page's side runs beside a worker that is made up; both sides run on a clock that is.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from clock import CLOCK
from node import run

PAGE = """
import { openTrials } from 'TUNE/trial/trials.js';

const heard = [];
let act;
globalThis.Worker = class {
  addEventListener(name, listener) { this[name] = listener; }
  terminate() { this.ended = true; }
  say(data) { if (!this.ended) this.message({ data }); }
  postMessage({ id, kind, params }) {
    if (!kind) return;
    if (kind === 'attempt') heard.push({ spec: params.spec, confirm: params.confirm, expected: params.expected?.random.length ?? null });
    setTimeout(() => {
      if (kind === 'attempt') for (const data of act(params)) this.say(data);
      this.say({ id, value: { verdict: 'same', milliseconds: 5, ...(kind === 'attempt' && verdict(params)) } });
    }, 1);
  }
};
const verdict = ({ candidate: { digest }, confirm }) => (digest === 'wins' ? { verdict: 'faster', module: 'm' } : { verdict: digest });
const results = (bytes) => ({ spec, facts }) => (facts ? [{ expected: { spec, sets: { random: new Uint8Array(bytes), edge: new Uint8Array(8) } } }] : []);
const work = (spec, digest, judge = false) => ({ spec, judge, bytes: 8, facts: () => ({ buffers: [{ bytes: 8, real: null }] }), candidate: { digest } });
async function session(bytes, ...tried) {
  heard.length = 0;
  act = results(bytes);
  const one = openTrials({ code: new ArrayBuffer(8), slots: 1, bytes: 1 << 30, scratchBytes: 0 });
  let outcome;
  for (const [spec, digest, judge] of tried) outcome = await one.attempt(work(spec, digest, judge));
  one.close();
  return { asked: heard.map(({ spec, confirm, expected }) => [spec, confirm, expected]), stages: outcome.stages };
}
freely();
console.log(JSON.stringify({
  first: await session(4, [1, 'wins'], [1, 'same'], [1, 'wrong'], [1, 'same']),
  later: await session(4, [1, 'same'], [2, 'wins'], [2, 'wins']),
  judge: await session(4, [1, 'same', true], [1, 'wrong'], [1, 'same']),
  large: await session(1 << 26, [1, 'wins'], [1, 'wins']),
}));
process.exit(0);
"""  # noqa: E501


@cache
def page() -> Any:
    return run(CLOCK + PAGE)


def test_a_slow_kernels_results_are_told_to_the_next_workers() -> None:
    """That a winner is confirmed elsewhere costs no more runs of the kernel that it replaces."""
    found = page()["first"]
    assert found["asked"] == [
        [1, False, None],
        [1, True, 4],
        [1, False, None],  # this worker knows them
        [1, False, None],
        [1, False, 4],  # the one before had a wrong candidate
    ]


def test_results_from_where_candidates_ran_are_not_believed() -> None:
    """Of the second kernel, the first worker that may tell is the fresh one after a win."""
    asked = page()["later"]["asked"]
    assert asked[:3] == [[1, False, None], [2, False, None], [2, True, None]]
    assert asked[4] == [2, True, 4]


def test_results_of_the_compilers_own_candidate_are_not_the_bundles() -> None:
    assert [expected for _, _, expected in page()["judge"]["asked"]] == [None, None, None]


def test_what_is_too_large_is_computed_again() -> None:
    assert [expected for _, _, expected in page()["large"]["asked"]] == [None] * 4


WORKER = """
let [now, answer, listen] = [0, null, null];
performance.now = () => (now += 1e-3);
const [ran, told, accepted] = [[], [], []];
const made = (name, time) => ({ tiles: 10, run: (first, last) => {
  now += (last - first) / 10 * time;
  ran.push(name);
} });
globalThis.self = {
  postMessage: (data) => (data.expected ? told.push(data.expected) : data.id && answer(data)),
  addEventListener: (_, given) => { listen = given; },
};
const { judge } = await import('TUNE/trial/judge.js');
const clock = await import('TUNE/trial/timing.js');
const done = async () => '';
let loaded = null;
judge({
  get loaded() { return loaded; }, use: (next) => { loaded = next; }, lay: () => ({}), open: done,
  own: async () => made('own', <time>), runnerFor: async () => made('candidate', <time> / 4),
  beating: () => () => {}, compiled: done, begin: done, refutation: done,
  accept: async (set, given) => {
    accepted.push(given ?? null);
    set.wanted = given ?? 'made';
  },
  check: async (runner) => (await 0, runner.run(0, 10), ''),
  runAll: async (runner) => runner.run(0, 10),
}, clock);
const ask = (kind, params) => new Promise((resolve) => {
  answer = resolve;
  listen({ data: { id: 1, kind, params } });
});
await ask('open', {});
const facts = { spec: 3, special: true, buffers: [], scalars: [] };
const { value } = await ask('attempt', {
  spec: 3, facts, expected: <expected>, forget: [], judge: false, confirm: <confirm>, incumbent: null,
  candidate: { module: null, tiles: 10, digest: 'x' }, bar: { margin: 1.02, grant: 1 },
});
console.log(JSON.stringify({ value, told, accepted, own: ran.filter((name) => name === 'own').length, runs: ran.length }));
"""  # noqa: E501

EXPECTED = {"random": "r", "edge": "e"}


def attempt(time: float, expected: dict[str, str] | None, confirm: bool) -> Any:
    return run(WORKER, time=time, expected=expected, confirm=confirm)


def test_a_worker_tells_what_a_slow_kernel_computes() -> None:
    made = {"random": "made", "edge": "made"}
    assert attempt(200.0, None, False)["told"] == [{"spec": 3, "sets": made}]
    assert attempt(5.0, None, False)["told"] == []


def test_where_results_are_known_the_bundles_kernel_does_not_run_to_confirm() -> None:
    known, unknown = attempt(200.0, EXPECTED, True), attempt(200.0, None, True)
    assert known["accepted"] == ["r", "e"]
    assert known["own"] == 0
    assert known["told"] == []
    assert unknown["own"] == 2
    for found in (known, unknown):
        assert found["value"]["verdict"] == "faster"
        assert found["runs"] - found["own"] == 1


def test_stages_add_up_to_the_trial() -> None:
    value = attempt(200.0, None, False)["value"]
    stages = ["build", "prepare", "incumbent", "look", "warm", "check", "pairs"]
    assert set(value["stages"]) == set(stages)
    assert abs(sum(value["stages"].values()) - value["milliseconds"]) < 1
    assert value["stages"]["prepare"] > 400
