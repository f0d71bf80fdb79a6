// Instances of the plan driver, and runs of a loaded bundle's plans: one driver call per run, no JavaScript per kernel.  The control block
// (docs/bundle-wasm.md) connects page and workers; indices count its 32-bit words.
// Input: memory, plans, modules.  Files are fetched, and the caller's inputs are checked, elsewhere.

import { ABORT, CHECK, CONTROL_WORDS, DONE, INDEX, STALLED, TRAPPED, WORKER_LINES, WORKER_WORDS } from './abi.js';
import { asEngineError, EngineError, outOfRange } from './errors.js';
import { reachFor } from './memory_growth.js';
import { readOutputs, sizesOf, writeInputs } from './tensors.js';

/** Index of the word that holds a worker's current step plus one, 0 outside a run. @param {number} worker */
export const stepOf = (worker) => WORKER_LINES + WORKER_WORDS * worker;

/** Shared memory of `initial` pages, which may grow to `maximum`; null if the browser refuses. @param {[number, number]} pages */
export function makeMemory([initial, maximum]) {
  try {
    return new WebAssembly.Memory({ initial, maximum, shared: true });
  } catch {
    return null;
  }
}

/** @param {WebAssembly.Memory} memory */
export const wordsOf = (memory) => new Int32Array(memory.buffer, 0, CONTROL_WORDS);

/** Holds a Web Lock for the worker's lifetime: channel.js detects a dead worker by its release. */
export const live = () => new Promise((resolve) => navigator.locks?.request(self.name, () => {
  self.postMessage({ alive: true });
  resolve(null);
  return new Promise(() => {});
  // A sandboxed frame has no locks.
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

/** An instance that can import only these parts: with a prototype it could import JavaScript's own functions. @type {T.InstanceOf} */
export const instanceOf = (module, parts) => WebAssembly.instantiate(module, bare({ env: bare(parts) }));

/** @type {T.Instantiate} */
export async function instantiate({ modules, tuned, memory, slots, scratch, scratchBytes }, worker) {
  // A tuned module writes its function to table entry 0.  It gets a spare table, and its export is written to the shared one.
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

/** @type {T.MakePlanRunner} */
export function makePlanRunner(plans, memory, driver, threads, kernels = []) {
  const { buffer } = memory;
  const words = wordsOf(memory);

  /** @type {T.Call} */
  function call(plan, first = 0, last = plans[plan].steps.length) {
    const start = performance.now();
    let reason = 'in another worker';
    let code;
    try {
      code = driver.run(plans[plan].address, first, last, threads);
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError)) throw error;
      reason = error.message;
      Atomics.store(words, TRAPPED, words[stepOf(0)]);
      code = driver.abort(threads);
    }
    if (code) throw stopped(plan, code, reason);
    return performance.now() - start;
  }

  /** @type {T.Stopped} */
  function stopped(plan, code, trap) {
    const workers = Array.from({ length: threads }, (_, worker) => Atomics.load(words, stepOf(worker)));
    const number = (words[TRAPPED] || workers.find((step) => step > 0) || 0) - 1;
    const { steps, dims } = plans[plan];
    const { kernel, node, spec, checks = [] } = steps[number] ?? {};
    const tuned = kernels.some((other) => other.spec === spec);
    const where = `kernel ${kernel} of node ${node}`;
    const facts = { step: number, kernel, node, spec, tuned, plan: dims };
    if (code === STALLED) {
      return new EngineError('host', `Step ${number} stalled: ${where}; a pool worker may have died`,
        'The engine restarts it; the device may lack memory', { ...facts, threads });
    }
    const check = checks[Atomics.exchange(words, CHECK, 0) - 1];
    if (check) return outOfRange(check, words[INDEX], words[INDEX + 1], facts);
    return new EngineError('kernel-trap', `Step ${number} stopped: ${where} (${trap})`, 'Check the inputs. The engine can be used again', { ...facts, trap });
  }

  return {
    take({ plan, sizes, tensors }) {
      sizesOf(plans[plan], sizes).forEach((size, extent) => driver.resize(plans[plan].address, extent, size));
      if (tensors) writeInputs(buffer, plans[plan].inputs, tensors);
      const { growth } = plans[plan];
      if (growth) reachFor(memory, growth);
    },

    call,

    run({ wanted, ...work }) {
      this.take(work);
      const milliseconds = call(work.plan);
      return { milliseconds, outputs: wanted && readOutputs(buffer, plans[work.plan].outputs, wanted) };
    },
  };
}
