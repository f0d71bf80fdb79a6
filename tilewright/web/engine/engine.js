// Tilewright's browser engine, as a page sees it: load a bundle, run it, time it, dispose it.
// Input: the URL of a bundle folder (or of its bundle.json), then named tensors.  Output: named tensors.
// Kernels run in workers; this file holds the order of runs, and moves inputs and outputs where memory is shared.

import { abortError, EngineError } from './errors.js';
import { WorkerLink } from './link.js';
import { probeHost, threadsFor } from './features.js';
import { readManifestOf } from './loader.js';
import { readOutputs, writeInputs } from './regions.js';
import { checkInputs, checkOutputs, pickPlan } from './tensors.js';

export { EngineError } from './errors.js';
export { cachedBytes, clearCache } from './store.js';
export { probeHost } from './features.js';

/** @import {Info, Input, LoadOptions, Output, Places, RunOptions, RunResult, Sizes, Step, Tensor} from './types.js' */

/** @param {string | URL} url */
const absolute = (url) => new URL(url, globalThis.document?.baseURI ?? globalThis.location.href).href;

/**
 * The manifest of a bundle (docs/bundle.md), verified, without its code and weights.
 * @param {string | URL} url
 */
export const inspect = (url) => readManifestOf(absolute(url));

/**
 * Loads a bundle.  Rejects with an EngineError, or with an AbortError when `signal` fires.
 * @param {string | URL} url
 * @param {LoadOptions} [options]
 */
export async function load(url, { onProgress = () => {}, signal, ...limits } = {}) {
  if (signal?.aborted) throw abortError();
  const threads = threadsFor(probeHost(), limits.threads);
  const link = new WorkerLink(onProgress, threads);
  const abort = () => link.close(abortError());
  signal?.addEventListener('abort', abort);
  try {
    const { info, places } = await link.request('load', { url: absolute(url), limits, threads });
    return new Engine(link, info, places);
  } catch (error) {
    link.close(error);
    throw error;
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

/** A loaded bundle.  Made by `load`, not by its constructor. */
export class Engine {
  #link;
  #info;
  #places;
  #runs = 0;
  #first = 0;
  #disposed = false;
  /** The latest inputs, so that timing repeats real work. @type {{plan: number, tensors: Tensor[]} | null} */
  #last = null;
  /** Jobs that have not ended, and a promise of when they have; it never rejects. */
  #open = 0;
  /** @type {Promise<unknown>} */
  #queue = Promise.resolve();

  /** @param {WorkerLink} link @param {Info} info @param {Places[]} places per plan */
  constructor(link, info, places) {
    this.#link = link;
    this.#info = info;
    this.#places = places;
  }

  /** What was loaded, where it runs, and what is lost here. */
  get info() {
    return structuredClone(this.#info);
  }

  /**
   * Runs the model once.  Runs queue: a run starts when all earlier ones have ended, in the order of
   * the calls.  Inputs are copied before this returns: to their place if nothing is queued and memory
   * is shared.  An aborted run rejects at once; one that has already started still finishes in the
   * worker, and its result is dropped.
   * @param {Record<string, Input>} inputs
   * @param {RunOptions} [options]
   * @returns {Promise<RunResult>}
   */
  async run(inputs, { signal, into = {} } = {}) {
    this.#requireLive();
    if (signal?.aborted) throw abortError();
    const start = performance.now();
    const { tensors, sizes } = checkInputs(this.#info.inputs, inputs);
    const plan = pickPlan(this.#info.plans, sizes);
    const places = this.#places[plan].outputs;
    const wanted = checkOutputs(this.#info.outputs, places, sizes, into);
    const given = this.#open ? tensors.map(copied) : tensors;
    const done = this.#enqueue(async () => {
      if (signal?.aborted) throw abortError();
      this.#last = { plan, tensors };
      const { memory } = this.#link;
      const forWorker = memory ? undefined : wanted.map(({ data, ...output }) => output);
      const { milliseconds, outputs } = await this.#ask('run', { plan, wanted: forWorker }, given);
      // The caller, who has been told of the abort, may use its arrays again.
      if (signal?.aborted) throw abortError();
      return { milliseconds, outputs: memory ? readOutputs(memory.buffer, places, wanted) : outputs };
    });
    const { milliseconds, outputs } = await orAborted(done, signal);
    if (++this.#runs === 1) this.#first = milliseconds;
    return {
      outputs: Object.fromEntries(outputs.map((/** @type {Output & {name: string}} */ { name, ...output }) => [name, output])),
      bucket: this.#info.plans[plan].dims,
      milliseconds,
      firstMilliseconds: this.#first,
      totalMilliseconds: performance.now() - start,
      run: this.#runs,
    };
  }

  /**
   * Times driver calls in the worker, back to back, with what the arrays of the last run now hold if
   * it was in that bucket, or else with zeros.  `first` is the very first call, warm-up or not.
   * @param {{bucket?: Sizes, runs?: number, warmup?: number}} [options]
   * @returns {Promise<{milliseconds: number[], first: number, bucket: Sizes}>}
   */
  async time({ bucket = {}, runs = 20, warmup = 3 } = {}) {
    requireCount('warmup', warmup, 0);
    const { value, dims } = await this.#repeat('time', bucket, { runs, warmup });
    return { ...value, bucket: dims };
  }

  /**
   * Times each step of a plan by itself: the median over the runs, or the mean where the page's clock
   * is too coarse for single steps (not cross-origin isolated).
   * @param {{bucket?: Sizes, runs?: number}} [options]
   * @returns {Promise<{steps: (Step & {step: number, milliseconds: number})[], bucket: Sizes}>}
   */
  async profile({ bucket = {}, runs = 10 } = {}) {
    const { value, dims } = await this.#repeat('profile', bucket, { runs });
    return { steps: value, bucket: dims };
  }

  /**
   * A file that came with the bundle, verified and kept for the next visit.
   * @param {string} name
   * @returns {Promise<ArrayBuffer>}
   */
  async asset(name) {
    this.#requireLive();
    return this.#link.request('asset', { name });
  }

  /**
   * Lets runs stop before their next tile, or go on.  Only on cross-origin isolated pages.
   * @param {boolean} on
   */
  preempt(on) {
    this.#requireLive();
    this.#link.preempt(on);
  }

  /** Ends the workers and frees their memory.  Open runs reject with `host`, later ones with `disposed`. */
  dispose() {
    this.#disposed = true;
    this.#last = null;
    this.#link.close(new EngineError('host', 'The engine was disposed while it worked', 'Wait for open runs before dispose()'));
  }

  #requireLive() {
    if (this.#disposed) throw new EngineError('disposed', 'The engine was disposed', 'Load the bundle again');
  }

  /** @param {string} kind @param {Sizes} bucket @param {{runs: number, warmup?: number}} params */
  async #repeat(kind, bucket, params) {
    this.#requireLive();
    requireCount('runs', params.runs, 1);
    const plan = pickPlan(this.#info.plans, bucket);
    const value = await this.#enqueue(() => {
      const tensors = this.#last?.plan === plan ? this.#last.tensors : [];
      return this.#ask(kind, { plan, ...params }, tensors);
    });
    return { value, dims: this.#info.plans[plan].dims };
  }

  /**
   * A request whose inputs come first: into memory, or with the message.
   * @param {string} kind
   * @param {{plan: number, [name: string]: unknown}} params
   * @param {Tensor[]} tensors
   */
  #ask(kind, params, tensors) {
    const { memory } = this.#link;
    if (!memory) return this.#link.request(kind, { ...params, tensors: tensors.map(copied) });
    writeInputs(memory.buffer, this.#places[params.plan].inputs, tensors);
    return this.#link.request(kind, params);
  }

  /**
   * Starts the job at once if no other is open.
   * @param {() => Promise<any>} job
   * @returns {Promise<any>}
   */
  #enqueue(job) {
    const work = async () => {
      try {
        return await job();
      } finally {
        this.#open--;
      }
    };
    const result = this.#open++ ? this.#queue.then(work) : work();
    this.#queue = result.catch(() => {});
    return result;
  }
}

/**
 * Also of a part of a larger buffer only that part.
 * @param {Tensor} tensor
 * @returns {Tensor}
 */
const copied = ({ data, shape }) => ({ data: data.slice(), shape });

/** @param {string} name @param {number} value @param {number} least */
function requireCount(name, value, least) {
  if (Number.isInteger(value) && value >= least) return;
  throw new EngineError('input', `${name} must be an integer of at least ${least}, found ${value}`, `Give ${name} as a whole number`, { [name]: value });
}

/**
 * @param {Promise<any>} promise
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
function orAborted(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const abort = () => reject(abortError());
    signal.addEventListener('abort', abort);
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
