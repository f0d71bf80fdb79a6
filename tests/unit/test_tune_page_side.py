"""What a page reports (reports.js, ledger.js), and a source that is lost (connection.js)."""

from __future__ import annotations

from typing import Any

import pytest
from node import run

TELL = """
const { openReports, topOf } = await import('TUNE/records/reports.js');
const { openLedger } = await import('TUNE/records/ledger.js');
const given = <given>;
const told = [];
const source = { report: async (report) => told.push(report) };
const { winners = [], bad = {}, measured, offer } = given;
const tables = { tried: {}, bad, sound: {}, refuted: {}, checksums: {} };
const record = { objective: 'latency', winners, ...tables };
const ledger = openLedger(record, 'digest', 'latency');
const reports = openReports({ source, record, digest: 'digest', on: true, save: async () => {} });
const usual = { spec: 0, kind: 'k', shape: 's', checksum: 'c', count: 99, default: 0, gold: null };
ledger.take([{ ...usual, ...offer }]);
for (const [candidate, ratio] of measured) ledger.note(0, candidate, 'same', ratio);
for (const candidate of given.wrong ?? []) ledger.note(0, candidate, 'wrong', NaN);
const said = reports.tell(ledger.offers.get(0), ledger.findings(0));
await reports.farewell();
const tried = [ledger, openLedger(record, 'digest', 'latency')].map((visit) => visit.done(0));
console.log(JSON.stringify({ said, told, tried }));
"""


def told(*measured: tuple[int, float], **given: Any) -> Any:
    """The report of a kernel; None if nothing is said."""
    found = run(TELL, given={"measured": measured} | given)
    assert found["said"] == bool(found["told"])
    return found["told"][0] if found["told"] else None


def top(report: Any) -> list[tuple[int, float]]:
    return [(vote["candidate"], vote["ratio"]) for vote in report["top"]]


MANY = [(n, 1 + n / 10) for n in range(1, 9)]


def test_the_five_best() -> None:
    assert top(told(*MANY)) == [(n, 1 + n / 10) for n in (8, 7, 6, 5, 4)]
    assert told() is None


@pytest.mark.parametrize("default", [3, None])
def test_beside_another_default_the_compilers_own_is_named(default: int | None) -> None:
    """The server counts over candidate 0, and refuses who does not name it."""
    found = told((0, 0.5), *MANY, offer={"default": default})
    assert [candidate for candidate, _ in top(found)] == [8, 7, 6, 5, 0]
    assert told(*MANY, offer={"default": default}) is None


def test_winners_of_earlier_visits_are_named() -> None:
    """Once something was measured; of another build's nothing is known."""
    winner = {"spec": 0, "candidate": 7, "ratio": 2.0}
    assert top(told((3, 0.9), winners=[winner])) == [(7, 2.0), (3, 0.9)]
    assert told(winners=[winner]) is None
    assert told((3, 0.9), winners=[winner | {"moved": True}]) is None


def test_what_turned_out_bad_is_not_named() -> None:
    assert top(told((3, 1.5), (4, 1.2), bad={"0": [3]})) == [(4, 1.2)]


GOLD = {"a": 2, "b": 5}
#: The number after the last: the answer is known.
OFFERED = {"gold": GOLD, "count": 5}


def test_a_gold_question_is_answered() -> None:
    found = told((2, 1.5), (5, 1.2), (7, 1.1), offer=OFFERED)
    assert found["gold"] == GOLD | {"ratio": 1.25}
    # the kernel in use is a candidate, too
    found = told((2, 1.5), offer={"gold": GOLD | {"b": 0}, "count": 5})
    assert found["gold"]["ratio"] == 1.5


def test_a_gold_question_without_an_answer_holds_the_report_back() -> None:
    assert told((2, 1.5), (7, 1.1), offer=OFFERED) is None
    # a default that is none of the space is not candidate 0
    offer = OFFERED | {"default": None}
    assert told((0, 0.8), (2, 1.5), offer=offer) is None


def test_a_gold_question_can_be_answered_by_an_earlier_winner() -> None:
    winner = {"spec": 0, "candidate": 5, "ratio": 2.0}
    assert told((2, 1.5), winners=[winner], offer=OFFERED)["gold"]["ratio"] == 0.75


@pytest.mark.parametrize(("wrong", "later"), [([], {2, 7}), ([5], {2, 5, 7})])
def test_a_gold_question_is_asked_once_by_each_visit(wrong: list[int], later: set[int]) -> None:
    """Its ratio is not kept; a kernel that may not run again is not asked for."""
    measured = [(2, 1.5), (5, 0.2), (7, 1.1)]
    found = run(TELL, given={"measured": measured, "wrong": wrong, "offer": OFFERED})
    assert [set(visit) for visit in found["tried"]] == [{2, 5, 7}, later]


LINE = """
const waits = [];
globalThis.setTimeout = (work, wait) => {
  waits.push(wait);
  setImmediate(work);
};
globalThis.clearTimeout = () => {};
const { openConnection } = await import('TUNE/sources/connection.js');
const { EngineError } = await import('TUNE/../engine/errors.js');
const given = <given>;
const calls = [];
const events = [];
const lost = () => { throw new EngineError('network', 'lost'); };
/** By kind, what becomes of each call; after the last one all goes well. */
const step = (kind, value) => async () => {
  calls.push(kind);
  const fate = given[kind]?.shift() ?? (given.always === kind ? 'lost' : '');
  if (fate === 'lost') lost();
  if (fate) throw new EngineError(fate, fate);
  return value;
};
const [classes, open] = [step('classes', []), step('open', { kernels: [] })];
const source = { classes, open, next: step('next', { done: 0 }) };
const line = openConnection({
  source, signal: new AbortController().signal, onEvent: ({ type }) => events.push(type),
  hello: () => ({}), welcomed: async () => true,
});
let error = null;
try {
  await line.classes();
  await line.open();
  for (let time = 0; time < 3; time++) await line.next();
} catch (thrown) {
  error = thrown.code;
}
console.log(JSON.stringify({ waits, calls, events, error }));
"""


def test_each_call_is_made_again_with_pauses_that_grow() -> None:
    given = {"classes": ["lost", "lost"], "open": ["lost"], "next": ["", "lost", "lost"]}
    found = run(LINE, given=given)
    assert found["error"] is None
    calls = ["classes"] * 3 + ["open"] * 2 + ["next"] * 2 + ["open", "next"] * 2 + ["next"]
    assert found["calls"] == calls
    assert found["events"] == ["lost", "resumed", "lost", "resumed", "lost", "resumed"]
    # nothing but a candidate says that the line holds
    for wait, most in zip(found["waits"], [500, 1000, 2000, 500, 1000], strict=True):
        assert most / 2 <= wait <= most


@pytest.mark.parametrize("kind", ["classes", "open", "next"])
def test_a_source_that_never_answers_is_given_up(kind: str) -> None:
    """Even if each time it can be opened: with pauses, and in the end with its own error."""
    found = run(LINE, given={"always": kind})
    assert found["error"] == "network"
    assert found["calls"].count(kind) == 12
    assert found["waits"][-1] >= 30_000
    assert len(found["waits"]) == 11


def test_other_errors_are_not_asked_twice() -> None:
    found = run(LINE, given={"open": ["bundle-version"]})
    assert found["error"] == "bundle-version"
    assert found["calls"] == ["classes", "open"]


SOCKET = """
globalThis.location = { href: 'https://a.example/' };
globalThis.fetch = async () => <answer>;
const { socketSource } = await import('TUNE/sources/socket.js');
const failed = ({ name, code, hint }) => ({ name, code, hint });
const answer = await socketSource().classes().then(() => ({ code: '' }), failed);
console.log(JSON.stringify(answer));
"""


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("Promise.reject(new TypeError('Failed to fetch'))", "network"),
        ("new Response('', { status: 503 })", "network"),
        ("new Response('[', {})", "network"),
        ("new Response('', { status: 404 })", "input"),
        ("new Response('[]')", ""),
    ],
)
def test_classes_of_a_server_that_is_not_there(answer: str, code: str) -> None:
    found = run(SOCKET.replace("<answer>", answer))
    assert found["code"] == code
    assert not code or (found["name"] == "EngineError" and found["hint"])


ASKED = """
globalThis.location = { href: 'https://a.example/some/page.html' };
const asked = [];
globalThis.fetch = async (url) => asked.push(String(url)) && new Response('[]');
globalThis.WebSocket = class {
  constructor(url) {
    asked.push(String(url));
    setImmediate(() => this.onclose());
  }
  close() {}
};
const { socketSource } = await import('TUNE/sources/socket.js');
const source = socketSource(...<given>);
await source.classes();
await source.open({ specs: [0], shares: [1], tried: {} }).catch(() => {});
console.log(JSON.stringify(asked));
"""


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ([], "s://a.example/api/"),
        (["/behind/a/proxy/api/tune"], "s://a.example/behind/a/proxy/api/"),
        (["https://b.example/api/tune"], "s://b.example/api/"),
        (["wss://b.example:444/api/tune"], "s://b.example:444/api/"),
        (["ws://localhost:8000/api/tune"], "://localhost:8000/api/"),
    ],
)
def test_classes_come_from_where_the_socket_is(given: list[str], place: str) -> None:
    assert run(ASKED, given=given) == [f"http{place}classes", f"ws{place}tune"]


REFUSED = """
globalThis.location = { href: 'https://a.example/' };
const { encode } = await import('TUNE/sources/answer_checks.js');
globalThis.WebSocket = class {
  static OPEN = 1;
  readyState = 1;
  constructor() {
    setImmediate(() => this.onopen());
  }
  send() {
    const refusal = { type: 'error', code: <code>, message: 'm', hint: 'h', facts: {} };
    this.onmessage({ data: encode(refusal).buffer });
  }
  close() {}
};
const { socketSource } = await import('TUNE/sources/socket.js');
const hello = { specs: [0], shares: [1], tried: {} };
const found = await socketSource().open(hello).catch(({ code }) => code);
console.log(JSON.stringify(found));
"""


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("busy", "network"),
        ("error", "network"),
        ("too-slow", "network"),
        ("too-many", "network"),
        ("other-version", "bundle-version"),
        ("unknown", "input"),
    ],
)
def test_a_refusal_is_tried_again_where_that_may_go_well(code: str, kind: str) -> None:
    """As docs/tuning-protocol.md says of each; a `network` error is what connection.js retries."""
    assert run(REFUSED, code=code) == kind


FLOOD = """
globalThis.location = { href: 'https://a.example/' };
const { encode } = await import('TUNE/sources/answer_checks.js');
let closed = 0;
globalThis.WebSocket = class {
  static OPEN = 1;
  readyState = 1;
  constructor() {
    setImmediate(() => this.onopen());
  }
  send() {
    const say = (header, ...rest) => this.onmessage({ data: encode(header, ...rest).buffer });
    if (this.welcomed) return;
    this.welcomed = true;
    say({ type: 'welcome', kernels: [{ spec: 0, checksum: 'c', count: 999, default: 0 }] });
    for (let candidate = 0; candidate < <messages>; candidate++) {
      say({ type: 'kernel', spec: 0, candidate }, new Uint8Array(<bytes>));
    }
  }
  close() {
    closed++;
  }
};
const { socketSource } = await import('TUNE/sources/socket.js');
const source = socketSource();
await source.open({ specs: [0], shares: [1], tried: {} });
let [taken, found] = [0, ''];
while (!found) await source.next().then(() => taken++, ({ code }) => (found = code));
console.log(JSON.stringify({ taken, found, closed }));
"""


@pytest.mark.parametrize(("messages", "length"), [(500, 10), (1, 1 << 23)])
def test_a_server_that_floods_the_page_is_left(messages: int, length: int) -> None:
    """More candidates than the page asked for, or a message of any length."""
    found = run(FLOOD, messages=messages, bytes=length)
    assert found["found"] == "input"
    assert found["taken"] < 20
    assert found["closed"] == 1


LOG = """
const { bestOf, TuningLog } = await import('TUNE/../page/tuning_log.js');
const log = new TuningLog();
const kernel = { spec: 0, kind: 'k', shape: 's', node: 'n', share: 1, flops: 1, milliseconds: 1 };
log.take({ type: 'start', class: 'c', kernels: [{ ...kernel, ...<kernel> }] });
for (const event of <events>) log.take({ spec: 0, round: 1, mark: 'lite', schedule: '', ...event });
const [slot] = log.slots.values();
const change = slot.change && [slot.change.candidate, slot.change.gain];
console.log(JSON.stringify({ best: bestOf(slot), change, changed: log.changed }));
"""


def tried(candidate: int, ratio: float, verdict: str = "slower") -> dict[str, Any]:
    return {"type": "trial", "candidate": candidate, "ratio": ratio, "verdict": verdict}


def swap(kind: str, candidate: int, ratio: float) -> dict[str, Any]:
    return {"type": kind, "candidate": candidate, "ratio": ratio}


def seen(*events: dict[str, Any], **kernel: Any) -> tuple[dict[int, float], Any]:
    """What the page would show as a report's votes, and the kernel in use with its gain."""
    found = run(LOG, events=events, kernel=kernel)
    return {vote["candidate"]: vote["ratio"] for vote in found["best"]}, found["change"]


def test_the_preview_shows_no_gain_that_was_rolled_back() -> None:
    """At once after its looks, or at the session's end."""
    at_once = [tried(3, 1.5), swap("rollback", 3, 0.8)]
    assert seen(*at_once) == ({3: 0.8}, None)
    adopted = [tried(3, 1.5, "faster"), swap("swap", 3, 1.5)]
    assert seen(*adopted) == ({3: 1.5}, [3, 1.5])
    assert seen(*adopted, swap("rollback", 3, 0.5)) == ({3: 0.75}, None)
    # nor those that were measured against it
    assert seen(*adopted, tried(4, 0.8), swap("rollback", 3, 0.5)) == ({3: 0.75, 4: 0.75}, None)


def test_the_preview_names_what_a_report_would() -> None:
    first = {"candidate": 7, "schedule": "", "gain": 2.0, "moved": False}
    assert seen(tried(3, 0.5), current=first) == ({7: 2.0, 3: 1.0}, [7, 2.0])
    assert seen(current=first) == ({}, [7, 2.0])
    assert seen(tried(3, 0.5), current=first | {"gain": 1, "moved": True})[0] == {}
    events = [tried(n, 1 + n / 10) for n in range(1, 9)]
    assert list(seen(tried(0, 0.5), *events, default=9)[0]) == [8, 7, 6, 5, 0]
    assert list(seen(tried(0, 0.5), *events)[0]) == [8, 7, 6, 5, 4]


def test_the_preview_shows_that_a_kernel_was_refuted() -> None:
    """No gain, measured against a wrong kernel, only that the compiler's own is better by far.  One
    that did not fit has refuted nothing."""
    refuting = tried(0, 1.0, "faster") | {"refuted": True}
    assert seen(refuting, swap("swap", 0, 1.0), default=9) == ({0: 20.0}, [0, None])
    assert seen(tried(3, 1.5), refuting, swap("swap", 0, 1.0), default=9)[0] == {0: 20.0}
    unfit = refuting | {"verdict": "refused"}
    assert seen(tried(0, 0.5), unfit, default=9)[0] == {0: 0.5}


GATED = """
const { gated } = await import('TUNE/../page/tuning.js');
const left = [1, 2, 3];
let [passed, open] = [null, null];
const source = gated({ next: async () => left.shift() ?? null }, { passed: () => passed });
const found = [await source.next()];
passed = new Promise((resolve) => (open = resolve));
// The session that waits ends while the page is hidden, and another begins.
const both = [source.next(), source.next()];
open();
found.push(...await Promise.all(both), await source.next());
console.log(JSON.stringify(found));
"""


def test_no_candidate_is_lost_in_a_pause_by_hand() -> None:
    assert run(GATED) == [1, None, 2, 3]
