// The line to one worker: requests, answers, and the certainty that no promise hangs for ever.
// Input: kind and params of a request.  Output: a promise of its value, or an EngineError.
// What the requests mean is known to engine.js and worker.js alone.

import { EngineError } from './errors.js';

/** @typedef {import('./progress.js').Progress} Progress */

export class WorkerLink {
  #worker;
  /** @type {Map<number, {resolve: (value: any) => void, reject: (error: unknown) => void}>} */
  #pending = new Map();
  #next = 1;
  /** Why the line is dead. @type {unknown} */
  #end = null;
  #onProgress;

  /** @param {(progress: Progress) => void} onProgress */
  constructor(onProgress) {
    this.#onProgress = onProgress;
    // The name is also the name of the lock that the worker holds while it lives.
    const name = `tilewright-${Array.from(crypto.getRandomValues(new Uint32Array(4))).join('-')}`;
    this.#worker = new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name });
    this.#worker.addEventListener('message', ({ data }) => this.#receive(data, name));
    this.#worker.addEventListener('messageerror', () => this.close(
      new EngineError('host', 'A message of the worker could not be read', 'Load the bundle again'),
    ));
    this.#worker.addEventListener('error', (event) => {
      // The main thread's console need not show what the rejected promise says.
      event.preventDefault();
      this.close(new EngineError(
        'host',
        `The engine's worker failed: ${event.message || 'its script could not be loaded'}`,
        "Check that all engine files are served as JavaScript and that the page's content security policy allows workers from its origin",
        { file: event.filename, line: event.lineno },
      ));
    });
  }

  get ended() {
    return this.#end !== null;
  }

  /**
   * @param {string} kind
   * @param {object} params
   * @param {Transferable[]} [transfer]
   * @returns {Promise<any>}
   */
  request(kind, params, transfer = []) {
    if (this.#end) return Promise.reject(this.#end);
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject });
      this.#worker.postMessage({ id, kind, params }, transfer);
    });
  }

  /**
   * Ends the worker; whatever is still open is rejected.
   * @param {unknown} reason
   */
  close(reason) {
    if (this.#end) return;
    this.#end = reason;
    this.#worker.terminate();
    for (const { reject } of this.#pending.values()) reject(reason);
    this.#pending.clear();
  }

  /**
   * @param {{id?: number, value?: unknown, error?: import('./errors.js').PlainError, progress?: Progress, alive?: boolean}} message
   * @param {string} lock
   */
  #receive(message, lock) {
    if (this.#end) return;
    if (message.progress) this.#onProgress(message.progress);
    if (message.alive) this.#watch(lock);
    const waiting = this.#pending.get(message.id ?? 0);
    if (!waiting) return;
    this.#pending.delete(message.id ?? 0);
    if (message.error) waiting.reject(EngineError.from(message.error));
    else waiting.resolve(message.value);
  }

  /**
   * A killed worker sends no event at all, but the browser frees its locks: getting this one means
   * that the worker is gone.
   * @param {string} lock
   */
  #watch(lock) {
    navigator.locks.request(lock, () => this.close(
      new EngineError('host', 'The worker died: the browser ended it', 'Load the bundle again; if it happens again, the device may lack memory'),
    ));
  }
}
