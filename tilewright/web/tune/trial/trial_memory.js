// The trial worker's own memory, apart from the model's: runs kernels there and checks their effects.
// Input: facts of a specification, kernels.  Output: results; a sentence about what is wrong with a kernel, or ''.
//
// Layout: argument block, scratch, then the kernel's buffers.  Canaries before and after each region detect writes out of bounds.  The
// memory grows as kernels need.

import { arrayOf, isFloat, shake } from './trial_inputs.js';
import { checksOf, Refused, Trapped } from './checks.js';
import { CHECK, INDEX } from '../../engine/abi.js';
import { instanceOf } from '../../engine/plan_runner.js';
import { kernelsOf, objectionTo } from '../../engine/vet.js';
import { YIELD_MS, yieldNow, inPieces } from './yielding.js';

const PAGE = 65536;
const ARGS = 1024;
const CANARY = 256;
const [LEFT, LEFT_END] = [4 * CHECK, 4 * (INDEX + 2)];
const MARK = 0xa5;
/** Fill bytes that reveal unwritten elements: floats are NaN, integers an unusual number. */
const UNWRITTEN = { float: 0xff, integer: 0xa6 };
/** Fills the argument block after the scalars; invalid both as a row count and as an address. */
const BEYOND = 0x7ffffff0;
/** Bytes per piece when copying or comparing. */
const PIECE = 1 << 19;


/** @type {WebAssembly.Memory} */
let memory;
let scratch = { address: 0, bytes: 0 };
/** Address of the first buffer. */
let base = 0;
/** The module of the bundle's own kernels, and the number of kernels in it. @type {WebAssembly.Module} */
let bundled;
let slots = 0;
/** The kernel whose buffers the memory holds. @type {Tune.LoadedKernel | null} */
export let loaded = null;

/** Creates the memory. @param {number} bytes maximum for all buffers of a kernel @param {number} scratchBytes */
export function openMemory(bytes, scratchBytes) {
  const from = ARGS + 4096;
  scratch = { address: from, bytes: scratchBytes };
  base = Math.ceil((from + scratchBytes + CANARY) / 64) * 64;
  memory = new WebAssembly.Memory({ initial: Math.ceil(base / PAGE) + 1, maximum: Math.ceil((base + bytes) / PAGE) + 1, shared: true });
}

/** Creates the memory, and compiles the bundle's own kernels. @type {Tune.OpenBench} */
export async function open({ code, entries, bytes, scratchBytes }) {
  openMemory(bytes, scratchBytes);
  bundled = await compiled(new Uint8Array(code), entries);
  slots = entries;
}

/** The bundle's own kernel. @type {Tune.OwnRunner} */
export const own = ({ slot, tiles }) => makeRunner(bundled, `k${slot}`, slots, tiles);

/** A candidate. @type {Tune.RunnerFor} */
export const runnerFor = (module, tiles) => makeRunner(module, 'k0', 1, tiles);

/** Sets the kernel whose buffers the memory holds. @param {Tune.LoadedKernel | null} next */
export const use = (next) => (loaded = next);

/** @param {number} address @param {number} length */
const bytesAt = (address, length) => new Uint8Array(memory.buffer, address, length);

/** Compiles a module of `count` kernels; rejects with Refused if it is invalid or contains anything else. @type {Tune.Compiled} */
export async function compiled(bytes, count = 1) {
  const objection = objectionTo(bytes, kernelsOf(count));
  if (objection) throw new Refused(`its module is not one of Tilewright's: ${objection}`);
  try {
    return await WebAssembly.compile(bytes);
  } catch (error) {
    // Other errors are not the candidate's fault.
    throw error instanceof WebAssembly.CompileError ? new Refused(String(error)) : error;
  }
}

/** @type {Tune.MakeRunner} */
async function makeRunner(module, name, entries, tiles) {
  const table = new WebAssembly.Table({ element: 'anyfunc', initial: entries, maximum: entries });
  const own = new WebAssembly.Global({ value: 'i32', mutable: false }, scratch.address | 0);
  const made = await instanceOf(module, { memory, table, scratch: own }).catch((error) => {
    const { LinkError, RuntimeError } = WebAssembly;
    throw [LinkError, RuntimeError, TypeError].some((kind) => error instanceof kind) ? new Refused(String(error)) : error;
  });
  const kernel = /** @type {any} */ (made.exports)[name];
  if (!kernel) throw new Refused(`it exports no function '${name}'`);
  return {
    tiles,
    run(first, last) {
      try {
        kernel(ARGS, first, last);
      } catch (error) {
        // Not only traps: for endless recursion each browser throws a different class.
        throw new Trapped(error instanceof Error ? error.message : String(error));
      }
    },
  };
}

/** Lays out a specification's buffers: writes argument block and canaries, and returns the addresses. @type {Tune.Lay} */
export function lay(facts) {
  let at = base;
  const addresses = facts.buffers.map(({ bytes }) => {
    const address = at + CANARY;
    at = Math.ceil((address + bytes + CANARY) / 64) * 64;
    return address;
  });
  const missing = Math.ceil(at / PAGE) - memory.buffer.byteLength / PAGE;
  if (missing > 0) memory.grow(missing);
  const words = [...addresses, ...facts.scalars];
  const block = new Uint32Array(memory.buffer, ARGS, (scratch.address - CANARY - ARGS) >> 2).fill(BEYOND);
  block.set(words);
  const borders = [scratch.address - CANARY, scratch.address + scratch.bytes, ...addresses.flatMap((address, number) => [address - CANARY, address + facts.buffers[number].bytes])];
  // The bytes before the argument block are canaries, except those of the control block where a kernel writes an index out of range.
  const canaries = [bytesAt(0, LEFT), bytesAt(LEFT_END, ARGS - LEFT_END), ...borders.map((from) => bytesAt(from, CANARY))];
  canaries.forEach((bytes) => bytes.fill(MARK));
  return { addresses, words, block, canaries };
}

/** True if argument block and canaries are unchanged. */
function untouched() {
  const { words, block, canaries } = /** @type {Tune.LoadedKernel} */ (loaded);
  return block.every((word, at) => word === (at < words.length ? words[at] >>> 0 : BEYOND)) && canaries.every((bytes) => bytes.every((byte) => byte === MARK));
}

/** Writes the inputs of a set, and fills output and scratch as unwritten. @param {string} set */
export async function begin(set) {
  const { addresses, facts, sets } = /** @type {Tune.LoadedKernel} */ (loaded);
  // Otherwise a kernel that writes too little could pass with the previous kernel's results.
  const own = bytesAt(scratch.address, scratch.bytes);
  await inPieces(scratch.bytes, PIECE, (from, to) => own.fill(UNWRITTEN.float, from, to));
  for (const [number, { bytes, dtype }] of facts.buffers.entries()) {
    const place = bytesAt(addresses[number], bytes);
    const given = sets[set].inputs[number];
    const mark = isFloat(dtype) ? UNWRITTEN.float : UNWRITTEN.integer;
    await inPieces(bytes, PIECE, (from, to) => (given ? place.set(given.subarray(from, to), from) : place.fill(mark, from, to)));
  }
}

/** A view of the output in memory. */
export function output() {
  const { addresses, facts: { buffers: [{ dtype, size }] } } = /** @type {Tune.LoadedKernel} */ (loaded);
  return new (arrayOf(dtype))(memory.buffer, addresses[0], size);
}

/** Runs all tiles in pieces of about YIELD_MS, with pauses in between; in random order if `shuffled`. @type {Tune.RunAll} */
export async function runAll(runner, shuffled) {
  const { tiles, run } = /** @type {Tune.WasmRunner} */ (runner);
  let step = 1;
  const starts = Uint32Array.from({ length: tiles }, (_, at) => at);
  if (shuffled) for (let at = tiles - 1; at > 0; at--) {
    const other = Math.floor(Math.random() * (at + 1));
    [starts[at], starts[other]] = [starts[other], starts[at]];
  }
  for (let at = 0; at < tiles;) {
    const before = performance.now();
    const end = Math.min(tiles, at + step);
    // Adjacent tiles run in one call, like those of a ticket.
    for (let from = at; from < end;) {
      let to = from + 1;
      while (to < end && starts[to] === starts[to - 1] + 1) to++;
      run(starts[from], starts[to - 1] + 1);
      from = to;
    }
    at = end;
    const spent = performance.now() - before;
    if (spent < YIELD_MS / 2) step *= 2;
    if (spent > YIELD_MS) step = Math.max(1, step >> 1);
    await yieldNow();
  }
}

/** Number of the first input that the kernel changed; -1: it wrote elsewhere; 0: nothing changed. @param {Tune.TrialSet} set */
async function changedInput({ inputs }) {
  if (!untouched()) return -1;
  const { addresses } = /** @type {Tune.LoadedKernel} */ (loaded);
  let changed = 0;
  for (const [number, input] of inputs.entries()) {
    if (!input || changed) continue;
    const found = bytesAt(addresses[number], input.length);
    await inPieces(input.length, PIECE, (from, to) => {
      if (!same(found.subarray(from, to), input.subarray(from, to))) changed = number;
    });
  }
  return changed;
}

/** True if bytes are equal; compares 32-bit words where aligned. @type {Tune.Same} */
function same(a, b) {
  const words = (a.byteOffset | b.byteOffset) % 4 ? 0 : a.length >> 2;
  const [x, y] = [a, b].map(({ buffer, byteOffset }) => new Uint32Array(buffer, words && byteOffset, words));
  for (let at = 0; at < words; at++) if (x[at] !== y[at]) return false;
  for (let at = words * 4; at < a.length; at++) if (a[at] !== b[at]) return false;
  return true;
}

export const { accept, check, refutation } = checksOf({
  current: () => /** @type {Tune.LoadedKernel} */ (loaded),
  begin, output, runAll, changedInput,
  perturb: (_, buffer, number) => shake(bytesAt(/** @type {Tune.LoadedKernel} */ (loaded).addresses[number], buffer.bytes), buffer, number),
});
