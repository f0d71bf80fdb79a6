// The line to the engine's workers: requests, answers, and the certainty that no promise hangs for ever.
// Input: kind and params of a request.  Output: a promise of its value, or an EngineError.
// What the requests mean is known to engine.js and worker.js alone.

import { leaveRun, PREEMPT, STALLED, stepOf, wordsOf } from './control.js';
import { EngineError } from './errors.js';

/** @import {PlainError, Progress} from './types.js' */

/** @param {string} file */
function startWorker(file) {
  // The name is also the name of the lock that the worker holds while it lives.
  const lock = `tilewright-${Array.from(crypto.getRandomValues(new Uint32Array(4))).join('-')}`;
  return { worker: new Worker(new URL(file, import.meta.url), { type: 'module', name: lock }), lock };
}

export class WorkerLink {
  #worker;
  /** @type {Map<number, {resolve: (value: any) => void, reject: (error: unknown) => void}>} */
  #pending = new Map();
  #next = 1;
  /** Why the line is dead. @type {unknown} */
  #end = null;
  #onProgress;
  /** The further workers of the pool, by their numbers. @type {Map<number, {worker: Worker, lock: string}>} */
  #helpers = new Map();
  /** The bundle's memory, once there is one and if it is shared. @type {WebAssembly.Memory | null} */
  memory = null;

  /** @param {(progress: Progress) => void} onProgress @param {number} threads */
  constructor(onProgress, threads) {
    this.#onProgress = onProgress;
    const { worker, lock } = startWorker('./worker.js');
    this.#worker = worker;
    this.#watchErrors(worker);
    worker.addEventListener('message', ({ data }) => this.#receive(data, lock));
    worker.addEventListener('messageerror', () => this.#fail('A message of the worker could not be read', 'Load the bundle again'));
    for (let number = 1; number < threads; number++) this.#help(number);
  }

  /** @param {string} message @param {string} hint @param {object} [facts] */
  #fail(message, hint, facts) {
    this.close(new EngineError('host', message, hint, { ...facts }));
  }

  /** @param {Worker} worker */
  #watchErrors(worker) {
    worker.addEventListener('error', (event) => {
      // The main thread's console need not show what the rejected promise says.
      event.preventDefault();
      this.#fail(
        `The engine's worker failed: ${event.message || 'its script could not be loaded'}`,
        "Check that all engine files are served as JavaScript and that the page's content security policy allows workers from its origin",
        { file: event.filename, line: event.lineno },
      );
    });
  }

  /**
   * Starts a worker of the pool, and joins it to the engine's worker.
   * @param {number} number
   */
  #help(number) {
    const { worker, lock } = startWorker('./serve.js');
    const { port1, port2 } = new MessageChannel();
    this.#watchErrors(worker);
    worker.addEventListener('message', () => navigator.locks.request(lock, () => this.#lost(number, worker)));
    worker.postMessage({ port: port1, number }, [port1]);
    this.#worker.postMessage({ helper: { port: port2, number } }, [port2]);
    this.#helpers.set(number, { worker, lock });
  }

  /**
   * A worker of the pool is gone.  If it was inside a run, that cannot be finished any more.
   * @param {number} number
   * @param {Worker} worker
   */
  #lost(number, worker) {
    if (this.#end || this.#helpers.get(number)?.worker !== worker) return;
    const words = this.memory && wordsOf(this.memory);
    if (words && Atomics.load(words, stepOf(number))) leaveRun(words, number, STALLED);
    this.#worker.postMessage({ lost: number });
  }

  /**
   * Ends a worker of the pool and starts another when it is really gone: until then it may write.
   * @param {number} number
   */
  async #replace(number) {
    const { worker, lock } = /** @type {{worker: Worker, lock: string}} */ (this.#helpers.get(number));
    this.#helpers.delete(number);
    worker.terminate();
    await navigator.locks.request(lock, () => {});
    if (this.memory) Atomics.store(wordsOf(this.memory), stepOf(number), 0);
    if (!this.#end) this.#help(number);
  }

  /** @param {boolean} on */
  preempt(on) {
    if (!this.memory) {
      throw new EngineError('host', 'Runs can only be stopped from outside where memory is shared', 'Serve the page cross-origin isolated');
    }
    const words = wordsOf(this.memory);
    Atomics.store(words, PREEMPT, Number(on));
    Atomics.notify(words, PREEMPT);
  }

  /**
   * @param {string} kind
   * @param {object} params
   * @returns {Promise<any>}
   */
  request(kind, params) {
    if (this.#end) return Promise.reject(this.#end);
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject });
      this.#worker.postMessage({ id, kind, params });
    });
  }

  /**
   * Ends the workers; whatever is still open is rejected.
   * @param {unknown} reason
   */
  close(reason) {
    if (this.#end) return;
    this.#end = reason;
    this.#worker.terminate();
    for (const { worker } of this.#helpers.values()) worker.terminate();
    this.memory = null;
    for (const { reject } of this.#pending.values()) reject(reason);
    this.#pending.clear();
  }

  /**
   * @param {{memory?: WebAssembly.Memory, replace?: number, id?: number, value?: unknown, error?: PlainError, progress?: Progress, alive?: boolean}} message
   * @param {string} lock
   */
  #receive({ progress, alive, memory, replace, id = 0, value, error }, lock) {
    if (this.#end) return;
    if (progress) this.#onProgress(progress);
    if (alive) this.#watch(lock);
    if (memory) this.memory = memory;
    if (replace) this.#replace(replace);
    const waiting = this.#pending.get(id);
    this.#pending.delete(id);
    if (error) waiting?.reject(EngineError.from(error));
    else waiting?.resolve(value);
  }

  /**
   * A killed worker sends no event at all, but the browser frees its locks: getting this one means
   * that the worker is gone.
   * @param {string} lock
   */
  #watch(lock) {
    navigator.locks.request(lock, () => this.#fail(
      'The worker died: the browser ended it',
      'Load the bundle again; if it happens again, the device may lack memory',
    ));
  }
}
