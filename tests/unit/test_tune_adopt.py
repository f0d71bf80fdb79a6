"""Adopting and undoing (tune/exchange/), in an engine whose times the tests make."""

from __future__ import annotations

from typing import Any

import pytest
from node import run

#: An engine whose time has a factor for each exchanged kernel, and some noise.
WORLD = """
const { adopt } = await import('TUNE/exchange/adopt.js');
const { confirm } = await import('TUNE/exchange/gain.js');
const { openLedger } = await import('TUNE/records/ledger.js');
const given = <given>;
const log = [];
const inUse = new Map();
let looks = 0;
const noise = () => {
  const wave = [0, 1, -1, 0.5, -0.5, 0.2, -0.2][looks % 7];
  const spike = given.spikes?.includes(looks);
  looks++;
  return (1 + (given.noise ?? 0) * wave) * (spike ? 1.3 : 1);
};
function factor(alone) {
  const found = [...inUse.keys()].map((spec) => given.factors[spec][alone ? 0 : 1]);
  return found.reduce((a, b) => a * b, 1) * noise();
}
function trap(kind) {
  if (given.trap === kind || (given.trap === `${kind} after` && inUse.size)) {
    throw Object.assign(new Error('trap'), { code: 'kernel-trap' });
  }
}
const lent = new Set(given.lent);
/** After so many looks the page fills an input of another plan in place. */
const looked = () => looks >= given.lends && lent.add(9);
const engine = {
  parts: { lent },
  async swap(changes) {
    log.push(changes.map(({ spec, module }) => (module ? 1 : -1) * (spec + 1)));
    for (const { spec, module, scratch } of changes) {
      if (module && scratch !== 1) inUse.set(spec, module);
      else inUse.delete(spec);
    }
  },
  async profile({ runs, only }) {
    log.push('step');
    trap('step');
    const found = { steps: [{ step: only[0], milliseconds: factor(true) }] };
    looked();
    return found;
  },
  async time({ runs }) {
    log.push('plan');
    trap('plan');
    const found = { milliseconds: Array.from({ length: runs }, () => factor(false)) };
    looked();
    return found;
  },
};
const pace = { job: (work) => work(), spent: 0 };
const target = (spec, alone = true, joined = false) => (
  { spec, plan: 0, bucket: {}, step: 0, milliseconds: 1, alone, joined });
const out = (value) => console.log(JSON.stringify({ log, inUse: [...inUse.keys()], ...value }));
"""

ADOPT = """
const change = { spec: 0, module: {} };
const back = { spec: 0, module: null };
try {
  out(await adopt(engine, pace, target(0, given.alone ?? true, given.joined), change, back));
} catch (error) {
  out({ code: error.code });
}
"""


def adopted(factor: float, **given: Any) -> Any:
    return run(WORLD + ADOPT, given={"factors": [[factor, factor]]} | given)


def test_what_is_faster_stays() -> None:
    found = adopted(0.7)
    assert found["stays"]
    assert found["better"]
    assert found["inUse"] == [0]
    assert found["log"] == ["step", [1], "step"]


def test_a_joined_step_is_timed_in_whole_runs() -> None:
    """By itself a kernel may be faster, and yet cost the plan a dispatch more."""
    found = adopted(0.7, factors=[[0.7, 1.2]], joined=True)
    assert not found["stays"]
    assert found["inUse"] == []
    assert "step" not in found["log"]
    assert adopted(0.7, joined=True)["stays"]


def test_what_is_as_fast_stays_but_is_not_shown_to_be_better() -> None:
    found = adopted(1.0)
    assert found["stays"]
    assert not found["better"]


@pytest.mark.parametrize(("alone", "look"), [(True, "step"), (False, "plan")])
def test_a_rollback_takes_three_looks_on_each_side(alone: bool, look: str) -> None:
    """At the step, or at the whole plan where the step cannot run alone."""
    found = adopted(1.3, alone=alone)
    assert not found["stays"]
    assert found["before"] / found["after"] == pytest.approx(1 / 1.3)
    assert found["inUse"] == []
    first = 1 if alone else 2  # how long the plan takes is not known yet
    pattern = [look] * first + [[1], look, [-1], look, [1], look, [-1], look, [1], look, [-1]]
    assert found["log"] == pattern


def test_one_slow_look_rolls_nothing_back() -> None:
    found = adopted(1.0, spikes=[1])
    assert found["stays"]
    assert found["log"].count("step") == 4


def test_a_step_that_cannot_run_alone_is_seen_in_its_plan() -> None:
    found = adopted(1.3, trap="step")
    assert not found["stays"]
    assert found["log"].count("plan") > 5


def test_where_nothing_can_run_only_the_trial_counts() -> None:
    """As with inputs of the page's last run that are wrong."""
    found = adopted(1.3, trap="plan", alone=False)
    assert found["stays"]
    assert not found["better"]
    assert confirmed(1.3, better=[], trap="plan")["winners"] == [[0, 2]]


@pytest.mark.parametrize(("alone", "kind"), [(True, "step after"), (False, "plan after")])
def test_a_trap_in_the_engine_is_told(alone: bool, kind: str) -> None:
    """Who asked for the adoption puts the previous kernel back."""
    assert adopted(0.5, alone=alone, trap=kind)["code"] == "kernel-trap"


@pytest.mark.parametrize("alone", [True, False])
def test_inputs_that_the_page_fills_in_place_are_safe(alone: bool) -> None:
    """A look at another plan would write over them, from the beginning or from some look on."""
    found = adopted(1.3, alone=alone, lent=[9])
    assert (found["stays"], found["better"], found["log"]) == (True, False, [[1]])
    found = adopted(1.3, alone=alone, lent=[0])
    assert not found["stays"]
    found = adopted(1.3, alone=alone, lends=2)
    assert found["log"] == (["step", [1], "step", [-1], [1]] if alone else ["plan", "plan", [1]])
    assert (found["stays"], found["inUse"]) == (True, [0])


def test_what_may_not_run_is_not_confirmed() -> None:
    assert confirmed(1.3, better=[], lent=[9])["log"] == []
    # while either side warms up, and between two pairs
    for lends in (45, 400, 545):
        found = confirmed(1.3, better=[], lends=lends)
        assert (found["winners"], found["inUse"]) == ([[0, 2]], [0])


CONFIRM = """
const tables = { tried: {}, bad: {}, sound: {}, refuted: {}, checksums: {} };
const empty = { objective: 'latency', winners: [], ...tables };
const ledger = openLedger(empty, 'digest', 'latency');
const events = [];
const results = [];
// the smallest kernel that there is
const module = Uint8Array.from(KERNEL);
const winner = (spec, ratio, candidate) => (
  { spec, candidate, ratio, module, tiles: 1, grains: {}, scratch: candidate });
const changed = new Map();
const targets = new Map();
for (const spec of given.factors.keys()) {
  const before = given.before?.includes(spec) ? winner(spec, 1.5, 1) : undefined;
  changed.set(spec, { before, better: given.better.includes(spec) });
  targets.set(spec, { ...target(spec), plan: given.plans?.[spec] ?? 0 });
  ledger.note(spec, 2, 'faster', 2);
  ledger.use(spec, winner(spec, 2, 2));
  inUse.set(spec, module);
}
await confirm({
  engine, pace, ledger, changed, targets, compared: new Map(),
  source: { result: (result) => results.push(result) },
  onEvent: (event) => event.type !== 'turns' && events.push(event),
});
const winners = ledger.record.winners.map(({ spec, candidate }) => [spec, candidate]).sort();
const found = [...targets.keys()].map((spec) => Object.fromEntries(ledger.findings(spec) ?? []));
out({ winners, events, results, found, left: changed.size });
"""


def confirmed(*factors: float, better: list[int], **given: Any) -> Any:
    """Of whole runs; each of these kernels was adopted."""
    pairs = [[1, factor] for factor in factors]
    return run(WORLD + CONFIRM, given={"factors": pairs, "better": better, "noise": 0.01} | given)


def test_a_faster_model_keeps_its_kernels() -> None:
    found = confirmed(0.9, 0.8, better=[])
    assert found["winners"] == [[0, 2], [1, 2]]
    assert sorted(found["inUse"]) == [0, 1]
    assert found["events"] == []
    assert found["left"] == 0


def test_noise_undoes_nothing() -> None:
    assert confirmed(1.0, 1.0, better=[], noise=0.1)["events"] == []


def test_a_slower_model_is_as_before() -> None:
    found = confirmed(1.1, 1.1, better=[])
    assert found["winners"] == []
    assert found["inUse"] == []
    events = [(e["type"], e["spec"], e["candidate"]) for e in found["events"]]
    assert events == [("rollback", 0, 2), ("rollback", 1, 2)]
    assert all(e["ratio"] == 0.5 for e in found["events"])
    assert found["results"] == [
        {"spec": spec, "candidate": 2, "verdict": "slower"} for spec in (0, 1)
    ]
    # nor is it reported as good
    assert found["found"] == [{"2": 1}, {"2": 1}]


def test_what_was_in_use_before_comes_back() -> None:
    found = confirmed(1.2, better=[], before=[0])
    assert found["winners"] == [[0, 1]]
    assert found["found"] == [{"1": 1.5, "2": 1.5}]


def test_those_that_were_shown_to_be_good_get_another_chance() -> None:
    """The others go first; what is still slower then goes as well."""
    assert confirmed(0.95, 1.3, better=[0])["winners"] == [[0, 2]]
    assert confirmed(1.2, 1.1, better=[0])["winners"] == []


def test_plans_are_looked_at_one_by_one() -> None:
    found = confirmed(1.2, 0.7, better=[], plans=[0, 1])
    assert found["winners"] == [[1, 2]]
