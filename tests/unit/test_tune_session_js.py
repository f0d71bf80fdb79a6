"""Whole sessions of the page's tuner (web/tune/tuner.js), with an engine that is made up.

In real browsers: tests/browser/test_tuning.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from node import run
from tuned_page import PAGE


def page(script: str, *candidates: int, **given: Any) -> Any:
    found = run(PAGE + script, given={"candidates": candidates} | given)
    assert found["inUse"] == found["winner"]
    return found


def test_a_session_of_the_made_up_page() -> None:
    found = page("await session({ report: true }); await out();", 1, 2)
    assert found["verdicts"] == ["faster", "faster"]
    assert found["winner"] == 2
    assert found["reports"] == [[2, 1]]


STATES = """
const { TuningSession } = await import('TUNE/tuner.js');
const seen = [];
const see = () => seen.at(-1) === tuning.state || seen.push(tuning.state);
const { next } = source;
const measured = engine.time;
Object.assign(source, { next() { see(); return next.call(source); } });
engine.time = (...parts) => (see(), measured(...parts));
Object.assign(acts, { attempt: see, profile: see, report: see });
const tuning = new TuningSession(engine, { source, budget: 1, report: true, onEvent: see });
see();
const { rounds } = await tuning.run();
const second = await tuning.run().catch(({ message }) => message);
await out({ seen, rounds, second });
"""


def test_the_states_of_a_session() -> None:
    """One candidate is adopted; a session runs once."""
    found = page(STATES, 1)
    tried = ["choosing", "trying", "adopting", "choosing"]
    ends = ["confirming", "closing", "ended"]
    assert found["seen"] == ["created", "opening", "timing", *tried, *ends]
    assert found["rounds"] == 1
    assert found["second"] == "A tuning session runs once"


def test_a_run_while_the_class_is_found_out() -> None:
    """The trial worker rests, and goes on: the session comes to its end."""
    script = """
    acts.l1 = () => {
      engine.onjob(1);
      engine.onjob(1, 0, 5);
      engine.onjob(0);
    };
    const { class: device } = await session();
    await out({ device });
    """
    found = page(script, 1)
    assert (found["device"], found["verdicts"]) == ("class", ["faster"])


@pytest.mark.parametrize(
    ("kibibytes", "device"),
    [
        ([48, 48, 48], "48k"),
        ([32, 48, 48], "48k"),
        ([48, 32, 48], "48k"),
        ([48, 48, 0], "48k"),
        ([32, 32, 48], "48k"),
        ([0, 0, 48], "48k"),
        ([0, 32, 32], "32k"),
        ([0, 0, 0], "any"),
    ],
)
def test_one_probe_alone_does_not_say_the_class(kibibytes: list[int], device: str) -> None:
    """It is kept for a month, and winners go with it."""
    script = "const { class: device } = await session(); await out({ device, left: given.l1 });"
    classes = [("48k", 48), ("32k", 32), ("any", 0)]
    found = page(script, 1, l1=[1024 * size for size in kibibytes], classes=classes)
    assert (found["device"], found["left"]) == (device, [])


@pytest.mark.parametrize("milliseconds", [10, 1000])
def test_what_is_slower_together_goes_however_long_its_trial_took(milliseconds: float) -> None:
    script = "await session({ seconds: 0.5 }); await out();"
    found = page(script, 1, times={1: 1.5}, milliseconds=milliseconds)
    assert found["events"].count("rollback") == 1
    assert (found["winner"], found["verdicts"]) == (0, ["faster"])


def test_a_page_that_fills_inputs_in_place() -> None:
    """Of two plans: neither is run."""
    script = """
    let times = 0;
    const measured = engine.time;
    engine.time = (...parts) => (times++, measured(...parts));
    acts.profile = () => times++;
    lent.add(0).add(1);
    await session();
    await out({ times });
    """
    found = page(script, 1)
    assert (found["times"], found["verdicts"]) == (0, [])


@pytest.mark.parametrize(("swap", "tried"), [(1, []), (22, [1])])
def test_an_end_in_mid_swap(swap: int, tried: list[int]) -> None:
    """As a kernel comes, or as it goes at the end: record and engine agree."""
    script = """
    const stop = new AbortController();
    acts.swap = () => log.length === given.swap && stop.abort();
    await session({ signal: stop.signal });
    await sleep(5);
    await out();
    """
    found = page(script, 1, times={1: 1.5}, swap=swap)
    assert len(found["log"]) == max(swap, 3)
    assert (found["winner"], found["tried"]) == (0, tried)


def test_a_winner_that_traps_during_a_trial() -> None:
    """The candidate was measured against what is in use no more: nothing is known of it."""
    script = """
    let trials = 0;
    const runs = [];
    acts.attempt = async ({ confirm }) => {
      if (!confirm && ++trials === 2) runs.push(await page(), await page());
    };
    await session();
    await out({ runs });
    """
    found = page(script, 1, 2, traps=[1])
    assert found["runs"] == ["kernel-trap", 0]
    assert (found["winner"], found["tried"], found["bad"]) == (0, [1], [1])
    assert found["verdicts"] == ["faster"]


def test_a_candidate_that_traps_while_it_is_adopted() -> None:
    """It goes, and the winner of before is not blamed."""
    script = """
    const runs = [];
    acts.profile = async () => {
      if (inUse.get(0) === 2 && !runs.length) runs.push(await page());
    };
    await session();
    await out({ runs, last: await page() });
    """
    found = page(script, 1, 2, traps=[2])
    assert found["runs"] == ["kernel-trap"]
    assert found["verdicts"] == ["faster", "trapped"]
    assert (found["winner"], found["bad"], found["last"]) == (1, [2], 1)


def test_a_winner_is_examined_when_an_adoption_begins() -> None:
    """The page's inputs are tried with the bundle's own, and meanwhile another kernel comes."""
    script = """
    let [trials, adopted] = [0, null];
    const begun = new Promise((resolve) => (adopted = resolve));
    acts.run = () => begun;
    acts.attempt = ({ confirm }) => {
      if (confirm) return undefined;
      if (++trials === 2) globalThis.first = page();
      return sleep(trials === 2 ? 20 : 0);
    };
    acts.swap = ([{ scratch }]) => scratch === 2 && adopted();
    await session();
    await globalThis.first;
    await out();
    """
    found = page(script, 1, 2, traps=[1])
    assert (found["winner"], found["bad"]) == (2, [])


def test_a_candidate_that_cannot_be_taken_out_goes_with_its_engine() -> None:
    """Otherwise it would stay in use, and no record would know of it."""
    script = """
    acts.profile = () => {
      if (inUse.get(0) === 2) throw new EngineError('kernel-trap', 'trap', 'hint');
    };
    acts.swap = ([{ scratch }]) => {
      if (inUse.get(0) === 2) throw new EngineError('host', 'late', 'hint');
    };
    await session();
    await out({ last: await page() });
    """
    found = page(script, 1, 2)
    assert "again" in found["log"]
    assert (found["winner"], found["inUse"], found["last"]) == (1, 1, 1)


def test_what_traps_in_the_model_goes_with_its_engine() -> None:
    """It could write anywhere.  Some of them, and this device takes no more."""
    script = """
    acts.profile = () => {
      if (inUse.get(0) > 1) throw new EngineError('kernel-trap', 'trap', 'hint');
    };
    const errors = [];
    for (let visit = 0; visit < 4; visit++) await session().catch(({ code }) => errors.push(code));
    await out({ errors });
    """
    found = page(script, 2, 3, 4, 5)
    assert found["verdicts"] == ["trapped"] * 3
    assert found["log"].count("again") == 3
    assert found["errors"] == ["host"]


def test_a_kernel_that_blames_another_one_goes() -> None:
    """It writes another step's number where the engine reads which one trapped."""
    script = """
    await session();
    acts.run = () => {
      const facts = { spec: 7, tuned: false };
      if (inUse.get(0)) throw new EngineError('kernel-trap', 'trap', 'hint', facts);
    };
    const runs = [await page(), await page()];
    await out({ runs });
    """
    found = page(script, 1)
    assert found["runs"] == ["kernel-trap", 0]
    assert (found["winner"], found["bad"]) == (0, [1])


def test_dispose_during_a_new_start_is_final() -> None:
    script = """
    await session();
    acts.run = () => {
      if (inUse.get(0)) throw new EngineError('kernel-trap', 'trap', 'hint', { spec: 0 });
    };
    let disposed = 0;
    acts.again = () => engine.dispose();
    acts.dispose = () => disposed++;
    await page();
    await out({ disposed });
    """
    assert page(script, 1)["disposed"] == 3, "the old one, by the page, the new one"


def test_what_another_tab_condemned_stays_so() -> None:
    """A tab that only restored a winner, and one that tunes and stores its own record later."""
    script = """
    await session({ rounds: 1 });
    const mine = await recall(engine);
    const other = made();
    const { condemn } = await import('TUNE/records/device_record.js');
    const theirs = await recall(other);
    await condemn(other, theirs.winners);
    await keep(engine, mine);
    await restore(engine, true);
    const left = await recall(made(), true);
    await out({ left: [left.winners.length, left.bad[0]] });
    """
    found = page(script, 1)
    assert found["left"] == [0, [1]]
    assert (found["winner"], found["bad"]) == (0, [1])


def test_what_the_engine_refused_is_no_vote() -> None:
    script = """
    acts.swap = ([{ scratch }]) => {
      if (scratch === 2) throw new EngineError('input', 'refused', 'hint');
    };
    await session({ report: true });
    await out();
    """
    found = page(script, 1, 2)
    assert found["verdicts"] == ["faster", "refused"]
    assert found["reports"] == [[1]]
    assert found["results"][1] == {"spec": 0, "candidate": 2, "verdict": "refused"}


def test_a_late_answer_to_a_report_changes_nothing() -> None:
    script = """
    let answer;
    acts.report = () => new Promise((resolve) => (answer = resolve));
    await session({ report: true });
    const newer = await recall(engine, true);
    newer.tried[0].push(7);
    await keep(engine, newer);
    answer();
    await sleep(10);
    await recall(engine, true);
    await out();
    """
    assert page(script, 1)["tried"] == [1, 7]


@pytest.mark.parametrize("full", [False, True])
def test_winners_stay_where_nothing_can_be_kept(full: bool) -> None:
    found = page("await session(); await restore(engine, true); await out();", 1, full=full)
    assert (found["winner"], found["tried"]) == (1, [1])


def test_where_there_is_no_storage_nothing_fails() -> None:
    """As on pages without https: `caches` is no name there."""
    script = """
    delete globalThis.caches;
    await session();
    const kept = (await state()).winner;
    await restore(engine, true);
    await forget(engine);
    await out({ kept });
    """
    found = page(script, 1)
    assert (found["kept"], found["winner"], found["tried"]) == (1, 0, [])


@pytest.mark.parametrize("code", ["host", "input"])
def test_what_is_in_use_stays_known_when_others_cannot_come(code: str) -> None:
    """As if another tab had found candidate 5."""
    script = """
    await session();
    const other = await recall(engine, true);
    other.winners = [{ ...other.winners[0], candidate: 5, scratch: 5 }];
    other.tried[0].push(5);
    await keep(engine, other);
    acts.swap = () => { throw new EngineError(<code>, 'no', 'hint'); };
    await restore(engine, true);
    await out();
    """
    found = page(script.replace("<code>", f"'{code}'"), 1)
    assert (found["winner"], found["tried"]) == (1, [1])


def test_a_class_is_kept_for_a_month_but_not_if_it_was_given() -> None:
    script = """
    const { class: first } = await session({ device: 'given' });
    const { class: second } = await session();
    const asked = [];
    source.classes = async () => asked.push('asked') && [];
    await session();
    const { now } = Date;
    Date.now = () => now() + 31 * 86_400_000;
    const failed = await session().catch((error) => error);
    await out({ first, second, asked, code: failed.code });
    """
    found = page(script, 1)
    assert (found["first"], found["second"]) == ("given", "class")
    # and for a month it is not asked for again
    assert (found["asked"], found["code"]) == (["asked"], "unsupported-host")


PREVIEW = """
const { bestOf, TuningLog } = await import('TUNE/../page/tuning_log.js');
if (given.unfit) acts.swap = ([{ module }]) => {
  if (module) throw new EngineError('input', 'it does not fit', 'hint');
};
await session({ report: true });
const seen = new TuningLog();
events.forEach((event) => seen.take(event));
const shown = [...seen.slots.values()].map(bestOf).filter((top) => top.length);
await out({ shown: shown.map((top) => top.map(({ candidate }) => candidate)), told: events });
"""


@pytest.mark.parametrize("unfit", [False, True])
@pytest.mark.parametrize("refuted", ["", "its tile 3 is wrong"])
def test_the_page_shows_what_is_sent(refuted: str, unfit: bool) -> None:
    """Of a kernel whose default is wrong only that is; the event says which trial found it out."""
    found = page(PREVIEW, 0, 3, default=5, refuted=refuted, unfit=unfit)
    assert found["shown"] == found["reports"]
    trials = [event for event in found["told"] if event["type"] == "trial"]
    sent = [trial["candidate"] for trial in trials if not trial["refuted"]]
    assert [result["candidate"] for result in found["results"]] == sent
    assert trials[0]["refuted"] == bool(refuted)
    if refuted and not unfit:
        assert (found["reports"], found["results"], len(trials)) == ([[0]], [], 1)


def test_what_came_damaged_is_no_candidate_s_fault() -> None:
    """Nothing is noted of it, so that a later visit tries it; some in a row end the session."""
    script = """
    const { next } = source;
    source.next = async () => {
      const sent = await next.call(source);
      return sent && given.damaged.includes(sent.header.candidate) ? { ...sent, module: code.slice(0, 7) } : sent;
    };
    const error = await session().then(() => '', ({ code }) => code);
    await out({ error });
    """  # noqa: E501
    found = page(script, 1, 2, 3, damaged=[1, 3])
    assert (found["tried"], found["verdicts"], found["error"]) == ([2], ["faster"], "")
    assert found["events"].count("fault") == 2
    found = page(script, 1, 2, 3, 4, damaged=[1, 2, 3])
    assert (found["tried"], found["verdicts"], found["error"]) == ([], [], "host")
