// The worker in which candidates are tried, with a memory of its own: never the model's.
// Input: requests of trials.js.  Output: a verdict on each candidate.  A kernel that hangs is the
// page's business: it ends this worker.
//
// The memory: argument block, scratch, then the kernel's buffers; before and behind each of them a
// canary, which no kernel may touch.

import { batchMilliseconds, resolution, timed } from './clock.js';
import { l1Bytes } from './device.js';
import { arrayOf, difference, filled, isFloat } from './inputs.js';
import { judged, median } from './statistics.js';

const PAGE = 65536;
const ARGS = 1024;
const CANARY = 256;
const MARK = 0xa5;
/** Bytes of what nobody has written: floats are NaN then, integers no usual number. */
const UNWRITTEN = { float: 0xff, integer: 0xa6 };
/** Words behind the scalars of the argument block: no number of rows, and no address. */
const BEYOND = 0x7ffffff0;

/** Warming up, milliseconds: the length of one look, when to stop at the latest, and before which
 * time no look counts; a kernel that is still so much slower than the other one may not be optimised yet. */
const LOOK = 3;
const WARM_MOST = 160;
const WARM_LEAST = 20;
const WARM_SLOW = 1.6;
/** So many looks without a new best end it. */
const FLAT = 4;

/** Milliseconds between two looks at the messages. */
const BREATH = 2;
/** Pairs, or rounds of parts, before the first verdict; most pairs of each part. */
const PAIRS_LEAST = 10;
const PAIRS_MOST = 80;
const ROUNDS_LEAST = 2;
/** Rounds of parts without which nothing is called faster: of few parts, and of many. */
const [ROUNDS_FEW, ROUNDS_MANY, MANY] = [4, 3, 16];
/** Milliseconds of a trial after which no further pair is measured: of the first verdict, and of all. */
const VERDICT_AFTER = 400;
const TRIAL_MOST = 650;
/** What cannot gain this much, and does not look as if it gained at all, is not looked at for longer. */
const WORTH = 1.03;
/** After so many times as long it is given up even without a first verdict: something else has the core. */
const HOPELESS = 4;
/** Milliseconds of the first two sets without which there is a third. */
const LONG = 250;
/** So many times slower is slower without a test. */
const FAR = 1.5;
/** Times that cannot be true, before it is given up. */
const DISCARDS = 40;
/** Calls by which a kernel is measured roughly, and milliseconds that they may take. */
const QUICK_LEAST = 7;
const QUICK_MOST = 100;
/** Milliseconds between two looks at the clock that no work takes. */
const JUMP = 20_000;
/** A batch that takes so many times what it should is no measurement. */
const ABSURD = 200;

/** @type {WebAssembly.Memory} */
let memory;
/** @type {WebAssembly.Module} */
let bundled;
let slots = 0;
let scratch = { address: 0, bytes: 0 };
/** Where buffers begin. */
let base = 0;
/** The kernel that is tried now, and all that were tried. @type {Tune.Loaded | null} */
let loaded = null;
/** @type {Map<number, Tune.Loaded>} */
const states = new Map();
/** @type {Map<number, Tune.Facts>} */
const told = new Map();
let batch = 1;
let paused = false;
let resume = () => {};
/** Milliseconds of work so far, without pauses; and when the clock was last looked at. */
let worked = 0;
let looked = 0;
let beaten = 0;

/** Milliseconds of work so far.  A clock that jumped counts nothing. */
function workedUntilNow() {
  const now = performance.now();
  if (now > looked && now - looked < JUMP) worked += now - looked;
  looked = now;
  return worked;
}

/** Lets messages in, and waits while there is a pause; true if there was one. */
async function breathe() {
  const channel = new MessageChannel();
  await new Promise((resolve) => {
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(null);
  });
  channel.port1.close();
  workedUntilNow();
  const now = Date.now();
  if (Math.abs(now - beaten) > 100) {
    beaten = now;
    self.postMessage({ beat: true });
  }
  if (!paused) return false;
  workedUntilNow();
  await new Promise((resolve) => (resume = () => resolve(null)));
  looked = performance.now();
  return true;
}

/** @param {number} address @param {number} length */
const bytesAt = (address, length) => new Uint8Array(memory.buffer, address, length);

/** @type {Tune.MakeRunner} */
async function makeRunner(module, name, entries, tiles) {
  const table = new WebAssembly.Table({ element: 'anyfunc', initial: entries });
  const own = new WebAssembly.Global({ value: 'i32', mutable: false }, scratch.address | 0);
  const { exports } = await WebAssembly.instantiate(module, { env: { memory, table, scratch: own } });
  const kernel = /** @type {any} */ (exports)[name];
  return { tiles, run: (first, last) => kernel(ARGS, first, last) };
}

/** Equal bytes, compared as words. @type {Tune.Same} */
function same(a, b) {
  const words = a.length >> 2;
  const [x, y] = [a, b].map((bytes) => (bytes.byteOffset % 4 ? new Uint32Array(bytes.slice(0, words * 4).buffer) : new Uint32Array(bytes.buffer, bytes.byteOffset, words)));
  for (let at = 0; at < words; at++) if (x[at] !== y[at]) return false;
  for (let at = words * 4; at < a.length; at++) if (a[at] !== b[at]) return false;
  return true;
}

/** The argument block, the canaries, and the buffers of a specification. @param {Tune.Facts} facts */
function lay(facts) {
  let at = base;
  const addresses = facts.buffers.map(({ bytes }) => {
    const address = at + CANARY;
    at = Math.ceil((address + bytes + CANARY) / 64) * 64;
    return address;
  });
  const words = [...addresses, ...facts.scalars];
  const block = new Uint32Array(memory.buffer, ARGS, (scratch.address - CANARY - ARGS) >> 2).fill(BEYOND);
  block.set(words);
  const borders = [scratch.address - CANARY, scratch.address + scratch.bytes, ...addresses.flatMap((address, number) => [address - CANARY, address + facts.buffers[number].bytes])];
  const canaries = borders.map((from) => bytesAt(from, CANARY).fill(MARK));
  return { addresses, words, block, canaries };
}

/** Everything outside of buffers and scratch is as it was. */
function untouched() {
  const { words, block, canaries } = /** @type {Tune.Loaded} */ (loaded);
  return block.every((word, at) => word === (at < words.length ? words[at] >>> 0 : BEYOND)) && canaries.every((bytes) => bytes.every((byte) => byte === MARK));
}

/** Inputs as the set has them, and an output that nobody has written. @param {string} set */
function begin(set) {
  const { addresses, facts, sets } = /** @type {Tune.Loaded} */ (loaded);
  facts.buffers.forEach(({ bytes }, number) => {
    const place = bytesAt(addresses[number], bytes);
    if (number) place.set(/** @type {Uint8Array} */ (sets[set].inputs[number]));
    else place.fill(isFloat(facts.buffers[0].dtype) ? UNWRITTEN.float : UNWRITTEN.integer);
  });
}

/** The output of the set, as it lies in memory now. */
function output() {
  const { addresses, facts: { buffers: [{ dtype, size }] } } = /** @type {Tune.Loaded} */ (loaded);
  return new (arrayOf(dtype))(memory.buffer, addresses[0], size);
}

/** Tiles in pieces of about a breath, in an order that is never the same; may be paused. @type {Tune.RunAll} */
async function runAll(runner, shuffled) {
  const { tiles, run } = runner;
  let step = 1;
  const starts = [];
  for (let first = 0; first < tiles; first++) starts.push(first);
  if (shuffled) for (let at = tiles - 1; at > 0; at--) {
    const other = Math.floor(Math.random() * (at + 1));
    [starts[at], starts[other]] = [starts[other], starts[at]];
  }
  for (let at = 0; at < tiles;) {
    const before = performance.now();
    const end = Math.min(tiles, at + step);
    // Neighbours go as one piece, as the tickets of a run do.
    for (let from = at; from < end;) {
      let to = from + 1;
      while (to < end && starts[to] === starts[to - 1] + 1) to++;
      run(starts[from], starts[to - 1] + 1);
      from = to;
    }
    at = end;
    const spent = performance.now() - before;
    if (spent < BREATH / 2) step *= 2;
    if (spent > BREATH) step = Math.max(1, step >> 1);
    await breathe();
  }
}

/** What a kernel makes of the inputs: the bundle's own, or the one that is to judge it. @type {Tune.Prepare} */
async function prepare(facts, reference) {
  /** @type {Tune.Loaded} */
  const next = { facts, ...lay(facts), sets: {}, known: new Map() };
  loaded = next;
  const start = performance.now();
  try {
    const standard = await makeRunner(bundled, `k${facts.slot}`, slots, facts.tiles);
    next.known.set('', standard);
    for (const set of ['random', 'edge', 'special']) {
      // Long kernels are not run for each rare number.
      if (set === 'special' && (!facts.special || performance.now() - start > LONG)) continue;
      const inputs = facts.buffers.map((buffer, number) => (number ? filled(buffer, set, 1 + number + 31 * facts.spec) : null));
      next.sets[set] = { inputs, wanted: null };
      begin(set);
      try {
        await runAll(reference ?? standard, false);
        next.sets[set].wanted = output().slice();
      } catch (error) {
        // Numbers that the kernel refuses, as it may, compare nothing.
        if (set === 'random' || !(error instanceof WebAssembly.RuntimeError)) throw error;
        delete next.sets[set];
      }
    }
    if (!reference) {
      begin('random');
      await warm(standard, NaN);
    }
    states.set(facts.spec, next);
  } catch (error) {
    loaded = null;
    throw error;
  }
}

/** Runs until the time per tile falls no more; `other` is that of a kernel known to be warm. @type {Tune.Warm} */
async function warm(runner, other) {
  const { tiles, run } = runner;
  let [at, step, spent, flat] = [0, 1, 0, 0];
  let best = Infinity;
  for (let looks = 0; spent < WARM_MOST || looks <= FLAT; looks++) {
    let looked = 0;
    let count = 0;
    while (looked < LOOK) {
      const end = Math.min(tiles, at + step);
      const time = Math.max(timed(() => run(at, end), WARM_MOST * ABSURD) || 0, 1e-3);
      count += end - at;
      at = end % tiles;
      looked += time;
      if (time < LOOK / 8 && step < tiles) step = Math.min(tiles, step * 2);
      if (time >= LOOK / 8 || step >= tiles) await breatheAfter(time);
    }
    spent += looked;
    const now = looked / count * tiles;
    flat = now < 0.97 * best ? 0 : flat + 1;
    best = Math.min(best, now);
    if (flat >= FLAT && spent > WARM_LEAST && (other ? best < WARM_SLOW * other : spent > 3 * WARM_LEAST)) break;
  }
  return best;
}

let sinceBreath = 0;
/** @param {number} time */
async function breatheAfter(time) {
  sinceBreath += time;
  if (sinceBreath < BREATH) return;
  sinceBreath = 0;
  await breathe();
}

/** What is wrong with a candidate, or ''. @type {Tune.Check} */
async function check(runner) {
  const { sets, facts, addresses } = /** @type {Tune.Loaded} */ (loaded);
  for (const [name, { inputs, wanted }] of Object.entries(sets)) {
    begin(name);
    await runAll(runner, name === 'random');
    const found = output();
    const wrong = difference(found, /** @type {any} */ (wanted), facts.buffers[0].dtype, facts.rounds);
    if (wrong) return `on ${name} inputs ${wrong}`;
    if (!untouched()) return `on ${name} inputs it wrote outside of its output`;
    const changed = inputs.findIndex((input, number) => input && !same(bytesAt(addresses[number], input.length), input));
    if (changed > 0) return `on ${name} inputs it changed input ${changed}`;
  }
  return '';
}

/** Both kernels in turn, until the interval decides or the time is over. @type {Tune.Compare} */
async function compare(first, second, times, margin, over) {
  const parts = Math.max(1, Math.min(first.tiles, second.tiles, Math.ceil(times[0] / BREATH)));
  const repeats = times.map((time) => Math.max(1, Math.round(batch / (time / parts))));
  const least = parts > 1 ? ROUNDS_LEAST * parts : PAIRS_LEAST;
  const enough = parts > 1 ? (parts < MANY ? ROUNDS_FEW : ROUNDS_MANY) * parts : PAIRS_LEAST;
  /** @type {Tune.Pair[]} */
  const pairs = [];
  let [discards, turn] = [0, 0];
  const side = (/** @type {number} */ which, /** @type {number} */ part) => {
    const { tiles, run } = which ? second : first;
    const [from, to] = [Math.floor(tiles * part / parts), Math.floor(tiles * (part + 1) / parts)];
    const expected = times[which] / parts * repeats[which];
    const time = timed(() => {
      for (let n = 0; n < repeats[which]; n++) run(from, to);
    }, ABSURD * Math.max(expected, batch));
    return time / repeats[which];
  };
  for (;;) {
    const part = turn % parts;
    const order = (turn + Math.floor(turn / parts)) % 2;
    const early = side(order, part);
    const broken = await breathe();
    const late = side(1 - order, part);
    if (broken || !(early > 0) || !(late > 0)) {
      // After a pause caches are cold: such a pair says nothing.
      if (!broken && ++discards > DISCARDS) break;
      if (broken) side(order, part);
      await breathe();
      continue;
    }
    pairs.push(order ? { part, first: late, second: early } : { part, first: early, second: late });
    turn++;
    await breathe();
    if (pairs.length < least && over(HOPELESS)) break;
    if (pairs.length < least || pairs.length % (parts > 1 ? parts : 2)) continue;
    const { ratio, low, high } = judged(pairs, parts);
    const sure = pairs.length >= enough;
    if (high < margin || (ratio < margin && high < WORTH) || (sure && (low > margin || ratio < 1 || pairs.length >= PAIRS_MOST * parts || over())) || over(HOPELESS)) break;
  }
  return { ...judged(pairs, parts), parts, sure: pairs.length >= enough, pairs: pairs.length, discards };
}

/** What is wrong with a kernel that is in use, by the results of another one. @type {Tune.Check} */
async function refutation(runner) {
  try {
    return await check(runner);
  } catch (error) {
    if (!(error instanceof WebAssembly.RuntimeError)) throw error;
    return error.message;
  }
}

/** The kernel that candidates must beat: the bundle's own, or a winner of before. @type {Tune.RunnerOf} */
async function runnerOf(known) {
  const { known: runners } = /** @type {Tune.Loaded} */ (loaded);
  const key = known?.digest ?? '';
  const found = runners.get(key);
  if (found || !known) return /** @type {Tune.Runner} */ (found);
  const made = await makeRunner(await WebAssembly.compile(known.module), 'k0', 1, known.tiles);
  begin('random');
  await warm(made, NaN);
  runners.set(key, made);
  return made;
}

/** @type {Tune.Attempt} */
async function attempt({ spec, facts: given, forget, candidate, incumbent, margin, judge }) {
  looked = performance.now();
  const start = worked;
  const spent = () => workedUntilNow() - start;
  const over = (/** @type {number} */ limit) => (times = 1) => spent() - prepared > times * limit;
  for (const old of forget) [states, told].forEach((map) => map.delete(old));
  if (given) told.set(spec, given);
  let prepared = 0;
  const outcome = (/** @type {Tune.Verdict} */ verdict, /** @type {object} */ more = {}) => ({ verdict, milliseconds: spent(), prepared, resolution: finest, ...more });
  const before = states.get(spec);
  const facts = /** @type {Tune.Facts} */ (told.get(spec));
  let module;
  let runner;
  try {
    module = await WebAssembly.compile(candidate.module);
    runner = await makeRunner(module, 'k0', 1, candidate.tiles);
  } catch (error) {
    return outcome('refused', { why: String(error) });
  }
  try {
    if (judge) await prepare(facts, runner);
  } catch (error) {
    if (!(error instanceof WebAssembly.RuntimeError)) throw error;
    states.delete(spec);
    return outcome('trapped', { why: error.message });
  }
  if (!judge && !before) await prepare(facts, null);
  else if (!judge && loaded !== before) lay((loaded = /** @type {Tune.Loaded} */ (before)).facts);
  const { known } = /** @type {Tune.Loaded} */ (loaded);
  if (judge) {
    // Whether its tiles can go in any order, and stay where they may write.
    const wrong = await refutation(runner);
    if (wrong) {
      states.delete(spec);
      loaded = null;
      return outcome('wrong', { why: wrong });
    }
    // A winner of before may be right where the bundle's own kernel, to which all later ones are compared, is not.
    const refuted = await refutation(/** @type {Tune.Runner} */ (known.get(''))) || await refutation(await runnerOf(incumbent));
    lay(facts);
    if (refuted) {
      known.set(candidate.digest, runner);
      return outcome('faster', { module, refuted });
    }
  }
  const other = await runnerOf(incumbent);
  if (judge) {
    begin('random');
    await warm(other, NaN);
  }
  prepared = spent();
  try {
    begin('random');
    const bar = await quick(other);
    const time = await warm(runner, bar);
    // Far behind: not worth to know by how much.
    if (time > FAR * bar) {
      const ratio = await quick(other) / await quick(runner);
      if (ratio < 1 / FAR) return outcome('slower', { ratio });
    }
    const wrong = await check(runner);
    if (wrong) {
      lay(facts);
      return outcome('wrong', { why: wrong });
    }
    begin('random');
    const times = [bar, time];
    const { ratio, low, high, first, second, sure, ...more } = await compare(other, runner, times, margin, over(VERDICT_AFTER));
    const found = { ratio, low, high, times: [first, second], ...more };
    if (!(sure && low > margin)) return outcome(high < 1 ? 'slower' : 'same', found);
    // The rounds of parts have confirmed each other; few pairs have luck.
    const again = more.parts > 1 ? found : await compare(other, runner, times, 1, over(TRIAL_MOST));
    if (!(again.ratio > margin && again.low > 1)) return outcome('same', found);
    known.set(candidate.digest, runner);
    return outcome('faster', { ...found, module });
  } catch (error) {
    if (!(error instanceof WebAssembly.RuntimeError)) throw error;
    lay(facts);
    return outcome('trapped', { why: error.message });
  }
}

/** Milliseconds of all tiles of a warm kernel, roughly. @type {Tune.Quick} */
async function quick({ tiles, run }) {
  const parts = [];
  let [at, step, total, count] = [0, 1, 0, 0];
  while ((total < LOOK || parts.length < QUICK_LEAST) && total < QUICK_MOST) {
    const end = Math.min(tiles, at + step);
    const spent = timed(() => run(at, end), Infinity);
    if (spent > 0) {
      total += spent;
      count += end - at;
      parts.push(spent / (end - at));
    } else total += 0.05;
    at = end % tiles;
    if (!(spent > LOOK / 8)) step = Math.min(tiles, step * 2);
    await breatheAfter(spent || 0);
  }
  return (parts.length ? Math.min(median(parts), total / Math.max(count, 1)) : total) * tiles;
}

let finest = 1;

/** @type {Record<string, (params: any) => unknown>} */
const HANDLERS = {
  async open({ code, entries, bytes, scratchBytes }) {
    const from = ARGS + 4096;
    scratch = { address: from, bytes: scratchBytes };
    base = Math.ceil((from + scratchBytes + CANARY) / 64) * 64;
    const pages = Math.ceil((base + bytes) / PAGE) + 1;
    memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
    bundled = await WebAssembly.compile(code);
    slots = entries;
    finest = resolution();
    batch = batchMilliseconds(finest);
    return { resolution: finest };
  },
  attempt,
  l1: () => l1Bytes(),
};

self.addEventListener('message', async ({ data: { id, kind, params, pause } }) => {
  if (pause !== undefined) {
    paused = pause;
    if (!paused) resume();
    return;
  }
  try {
    self.postMessage({ id, value: await HANDLERS[kind](params) });
  } catch (error) {
    self.postMessage({ id, error: String(error) });
  }
});
