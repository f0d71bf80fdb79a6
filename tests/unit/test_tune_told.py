"""What a page tells a server (tune/sources/), and which reports it sends again."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from node import run

from tilewright.tuning.messages import MOST_FROM_CLIENT, MOST_SPECS, Hello, decode_from_client

HELLO: dict[str, Any] = {
    "protocol": 1, "bundle": "m", "digest": "0" * 64, "device": "wasm", "browser": "other",
    "variant": "x86", "objective": "latency", "specs": [0], "shares": [1], "tried": {"0": []},
    "share": False,
}  # fmt: skip

TOLD = """
const { minimalHello } = await import('TUNE/sources/socket.js');
const { encode } = await import('TUNE/sources/answer_checks.js');
const given = <given>;
const came = new Map(Object.entries(given.came).map(([spec, found]) => [Number(spec), new Set(found)]));
const frame = encode({ type: 'hello', ...minimalHello(given.hello, came) });
console.log(JSON.stringify(Buffer.from(frame).toString('base64')));
"""  # noqa: E501


def told(came: dict[int, list[int]] | None = None, **hello: Any) -> tuple[Hello, int]:
    """The message as the server takes it, and the bytes of its frame."""
    frame = base64.b64decode(run(TOLD, given={"hello": HELLO | hello, "came": came or {}}))
    found = decode_from_client(frame)
    assert isinstance(found, Hello)
    return found, len(frame)


def test_tries_of_earlier_visits_stay_on_the_device() -> None:
    found, _ = told(tried={"0": list(range(1, 90))}, came={0: [3, 95]})
    assert (found.tried, found.skip) == ({0: (3,)}, 64)


@pytest.mark.parametrize(("count", "skip"), [(0, 0), (15, 0), (16, 16), (31, 16), (300, 256)])
def test_how_many_were_tried_is_said_in_powers_of_two(count: int, skip: int) -> None:
    assert told(tried={"0": list(range(count))})[0].skip == skip


def test_devices_of_a_class_say_the_same_of_their_shares() -> None:
    """Two that measured the same model, each with its own noise."""
    one, _ = told(specs=[4, 2, 7, 9], shares=[0.5817, 0.2206, 0.1894, 0.0083])
    other, _ = told(specs=[4, 7, 2, 9], shares=[0.6122, 0.2031, 0.1761, 0.0086])
    assert one == other
    assert (one.specs, one.shares) == ((4, 2, 7, 9), (1, 0.25, 0.25, 0.25**3))


def test_shares_are_rounded_to_powers_of_four() -> None:
    """To the nearest, and 1/1024 at least; kernels of equal share come by number."""
    shares = {spec: 1 / (spec + 1) ** 1.7 for spec in range(200)} | {200: 0.0}
    found, _ = told(specs=list(shares), shares=list(shares.values()))
    rounded = dict(zip(found.specs, found.shares, strict=True))
    assert set(found.shares) == {4.0**n for n in range(-5, 1)}
    assert all(0.5 <= rounded[spec] / max(shares[spec], 4**-5) <= 2 for spec in shares)
    assert list(found.specs) == sorted(shares, key=lambda spec: (-rounded[spec], spec))


def test_the_largest_hello_of_a_page_is_taken() -> None:
    """More kernels than the server takes, 90 tries of each in this very visit."""
    specs = list(range(1000, 1000 + MOST_SPECS + 176))
    numbers = list(range(1000, 1090))
    found, size = told(
        specs=specs,
        shares=[0.0021] * len(specs),
        tried={str(spec): numbers for spec in specs},
        came=dict.fromkeys(specs, numbers),
    )
    assert size < MOST_FROM_CLIENT
    assert found.specs == tuple(specs[:MOST_SPECS])  # the hottest
    assert len(found.shares) == MOST_SPECS
    assert found.tried[1000] == tuple(numbers)


SOCKET = """
globalThis.location = { href: 'https://a.example/' };
const { decode, encode } = await import('TUNE/sources/answer_checks.js');
const given = <given>;
const sent = [];
let sockets = 0;
globalThis.WebSocket = class {
  static OPEN = 1;
  readyState = 1;
  #candidates = [...given.candidates];
  constructor() {
    sockets++;
    setImmediate(() => this.onopen());
  }
  say(header) { this.onmessage({ data: encode(header).buffer }); }
  send(frame) {
    const { header } = decode(frame.buffer);
    sent.push(header);
    if (header.type === 'hello') {
      const offer = { spec: 0, kind: 'k', shape: 's', checksum: 'c', count: given.count, default: 0, gold: null };
      this.say({ type: 'welcome', compiler: 'c', kernels: [offer] });
      for (const spec of header.specs) if (spec) this.say({ type: 'done', spec, sent: 0, milliseconds: 0 });
    }
    for (let left = header.count ?? 0; left > 0; left--) {
      const candidate = this.#candidates.shift();
      if (candidate !== undefined) this.say({ type: 'kernel', spec: 0, candidate, schedule: 's' });
      else this.say({ type: 'done', spec: 0, sent: 0, milliseconds: 0 });
    }
    if (header.type === 'report' && sockets <= given.lose) this.onclose();
    else if (header.type === 'report') this.say({ type: 'ack', nonce: header.nonce, accepted: true, reason: '' });
  }
  close() {}
};
const { socketSource } = await import('TUNE/sources/socket.js');
const heard = [];
const source = socketSource('/api/tune', (header) => heard.push(header));
const came = [];
let error = '';
try {
  await source.open(given.hello);
  for (let next = await source.next(); next; next = await source.next()) {
    if (next.header) came.push(next.header.candidate);
    if (next.header) source.result({ spec: 0, candidate: next.header.candidate, verdict: 'same' });
  }
} catch ({ code }) {
  error = code;
}
const report = { nonce: 'n', spec: 0, checksum: 'c', top: [], gold: null };
const acks = [];
for (let time = 0; time < given.reports; time++) {
  acks.push(await source.report(report).then(({ accepted }) => accepted, ({ code }) => code));
  if (acks.at(-1) === 'network') await source.open(given.hello);
}
console.log(JSON.stringify({ came, error, acks, types: sent.map(({ type }) => type), heard: heard.length === sent.length }));
"""  # noqa: E501


def socket(count: int, *candidates: int, **given: Any) -> Any:
    hello = HELLO | given.pop("hello", {})
    plain = {"count": count, "candidates": candidates, "hello": hello, "reports": 0, "lose": 0}
    found = run(SOCKET, given=plain | given)
    assert found["heard"]  # the page can show all that was sent
    return found


@pytest.mark.parametrize("share", [False, True])
def test_results_are_told_only_if_they_are_shared(share: bool) -> None:
    found = socket(4, 1, 2, hello={"share": share})
    assert found["came"] == [1, 2]
    assert found["types"].count("result") == 2 * share


def test_what_was_tried_comes_to_an_end() -> None:
    """The server does not know of earlier visits; with all of a space tried nothing need come.

    What was tried is passed over as it arrives: in the line it would wait for a gap between runs.
    """
    found = socket(4, 1, 2, 3, hello={"tried": {"0": [1, 3]}})
    assert (found["came"], found["error"]) == ([2], "")
    found = socket(4, 1, 2, 3, hello={"tried": {"0": [1, 2, 3]}})
    assert (found["came"], found["types"]) == ([], ["hello"])


def test_a_server_that_never_ends_is_left() -> None:
    found = socket(4, *[1] * 20)
    assert found["error"] == "input"
    assert len(found["came"]) <= 5


def test_kernels_without_candidates_do_not_count_as_such() -> None:
    """A server says at once that there are none of them, and a GPU's plan has many."""
    specs = list(range(100))
    found = socket(4, 1, 2, 3, hello={"specs": specs, "shares": [0.01] * len(specs)})
    assert (found["came"], found["error"]) == ([1, 2, 3], "")


def test_a_report_comes_back_with_a_lost_connection() -> None:
    """Who made it sends it again, as the next session wants it."""
    assert socket(4, reports=2, lose=1)["acks"] == ["network", True]


AGAIN = """
const { openReports } = await import('TUNE/records/reports.js');
const given = <given>;
const told = [];
const source = { report: async (report) => told.push(report) };
const report = { nonce: 'old', spec: 0, checksum: 'c', top: [{ candidate: 3, ratio: 1.5 }], gold: given.old };
const record = { unsent: [{ at: Date.now(), digest: 'digest', report }] };
const reports = openReports({ source, record, digest: 'digest', on: true, save: async () => {} });
const offer = { spec: 0, kind: 'k', shape: 's', checksum: 'c', count: 9, default: 0, gold: given.asked };
reports.again(new Map([[0, offer]]));
const first = told.map(({ nonce, gold }) => [nonce, gold]);
await reports.farewell();
if (given.measured) reports.tell(offer, new Map(given.measured));
await reports.farewell();
console.log(JSON.stringify({ first, told, left: record.unsent.length }));
"""  # noqa: E501
GOLD = {"a": 0, "b": 9}


def again(**given: Any) -> Any:
    return run(AGAIN, given={"old": None, "asked": None, "measured": None} | given)


@pytest.mark.parametrize("old", [None, GOLD | {"ratio": 4}])
def test_a_report_answers_the_question_of_the_session_that_sends_it(old: Any) -> None:
    """After midnight or on another network the server asks others, and refuses other answers."""
    assert again(old=old)["first"] == [["old", None]]
    assert again(old=old)["left"] == 0


def test_an_answer_of_before_is_as_good_as_a_new_one() -> None:
    old = GOLD | {"ratio": 4}
    assert again(old=old, asked=GOLD)["first"] == [["old", old]]


def test_a_report_waits_for_the_answer_to_a_new_question() -> None:
    waiting = again(asked=GOLD)
    assert (waiting["told"], waiting["left"]) == ([], 1)
    found = again(asked=GOLD, measured=[(9, 0.25), (3, 1.5)])
    assert [report["gold"] for report in found["told"]] == [GOLD | {"ratio": 4}] * 2
    assert len({report["nonce"] for report in found["told"]}) == 2
    assert found["left"] == 0


def test_ratios_have_three_digits() -> None:
    """A winner's is sent by every visit: all digits of it would be a name."""
    found = again(measured=[(3, 1.2345678), (4, 0.98765432)])
    assert [vote["ratio"] for vote in found["told"][-1]["top"]] == [1.23, 0.988]
