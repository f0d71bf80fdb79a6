// Tilewright's browser engine, as a page sees it: load a bundle, run it, time it, dispose it.
// Input: the URL of a bundle folder (or of its bundle.json), then named tensors.  Output: named tensors.
// All work happens in one module worker; this file holds the order of runs and no kernel.

import { abortError, EngineError } from './errors.js';
import { WorkerLink } from './link.js';
import { probeHost, threadsFor } from './features.js';
import { readManifestOf } from './loader.js';
import { checkInputs, pickPlan } from './tensors.js';

export { EngineError } from './errors.js';
export { cachedBytes, clearCache } from './store.js';
export { probeHost } from './features.js';

/**
 * @typedef {import('./types.js').Sizes} Sizes
 * @typedef {import('./types.js').DType} DType
 * @typedef {import('./types.js').Step} Step
 * @typedef {Awaited<ReturnType<typeof import('./loader.js').loadBundle>>['info']} Info
 * @typedef {import('./tensors.js').Input} Input
 * @typedef {import('./tensors.js').Tensor} Tensor
 * @typedef {import('./types.js').Progress} Progress
 *
 * @typedef {object} Listening
 * @property {(progress: Progress) => void} [onProgress] called a few times per second
 * @property {AbortSignal} [signal] ends the load and its worker
 *
 * @typedef {Listening & import('./types.js').Limits} LoadOptions
 *
 * @typedef {object} RunResult
 * @property {Record<string, {data: any, shape: number[], dtype: DType}>} outputs
 * @property {Sizes} bucket the plan that ran
 * @property {number} milliseconds the driver call alone
 * @property {number} firstMilliseconds the same of this engine's first run, when code may still be unoptimised
 * @property {number} totalMilliseconds with copying, messages and waiting for earlier runs
 * @property {number} run number of this run, from 1
 */

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
  const count = threadsFor(probeHost(), limits.threads);
  const link = new WorkerLink(onProgress, count);
  const abort = () => link.close(abortError());
  signal?.addEventListener('abort', abort);
  try {
    const info = await link.request('load', { url: absolute(url), limits, threads: count });
    return new Engine(link, info);
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
  #runs = 0;
  #first = 0;
  #disposed = false;
  /** Ends when the last queued job ends; it never rejects. @type {Promise<unknown>} */
  #queue = Promise.resolve();

  /**
   * @param {WorkerLink} link
   * @param {Info} info
   */
  constructor(link, info) {
    this.#link = link;
    this.#info = info;
  }

  /** What was loaded, where it runs, and what is lost here. */
  get info() {
    return structuredClone(this.#info);
  }

  /**
   * Runs the model once.  Runs queue: a run starts when all earlier ones have ended, in the order of
   * the calls.  Inputs are copied before this returns.  An aborted run rejects at once; one that has
   * already started still finishes in the worker, and its result is dropped.
   * @param {Record<string, Input>} inputs
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<RunResult>}
   */
  async run(inputs, { signal } = {}) {
    this.#requireLive();
    if (signal?.aborted) throw abortError();
    const start = performance.now();
    const { tensors, sizes } = checkInputs(this.#info.inputs, inputs);
    const plan = pickPlan(this.#info.plans, sizes);
    const moved = tensors.map(({ data }) => data.buffer);
    const done = this.#enqueue(() => {
      if (signal?.aborted) throw abortError();
      return this.#link.request('run', { plan, sizes, tensors }, moved);
    });
    const { milliseconds, outputs } = await orAborted(done, signal);
    if (++this.#runs === 1) this.#first = milliseconds;
    return {
      outputs: Object.fromEntries(outputs.map((/** @type {Tensor} */ { name, ...tensor }) => [name, tensor])),
      bucket: this.#info.plans[plan].dims,
      milliseconds,
      firstMilliseconds: this.#first,
      totalMilliseconds: performance.now() - start,
      run: this.#runs,
    };
  }

  /**
   * Times driver calls in the worker, back to back, with the inputs of the last run in that bucket, or
   * with zeros.  `first` is the very first call, warm-up or not.
   * @param {{bucket?: Sizes, runs?: number, warmup?: number}} [options]
   * @returns {Promise<{milliseconds: number[], first: number, bucket: Sizes}>}
   */
  async time({ bucket = {}, runs = 20, warmup = 3 } = {}) {
    this.#requireLive();
    requireCount('runs', runs, 1);
    requireCount('warmup', warmup, 0);
    const plan = pickPlan(this.#info.plans, bucket);
    const times = await this.#enqueue(() => this.#link.request('time', { plan, runs, warmup }));
    return { ...times, bucket: this.#info.plans[plan].dims };
  }

  /**
   * Times each step of a plan by itself: the median over the runs, or the mean where the page's clock
   * is too coarse for single steps (not cross-origin isolated).
   * @param {{bucket?: Sizes, runs?: number}} [options]
   * @returns {Promise<{steps: (Step & {step: number, milliseconds: number})[], bucket: Sizes}>}
   */
  async profile({ bucket = {}, runs = 10 } = {}) {
    this.#requireLive();
    requireCount('runs', runs, 1);
    const plan = pickPlan(this.#info.plans, bucket);
    const steps = await this.#enqueue(() => this.#link.request('profile', { plan, runs }));
    return { steps, bucket: this.#info.plans[plan].dims };
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
    this.#link.close(new EngineError('host', 'The engine was disposed while it worked', 'Wait for open runs before dispose()'));
  }

  #requireLive() {
    if (this.#disposed) throw new EngineError('disposed', 'The engine was disposed', 'Load the bundle again');
  }

  /**
   * @param {() => Promise<any>} job
   * @returns {Promise<any>}
   */
  #enqueue(job) {
    const result = this.#queue.then(job);
    this.#queue = result.catch(() => {});
    return result;
  }
}

/**
 * @param {string} name
 * @param {number} value
 * @param {number} least
 */
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
