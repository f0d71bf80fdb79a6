// Text to ids in a worker that can be ended: a template or a vocabulary that takes too long is an error, and the next text gets a new worker.
// Input: a function that reads the two assets.  Output: ids, a table of the tokens' bytes.  text.js does the work.

import { asEngineError, EngineError, LATE, within } from '../engine/errors.js';
import { launchWorker } from '../engine/start_worker.js';

/** Milliseconds for the prompt of a chat; a vocabulary may take ten times as long to read. */
const PATIENCE = 10_000;

/** @type {Language.OpenTextThread} */
export async function openTextThread(read, patience = PATIENCE) {
  const made = new Thread(read, patience);
  const { description, pieces } = await made.start();
  return { description, pieces, encode: (text, signal) => made.encode(text, signal), order: (signal) => made.order(signal), close: () => made.close() };
}

class Thread {
  #read;
  #patience;
  #closed = false;
  #number = 0;
  /** @type {Worker | null} */
  #worker = null;
  /** Requests without an answer. @type {Map<number, { resolve: (value: any) => void; reject: (error: unknown) => void }>} */
  #open = new Map();
  /** Resolves when the text before has its ids: only one may start a new worker. */
  #before = Promise.resolve();

  /** @param {() => Promise<Language.TextFiles>} read @param {number} patience */
  constructor(read, patience) {
    this.#read = read;
    this.#patience = patience;
  }

  /** @returns {Promise<Pick<Language.Text, 'description' | 'pieces'>>} */
  async start() {
    const files = await this.#read();
    if (this.#closed) throw disposed();
    this.#worker = launchWorker(() => new Worker(new URL('./text_worker.js', import.meta.url), { type: 'module', name: 'tilewright-text' }));
    this.#worker.onmessage = ({ data: { id, value, error } }) => {
      const asked = this.#open.get(id);
      this.#open.delete(id);
      if (error) asked?.reject(EngineError.from(error));
      else asked?.resolve(value);
    };
    this.#worker.onerror = ({ message }) => this.#end(new EngineError('host', `The worker for text failed: ${message}`, 'Load the bundle again'));
    try {
      return await this.#ask({ files }, 10 * this.#patience, 'The vocabulary takes too long to read');
    } catch (error) {
      this.#end(asEngineError(error));
      throw error;
    }
  }

  /** @param {readonly Language.Message[] | string} text @param {AbortSignal} [signal] @returns {Promise<number[]>} */
  encode(text, signal) {
    return this.#next({ text }, this.#patience, "The model's chat template takes too long", signal);
  }

  /** @param {AbortSignal} [signal] @returns {Promise<Language.OrderedTokens>} */
  order(signal) {
    return this.#next({ ordered: true }, 10 * this.#patience, 'The vocabulary takes too long to order', signal);
  }

  /** After the requests before. @param {Omit<Language.Request, 'id'>} request @param {number} limit @param {string} late @param {AbortSignal} [signal] */
  #next(request, limit, late, signal) {
    const answer = this.#before.then(async () => {
      signal?.throwIfAborted();
      if (this.#closed) throw disposed();
      if (!this.#worker) await this.start();
      return this.#ask(request, limit, late);
    });
    this.#before = answer.then(() => {}, () => {});
    return untilAborted(answer, signal);
  }

  close() {
    this.#closed = true;
    this.#end(disposed());
  }

  /** @param {Omit<Language.Request, 'id'>} request @param {number} limit milliseconds @param {string} late what the error then says */
  async #ask(request, limit, late) {
    const id = ++this.#number;
    const { promise, resolve, reject } = Promise.withResolvers();
    this.#open.set(id, { resolve, reject });
    /** @type {Worker} */ (this.#worker).postMessage({ id, ...request });
    const answer = await within(limit, promise);
    if (answer !== LATE) return answer;
    const error = new EngineError('invalid-model', late, 'Use complete() instead of chat(), a shorter text, or another file of the model', { milliseconds: limit });
    this.#end(error);
    throw error;
  }

  /** @param {EngineError} error what open requests reject with */
  #end(error) {
    this.#worker?.terminate();
    this.#worker = null;
    for (const { reject } of this.#open.values()) reject(error);
    this.#open.clear();
  }
}

const disposed = () => new EngineError('disposed', 'The model was disposed', 'Load the bundle again');

/** @template Value @param {Promise<Value>} promise @param {AbortSignal} [signal] @returns {Promise<Value>} */
function untilAborted(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
    promise.then(resolve, reject);
  });
}
