"""Small parts of the tuning loop: reports, inputs of trials, frames."""

from __future__ import annotations

from node import run

REPORTS = """
import { openReports } from 'TUNE/records/reports.js';

const sent = [];
let answers = false;
const source = { report: (report) => (sent.push(report), answers ? Promise.resolve({ accepted: true }) : new Promise(() => {})) };
let kept = 0;
const save = async () => void kept++;
const record = { unsent: [] };
const session = (more) => openReports({ source, record, digest: 'one', on: true, save, ...more });
/** All that needs no time has happened. */
const soon = () => new Promise((resolve) => setImmediate(resolve));
const offer = { spec: 3, checksum: 'c', count: 7, default: 0, gold: null };
const offers = new Map([[3, offer]]);
const ratios = new Map([[1, 2], [2, 90], [4, 0.5]]);

const first = session();
const seen = { empty: first.tell(offer, new Map()) };
const asked = { ...offer, gold: { a: 0, b: 7 } };
seen.unmeasured = first.tell(asked, ratios);
seen.told = first.tell(offer, ratios);
await soon();
seen.kept = [kept, record.unsent.length, sent.length];
first.again(offers);
seen.twice = sent.length;
const [{ nonce, top }] = sent;
seen.top = top;
// the next visit
answers = true;
const next = session();
next.again(new Map());
seen.ofOthers = sent.length;
next.again(offers);
await soon();
seen.again = sent.length === 2 && sent[1].nonce === nonce;
seen.left = record.unsent.length;
seen.answered = next.tell(asked, new Map([...ratios, [7, 0.1]]));
await soon();
seen.gold = sent[2].gold;
const old = (more) => ({ at: Date.now() - 1000, digest: 'one', report: {}, ...more });
record.unsent = [old({}), old({ at: Date.now() - 9e7 }), old({ digest: 'two' })];
session();
seen.fresh = record.unsent.length;
seen.off = session({ on: false }).tell(offer, ratios);
seen.none = record.unsent.length;
console.log(JSON.stringify(seen));
process.exit(0);
"""  # noqa: E501


def test_reports_are_kept_until_they_are_answered() -> None:
    found = run(REPORTS)
    assert not found["empty"]
    assert not found["unmeasured"]
    assert found["told"]
    assert found["kept"] == [1, 1, 1]
    assert found["twice"] == 1
    assert [(vote["candidate"], vote["ratio"]) for vote in found["top"]] == [
        (2, 20),
        (1, 2),
        (4, 0.5),
    ]
    assert found["ofOthers"] == 1
    assert found["again"]
    assert found["left"] == 0
    assert found["answered"]
    assert found["gold"] == {"a": 0, "b": 7, "ratio": 10}
    assert found["fresh"] == 1
    assert not found["off"]
    assert found["none"] == 0


INPUTS = """
import { allowed, difference, filled } from 'TUNE/trial/trial_inputs.js';

let [beats, now] = [0, 0];
performance.now = Date.now = () => ++now;
globalThis.self = { postMessage: () => beats++ };

const given = (more) => ({ dtype: 'f32', size: 4000, bytes: 16000, limit: 0, extent: 0, real: null, ...more });
const floats = async (set, more) => new Float32Array((await filled(given(more), set, 3)).buffer);
const edge = await floats('edge', {});
const special = await floats('special', {});
const few = await floats('special', { size: 7 });
const ends = async (more) => {
  const bytes = new Int8Array((await filled(given({ dtype: 'i8', ...more }), 'edge', 3)).buffer);
  return [Math.min(...bytes), Math.max(...bytes)];
};
const long = await floats('edge', { size: 2e5 });
const indices = new BigInt64Array((await filled(given({ dtype: 'i64', extent: 5 }), 'random', 3)).buffer);
const wanted = Float32Array.of(1, 100, NaN, Infinity);
const compared = async (found, wanted, dtype, rounds) => await difference(found, wanted, await allowed(wanted, dtype, rounds)) !== '';
const differs = (found) => compared(Float32Array.from(found), wanted, 'f32', true);
beats = 0;
await filled(given({ dtype: 'i8', size: 8e7 }), 'edge', 3);
console.log(JSON.stringify({
  repeats: [0, 1, 9].every((at) => long[25000 + at] === long[25000 + 65537 + at]) && long.subarray(25000).filter((x) => x === 0).length < 5e4,
  equal: String(await floats('random', {})) === String(await floats('random', {})),
  zeros: edge.subarray(0, 500).every((x) => x === 0),
  negative: edge.some((x) => x < 0), thousands: edge.some((x) => x >= 1000), denormal: edge.some((x) => x > 0 && x < 1.2e-38),
  nan: special.some(Number.isNaN), infinite: special.includes(Infinity), most: special.filter(Number.isFinite).length > 3900,
  ends: await ends({}), limited: await ends({ limit: 63 }), rare: few.some((x) => !Number.isFinite(x)), beats,
  indices: indices.every((x) => x >= 0n && x < 5n) && indices.includes(4n),
  same: await differs([1, 100, NaN, Infinity]), rounding: await differs([1.001, 100, NaN, Infinity]), off: await differs([1.01, 100, NaN, Infinity]),
  lostNan: await differs([1, 100, 0, Infinity]), newNan: await differs([NaN, 100, NaN, Infinity]), sign: await differs([1, 100, NaN, -Infinity]),
  exact: await compared(Int32Array.of(1), Int32Array.of(2), 'i32', false), rounded: await compared(Int8Array.of(1), Int8Array.of(2), 'i8', true),
  large: await compared(BigInt64Array.of(2n ** 60n), BigInt64Array.of(2n ** 60n + 1n), 'i64', false),
}));
"""  # noqa: E501


def test_inputs_and_comparison() -> None:
    found = run(INPUTS)
    for name in [
        "repeats",
        "equal",
        "zeros",
        "negative",
        "thousands",
        "rare",
        "beats",
        "denormal",
        "nan",
        "infinite",
        "most",
        "indices",
    ]:
        assert found[name], name
    assert found["ends"] == [-128, 127]
    assert found["limited"] == [-63, 63]
    assert not found["same"]
    assert not found["rounding"]
    assert all(found[name] for name in ("off", "lostNan", "newNan", "sign"))
    assert found["exact"]
    assert found["large"]
    assert not found["rounded"]


FRAMES = """
import { decode, encode } from 'TUNE/sources/answer_checks.js';

const frame = encode({ type: 'kernel', text: 'ü' }, Uint8Array.of(1, 2), Uint8Array.of(3));
const { header, payload } = decode(frame.buffer);
const damaged = [[], [1], [255, 255, 255, 255], [2, 0, 0, 0, 123], [1, 0, 0, 0, 200]];
const broken = damaged.map((bytes) => {
  try {
    decode(Uint8Array.from(bytes).buffer);
    return '';
  } catch (error) {
    return error.code;
  }
});
console.log(JSON.stringify({ header, payload: [...payload], bytes: [...frame], broken }));
"""


def test_frames() -> None:
    """The same as Python's."""
    import msgspec

    found = run(FRAMES)
    assert found["header"] == {"type": "kernel", "text": "ü"}
    assert found["payload"] == [1, 2, 3]
    header = msgspec.json.encode({"type": "kernel", "text": "ü"})
    assert bytes(found["bytes"]) == len(header).to_bytes(4, "little") + header + b"\1\2\3"
    assert found["broken"] == ["network"] * 5
