// A loaded bundle as a machine: memory, plans and the driver, run without a line of JavaScript per kernel.
// Input: the manifest, filled memory, the driver's `run`.  Output: times, and outputs where the page cannot read memory.
// It fetches nothing and checks no caller's input; both happened before.

import { STALLED, stepOf, TRAPPED, wordsOf } from './control.js';
import { EngineError } from './errors.js';
import { keepInputs, readOutputs, writeInputs } from './regions.js';

/**
 * @import {Driver, Manifest, Tensor, Wanted} from './types.js'
 * @typedef {{plan: number, runs: number, tensors?: Tensor[]}} Work `tensors`: inputs, if they are not in memory yet
 */

export class Machine {
  #manifest;
  #buffer;
  #words;
  #driver;
  #threads;
  #fineClock;

  /**
   * @param {Manifest} manifest
   * @param {WebAssembly.Memory} memory
   * @param {Driver} driver
   * @param {number} threads
   * @param {boolean} fineClock
   */
  constructor(manifest, memory, driver, threads, fineClock) {
    this.#manifest = manifest;
    this.#buffer = memory.buffer;
    this.#words = wordsOf(memory);
    this.#driver = driver;
    this.#threads = threads;
    this.#fineClock = fineClock;
  }

  /** @param {{plan: number, tensors?: Tensor[], wanted?: Wanted[]}} work */
  run({ plan, tensors, wanted }) {
    const { inputs, outputs } = this.#manifest.plans[plan];
    if (tensors) writeInputs(this.#buffer, inputs, tensors);
    const milliseconds = this.#call(plan);
    return { milliseconds, outputs: wanted && readOutputs(this.#buffer, outputs, wanted) };
  }

  /**
   * Calls the driver again and again; only the calls are timed.
   * @param {Work & {warmup: number}} work
   */
  time({ plan, runs, warmup, tensors }) {
    const restore = this.#take(plan, tensors);
    const times = Array.from({ length: warmup + runs }, () => {
      restore();
      return this.#call(plan);
    });
    return { first: times[0], milliseconds: times.slice(warmup) };
  }

  /**
   * Times each step by itself.
   * @param {Work} work
   */
  profile({ plan, runs, tensors }) {
    const { steps } = this.#manifest.plans[plan];
    const restore = this.#take(plan, tensors);
    const times = steps.map(() => new Float64Array(runs));
    for (let run = 0; run < runs; run++) {
      restore();
      times.forEach((row, step) => (row[run] = this.#call(plan, step, step + 1)));
    }
    // With a coarse clock a median would only count its ticks.
    const summary = this.#fineClock ? median : mean;
    return steps.map((step, at) => ({ step: at, ...step, milliseconds: summary(times[at]) }));
  }

  /** @param {number} plan @param {Tensor[]} [tensors] */
  #take(plan, tensors) {
    const { inputs } = this.#manifest.plans[plan];
    if (tensors) writeInputs(this.#buffer, inputs, tensors);
    return keepInputs(this.#buffer, inputs);
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

  /** @param {number} plan @param {number} code why the driver gave up @param {string} trap */
  #stopped(plan, code, trap) {
    const workers = Array.from({ length: this.#threads }, (_, worker) => Atomics.load(this.#words, stepOf(worker)));
    const number = (this.#words[TRAPPED] || workers.find((step) => step > 0) || 0) - 1;
    const { steps, dims } = this.#manifest.plans[plan];
    const { kernel, node } = steps[number] ?? {};
    const where = `kernel ${kernel ?? 'unknown'} of node ${node ?? 'unknown'}`;
    const facts = { step: number, kernel, node, plan: dims };
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
}

/** @param {Float64Array} values */
function median(values) {
  const sorted = values.toSorted();
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** @param {Float64Array} values */
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
