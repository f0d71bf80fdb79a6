// The one error class: a code (T.ErrorCode; most are those of tilewright/base/errors.py), a message, a hint, and facts.  After an abort the
// signal's reason is thrown instead, as fetch does.  This file also has waits with a time limit.

export const LATE = 'it does not answer';

/** Resolves with the first of the promises, or with LATE after `limit` milliseconds. @type {T.Within} */
export const within = (limit, ...promises) => Promise.race([...promises, new Promise((resolve) => setTimeout(resolve, limit, LATE))]);

export class EngineError extends Error {
  /** @param {T.ErrorCode} code @param {string} message @param {string} [hint] @param {T.ErrorFacts} [facts] */
  constructor(code, message, hint = '', facts = {}) {
    super(message);
    this.name = 'EngineError';
    this.code = code;
    this.hint = hint;
    this.facts = Object.fromEntries(Object.entries(facts).filter(([, value]) => value !== undefined));
  }

  /** @param {T.PlainError} plain */
  static from({ code, message, hint, facts }) {
    return new EngineError(code, message, hint, facts);
  }

  /** @returns {T.PlainError} */
  toJSON() {
    return { code: this.code, message: this.message, hint: this.hint, facts: this.facts };
  }

  toString() {
    return `${this.code}: ${this.message} ${JSON.stringify(this.facts)}. ${this.hint}`;
  }
}

/** Wraps an unexpected exception in a `host` error. @param {unknown} thrown */
export function asEngineError(thrown) {
  if (thrown instanceof EngineError) return thrown;
  const hint = /^(Compile|Link)Error/.test(String(thrown)) ? "Build for this browser's features, or update the browser" : 'Load the bundle again';
  return new EngineError('host', `The browser failed: ${thrown}`, hint, { stack: /** @type {any} */ (thrown)?.stack });
}

/** Does a job; rejects with an EngineError, or with the signal's reason if the caller has aborted. @type {T.Typed} */
export async function typed(signal, job) {
  try {
    signal?.throwIfAborted();
    return await job();
  } catch (error) {
    throw signal?.aborted && error === signal.reason ? error : asEngineError(error);
  }
}

/**
 * The error of an index out of range, as in hosts/inputs_outputs.py.  The kernel counts from 0; the model may count from the end.
 * @type {T.OutOfRange}
 */
export function outOfRange({ least = 0, ...place }, low, high, facts) {
  const index = high * 2 ** 32 + (low >>> 0) + /** @type {number} */ (high < 0 && least);
  return new EngineError('kernel-trap', `Index ${index} of ${place.op || 'node'} ${place.node} is out of range: axis ${place.axis} has ${place.length} elements`,
    'Check token ids and other indices. The engine can be used again', { ...facts, ...place, index });
}

/** @type {T.RequireCount} */
export function requireCount(name, value, least, most = 1e6) {
  if (Number.isInteger(value) && value >= least && value <= most) return;
  throw new EngineError('input', `${name} must be an integer from ${least} to ${most}, found ${value}`, `Correct ${name}, or leave it out`, { [name]: value });
}
