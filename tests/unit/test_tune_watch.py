"""Jobs of an engine that do not end (web/tune/exchange/guard.js); the test turns the clock."""

from __future__ import annotations

from typing import Any

import pytest
from node import run

SCRIPT = """
const { watch } = await import('TUNE/exchange/guard.js');
const given = <given>;
let look = () => {};
globalThis.setInterval = (work) => (look = work, 1);
globalThis.clearInterval = () => (look = () => {});
const acts = [];
const engine = { info: { plans: [{ flops: given.flops ?? 1 }] }, };
const act = (again) => acts.push(again);
const watched = watch(engine, () => Boolean(given.held), () => given.ran ?? 0, act);
let end;
const done = watched(new Promise((resolve) => (end = resolve)), given.runs);
const seen = [];
for (let looks = 0; looks < given.looks; looks++) look();
seen.push(acts.length);
end({ value: 7 });
seen.push((await done).value);
for (let looks = 0; looks < given.looks; looks++) look();
console.log(JSON.stringify([...seen, acts]));
"""


@pytest.mark.parametrize(
    ("given", "acts"),
    [
        ({"looks": 9}, 0),
        ({"looks": 10}, 1),
        ({"looks": 20}, 2),
        ({"looks": 100}, 2),
        ({"looks": 10, "flops": 1e9}, 0),
        ({"looks": 20, "flops": 1e9}, 1),
        ({"looks": 10, "ran": 200}, 0),
        ({"looks": 20, "ran": 200}, 1),
        ({"looks": 100, "held": True}, 0),
        ({"looks": 19, "runs": 100}, 0),
        ({"looks": 20, "runs": 100}, 1),
        ({"looks": 10, "runs": 40}, 1),
    ],
)
def test_a_job_is_given_up_once_it_took_too_long(given: dict[str, Any], acts: int) -> None:
    """Two looks a second: 5 s, or what its operations or earlier runs allow; never while held."""
    assert run(SCRIPT, given=given) == [acts, 7, [False, True][:acts]]


SLOW = """
let look = () => {};
globalThis.setInterval = (work) => (look = work, 1);
globalThis.clearInterval = () => {};
let looks = 0;
const { guardOf } = await import('TUNE/exchange/guard.js');
let calls = 0;
const engine = {
  info: {
    plans: [{ flops: 1 }], url: 'https://a.example/m/', digest: 'd', tool: 't',
    variant: { name: 'v' }, features: {},
  },
  parts: {
    memory: null, lent: new Set(), manifest: { states: [] }, program: { plans: [] }, limits: {},
  },
  onjob() {},
  async run(what) {
    if (what === 'slow') {
      // Whatever a look leads to has happened before the next one.
      for (; looks < 100; looks++) {
        look();
        await new Promise((resolve) => setImmediate(resolve));
      }
    } else if (++calls > 9) process.exit(1);
    else throw new Error('wrong input');
    return { milliseconds: 1 };
  },
  time: async () => ({}), profile: async () => ({}), swap: async () => {}, preempt() {},
};
guardOf(engine).install();
await engine.run('slow');
const said = await engine.run('wrong').catch(String);
console.log(JSON.stringify([said, calls, looks]));
"""


LOST = """
const { guardOf } = await import('TUNE/exchange/guard.js');
const { EngineError } = await import('TUNE/../engine/errors.js');
const fails = <fails>;
let starts = 0;
// The first engine loses its device; some of the next ones do not start.
function made() {
  const number = starts++;
  if (fails.includes(number)) throw new EngineError('unsupported-host', 'no adapter');
  let disposed = false;
  return {
    info: { plans: [{ flops: 1 }], url: 'u', digest: 'd', tool: 't', variant: { name: 'v' }, features: {} },
    parts: {
      memory: null, lent: new Set(), manifest: { states: [] }, program: { plans: [] }, limits: {},
      again: async () => made(),
    },
    states: { names: [] },
    onjob() {},
    async run() {
      if (disposed) throw new EngineError('disposed', 'The engine was disposed');
      if (!number) throw new EngineError('host', 'The GPU device was lost', '', { lost: true });
      return number;
    },
    time: async () => ({}), profile: async () => ({}), swap: async () => {}, preempt() {},
    dispose: () => (disposed = true),
  };
}
const engine = made();
guardOf(engine).install();
const seen = [];
for (let job = 0; job < 3; job++) seen.push(await engine.run().catch(({ code }) => code));
engine.dispose();
seen.push(await engine.run().catch(({ code }) => code));
console.log(JSON.stringify({ seen, starts }));
process.exit();
"""  # noqa: E501


@pytest.mark.parametrize(
    ("fails", "seen"),
    [
        ([], [1, 1, 1, "disposed"]),
        ([1], [2, 2, 2, "disposed"]),
        ([1, 2], ["unsupported-host", 3, 3, "disposed"]),
    ],
)
def test_a_new_start_that_fails_is_tried_again(fails: list[int], seen: list[Any]) -> None:
    """At once, and by the next run."""
    assert run(LOST, fails=fails) == {"seen": seen, "starts": len(fails) + 2}


def test_a_slow_run_changes_nothing_for_later_ones() -> None:
    """Nothing was to blame, so a run that fails later is not repeated."""
    assert run(SLOW) == ["Error: wrong input", 1, 100]
