// A loaded bundle as a machine: memory, plans and the driver, run without a line of JavaScript per kernel.
// Input: the manifest, filled memory, the driver's `run`.  Output: output tensors and times.
// It fetches nothing and checks no caller's input; both happened before.

import { STALLED, stepOf, TRAPPED, wordsOf } from './control.js';
import { EngineError } from './errors.js';
import { copyBox, elementsOf, sizeOf, viewOf } from './tensors.js';

/**
 * @typedef {import('./types.js').Manifest} Manifest
 * @typedef {import('./types.js').Plan} Plan
 * @typedef {import('./types.js').Placed} Placed
 * @typedef {import('./types.js').Sizes} Sizes
 * @typedef {import('./tensors.js').Tensor} Tensor
 * @typedef {import('./instance.js').Driver} Driver
 */

export class Machine {
  #manifest;
  #memory;
  #words;
  #driver;
  #threads;
  #fineClock;
  /** The inputs of the last run, so that timing repeats real work. @type {{plan: number, tensors: Tensor[]} | null} */
  #last = null;

  /**
   * @param {Manifest} manifest
   * @param {WebAssembly.Memory} memory
   * @param {Driver} driver
   * @param {number} threads
   * @param {boolean} fineClock
   */
  constructor(manifest, memory, driver, threads, fineClock) {
    this.#manifest = manifest;
    this.#memory = memory;
    this.#words = wordsOf(memory);
    this.#driver = driver;
    this.#threads = threads;
    this.#fineClock = fineClock;
  }

  /**
   * @param {number} plan
   * @param {Sizes} sizes
   * @param {Tensor[]} tensors
   */
  run(plan, sizes, tensors) {
    const { inputs, outputs } = this.#manifest.plans[plan];
    inputs.forEach((placed, at) => this.#write(placed, tensors[at]));
    this.#last = { plan, tensors };
    const milliseconds = this.#call(plan);
    return { milliseconds, outputs: outputs.map((placed, at) => this.#read(placed, this.#manifest.outputs[at].shape, sizes)) };
  }

  /**
   * Calls the driver again and again; only the calls are timed.
   * @param {number} plan
   * @param {number} runs
   * @param {number} warmup
   */
  time(plan, runs, warmup) {
    const times = Array.from({ length: warmup + runs }, () => {
      this.#restoreInputs(plan);
      return this.#call(plan);
    });
    return { first: times[0], milliseconds: times.slice(warmup) };
  }

  /**
   * Times each step by itself.
   * @param {number} plan
   * @param {number} runs
   */
  profile(plan, runs) {
    const { steps } = this.#manifest.plans[plan];
    const times = steps.map(() => new Float64Array(runs));
    for (let run = 0; run < runs; run++) {
      this.#restoreInputs(plan);
      times.forEach((row, step) => (row[run] = this.#call(plan, step, step + 1)));
    }
    // With a coarse clock a median would only count its ticks.
    const summary = this.#fineClock ? median : mean;
    return steps.map((step, at) => ({ step: at, ...step, milliseconds: summary(times[at]) }));
  }

  /**
   * @param {number} plan
   * @param {number} [first]
   * @param {number} [last]
   * @returns {number} milliseconds
   */
  #call(plan, first = 0, last = this.#manifest.plans[plan].steps.length) {
    const start = performance.now();
    let reason = 'in another worker';
    let code;
    try {
      code = this.#driver.run(this.#manifest.plans[plan].address, first, last, this.#threads);
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError)) throw error;
      reason = error.message;
      Atomics.store(this.#words, TRAPPED, this.#words[stepOf(0)]);
      code = this.#driver.abort(this.#threads);
    }
    if (code) throw this.#stopped(plan, code, reason);
    return performance.now() - start;
  }

  /**
   * @param {number} plan
   * @param {number} code why the driver gave up
   * @param {string} trap
   */
  #stopped(plan, code, trap) {
    const workers = Array.from({ length: this.#threads }, (_, worker) => Atomics.load(this.#words, stepOf(worker)));
    const number = (this.#words[TRAPPED] || workers.find((step) => step > 0) || 0) - 1;
    const { steps, dims } = this.#manifest.plans[plan];
    const step = steps[number];
    const where = `kernel ${step?.kernel ?? 'unknown'} of node ${step?.node ?? 'unknown'}`;
    const facts = { step: number, kernel: step?.kernel, node: step?.node, plan: dims };
    if (code === STALLED) {
      return new EngineError(
        'host',
        `Step ${number} was not finished: a worker of the pool died or stood still in ${where}`,
        'The engine starts the worker anew and can be used again; if it happens again, the device may lack memory',
        { ...facts, threads: this.#threads },
      );
    }
    return new EngineError(
      'kernel-trap',
      `Step ${number} stopped: ${where} (${trap})`,
      'Look at the inputs: most often an index lies outside its table. The engine can be used again',
      { ...facts, trap },
    );
  }

  /**
   * Memory planning may lay intermediate buffers over the inputs, so each repetition writes them anew.
   * @param {number} plan
   */
  #restoreInputs(plan) {
    this.#manifest.plans[plan].inputs.forEach((placed, at) => {
      if (this.#last?.plan === plan) this.#write(placed, this.#last.tensors[at]);
      else this.#region(placed).fill(0);
    });
  }

  /** @param {{address: number, bytes: number}} placed */
  #region({ address, bytes }) {
    return new Uint8Array(this.#memory.buffer, address, bytes);
  }

  /**
   * @param {Placed} placed
   * @param {Tensor} tensor
   */
  #write(placed, { data, shape }) {
    const region = this.#region(placed);
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (bytes.length === region.length) {
      region.set(bytes);
      return;
    }
    region.fill(0);
    copyBox(region, placed.shape, bytes, shape, shape, sizeOf(placed.dtype));
  }

  /**
   * @param {Placed} placed
   * @param {(number | string)[]} pattern the output's shape in the manifest
   * @param {Sizes} sizes
   * @returns {Tensor}
   */
  #read(placed, pattern, sizes) {
    const { name, dtype } = placed;
    const shape = placed.shape.map((size, axis) => sizes[pattern[axis]] ?? size);
    const bytes = new Uint8Array(elementsOf(shape) * sizeOf(dtype));
    copyBox(bytes, shape, this.#region(placed), placed.shape, shape, sizeOf(dtype));
    return { name, dtype, shape, data: viewOf(dtype, bytes.buffer) };
  }
}

/** @param {Float64Array} values */
function median(values) {
  const sorted = values.toSorted();
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** @param {Float64Array} values */
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
