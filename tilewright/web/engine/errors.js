// The engine's one error class: a stable code, what was expected and found, and what to do.
// The codes are those of tilewright/base/errors.py, plus disposed, network and unsupported-host.
// Aborting is no EngineError: it rejects with a DOMException named AbortError, as fetch does.

/** @import {ErrorCode, Facts, PlainError} from './types.js' */

export class EngineError extends Error {
  /** @param {ErrorCode} code @param {string} message what was expected and what was found @param {string} [hint] what to do @param {Facts} [facts] */
  constructor(code, message, hint = '', facts = {}) {
    super(message);
    this.name = 'EngineError';
    this.code = code;
    this.hint = hint;
    this.facts = Object.fromEntries(Object.entries(facts).filter(([, value]) => value !== undefined));
  }

  /** @param {PlainError} plain */
  static from({ code, message, hint, facts }) {
    return new EngineError(code, message, hint, facts);
  }

  /** @returns {PlainError} */
  toJSON() {
    return { code: this.code, message: this.message, hint: this.hint, facts: this.facts };
  }

  toString() {
    const facts = Object.entries(this.facts).map(([key, value]) => `${key}=${typeof value === 'object' ? JSON.stringify(value) : value}`);
    const place = facts.length ? ` [${facts.join(', ')}]` : '';
    return `${this.code}: ${this.message}${place}. ${this.hint}`.trim();
  }
}

/** Anything that was thrown, as an EngineError; what the engine did not foresee is a `host` error. @param {unknown} thrown */
export function asEngineError(thrown) {
  if (thrown instanceof EngineError) return thrown;
  const text = thrown instanceof Error ? `${thrown.name}: ${thrown.message}` : String(thrown);
  const rejected = thrown instanceof WebAssembly.CompileError || thrown instanceof WebAssembly.LinkError;
  const hint = rejected ? "Build the bundle for this browser's features, or update the browser" : 'Load the bundle again';
  return new EngineError('host', `The browser failed: ${text}`, hint, { stack: thrown instanceof Error ? thrown.stack : undefined });
}

export const abortError = () => new DOMException('The operation was aborted', 'AbortError');
