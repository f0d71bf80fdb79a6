// The memory of a trial: never the model's.  It runs kernels there, and says what one did wrong.
// Input: facts of a specification, kernels.  Output: results; what is wrong with a kernel, or ''.
//
// Argument block, scratch, then the kernel's buffers; before and behind each of them a canary, which no
// kernel may touch.

import { arrayOf, difference, isFloat } from './inputs.js';
import { BREATH, breathe } from './trial_breath.js';

const PAGE = 65536;
const ARGS = 1024;
const CANARY = 256;
const MARK = 0xa5;
/** Bytes of what nobody has written: floats are NaN then, integers no usual number. */
const UNWRITTEN = { float: 0xff, integer: 0xa6 };
/** Words behind the scalars of the argument block: no number of rows, and no address. */
const BEYOND = 0x7ffffff0;

/** @type {WebAssembly.Memory} */
let memory;
let scratch = { address: 0, bytes: 0 };
/** Where buffers begin. */
let base = 0;
/** The kernel that is tried now. @type {Tune.Loaded | null} */
export let loaded = null;

/** A memory for buffers of so many bytes. @param {number} bytes @param {number} scratchBytes */
export function openMemory(bytes, scratchBytes) {
  const from = ARGS + 4096;
  scratch = { address: from, bytes: scratchBytes };
  base = Math.ceil((from + scratchBytes + CANARY) / 64) * 64;
  const pages = Math.ceil((base + bytes) / PAGE) + 1;
  memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
}

/** What is laid out is of this kernel. @param {Tune.Loaded | null} next */
export const use = (next) => (loaded = next);

/** @param {number} address @param {number} length */
const bytesAt = (address, length) => new Uint8Array(memory.buffer, address, length);

/** @type {Tune.MakeRunner} */
export async function makeRunner(module, name, entries, tiles) {
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
export function lay(facts) {
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
export function begin(set) {
  const { addresses, facts, sets } = /** @type {Tune.Loaded} */ (loaded);
  facts.buffers.forEach(({ bytes }, number) => {
    const place = bytesAt(addresses[number], bytes);
    if (number) place.set(/** @type {Uint8Array} */ (sets[set].inputs[number]));
    else place.fill(isFloat(facts.buffers[0].dtype) ? UNWRITTEN.float : UNWRITTEN.integer);
  });
}

/** The output of the set, as it lies in memory now. */
export function output() {
  const { addresses, facts: { buffers: [{ dtype, size }] } } = /** @type {Tune.Loaded} */ (loaded);
  return new (arrayOf(dtype))(memory.buffer, addresses[0], size);
}

/** Tiles in pieces of about a breath, in an order that is never the same; may be paused. @type {Tune.RunAll} */
export async function runAll(runner, shuffled) {
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

/** What is wrong with a candidate, or ''. @type {Tune.Check} */
export async function check(runner) {
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

/** What is wrong with a kernel that is in use, by the results of another one. @type {Tune.Check} */
export async function refutation(runner) {
  try {
    return await check(runner);
  } catch (error) {
    if (!(error instanceof WebAssembly.RuntimeError)) throw error;
    return error.message;
  }
}
