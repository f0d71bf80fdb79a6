// Instances of the plan driver, and access to the control block (docs/bundle.md) through which page and
// workers communicate.  Indices count 32-bit words.

import { ABORT, CONTROL_WORDS, DONE, TRAPPED, WORKER_LINES, WORKER_WORDS } from './abi.js';
import { asEngineError } from './errors.js';

/** Index of the word that holds a worker's current step plus one, 0 outside a run. @param {number} worker */
export const stepOf = (worker) => WORKER_LINES + WORKER_WORDS * worker;

/** Shared memory of `pages` 64 KiB pages; null if the browser refuses. @param {number} pages */
export function makeMemory(pages) {
  try {
    return new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  } catch {
    return null;
  }
}

/** @param {WebAssembly.Memory} memory */
export const wordsOf = (memory) => new Int32Array(memory.buffer, 0, CONTROL_WORDS);

/** Holds a Web Lock for the worker's lifetime: link.js detects a dead worker by its release. */
export const live = () => new Promise((resolve) => navigator.locks?.request(self.name, () => {
  self.postMessage({ alive: true });
  resolve(null);
  return new Promise(() => {});
  // A sandboxed frame has none.
}).catch(resolve));

/** @type {T.LeaveRun} */
export function leaveRun(words, worker, code) {
  const step = Atomics.load(words, stepOf(worker));
  Atomics.compareExchange(words, TRAPPED, 0, step);
  Atomics.store(words, ABORT, code);
  Atomics.store(words, stepOf(worker), 0);
  Atomics.notify(words, stepOf(worker));
  Atomics.notify(words, DONE);
}

/** The same properties, frozen and without a prototype. @param {object} parts @returns {any} */
const bare = (parts) => Object.freeze({ __proto__: null, ...parts });

/** An instance that can import these parts alone: on a prototype it would find JavaScript's own functions. @type {T.InstanceOf} */
export const instanceOf = (module, parts) => WebAssembly.instantiate(module, bare({ env: bare(parts) }));

/** @type {T.Instantiate} */
export async function instantiate({ modules, tuned, memory, slots, scratch, scratchBytes }, worker) {
  // A tuned module writes its function to table entry 0: a spare table takes that, and its export goes to the shared one.
  const [shared, spare] = [slots + tuned.length, 1].map((initial) => new WebAssembly.Table({ element: 'anyfunc', initial, maximum: initial }));
  const own = new WebAssembly.Global({ value: 'i32', mutable: false }, (scratch + worker * scratchBytes) | 0);
  /** @type {T.Made} */
  const made = (module, table) => instanceOf(module, { memory, table, scratch: own })
    .then((instance) => instance.exports, (error) => { throw asEngineError(error); });
  for (const [at, { module }] of tuned.entries()) shared.set(slots + at, (await made(module, spare)).k0);
  let driver;
  for (const module of modules) driver = await made(module, shared);
  return driver;
}
