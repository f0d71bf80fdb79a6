// What a device finds wrong, which no call returns: in scopes around work, and afterwards.
// Input: a device, work.  Output: problems; typed errors.  It makes nothing on the device.

import { EngineError } from './errors.js';

/** They end in the other order. @type {GPUErrorFilter[]} */
const SCOPES = ['out-of-memory', 'validation'];

/** Does work at once; `problem` resolves with what the device found wrong with it, or null. @type {T.Scoped} */
export function scoped(device, work) {
  SCOPES.forEach((filter) => device.pushErrorScope(filter));
  // A lost device finds nothing wrong.
  const ended = () => Promise.all(SCOPES.map(() => device.popErrorScope().catch(() => null)));
  try {
    const value = work();
    // Without room all that uses a buffer is invalid, too.
    return { value, problem: ended().then((found) => found.findLast(Boolean) ?? null) };
  } catch (error) {
    ended();
    throw error;
  }
}

/** The first line says it. @param {GPUError} error */
const saying = ({ message }) => (message ? `: ${message.trim().split('\n')[0]}` : '');

/** Whether that is for want of room. @param {GPUError} error */
export const isFull = (error) => error instanceof GPUOutOfMemoryError;

/** Rejects with `memory-limit` if the device did not make buffers of so many bytes. @type {T.RequireMade} */
export async function requireMade(problem, what, bytes, hint) {
  const found = await problem;
  if (found) throw new EngineError('memory-limit', `The GPU has no room for ${what} of ${bytes} bytes${saying(found)}`, hint, { estimate: bytes });
}

/** @param {GPUError} error */
export const refusedWork = (error) => new EngineError('host', `The GPU refused a part of the work${saying(error)}`, 'Load the bundle again: what its memory holds is not known');

/**
 * What the device found wrong outside of all scopes: then results may be anything.  Jobs overlap, and nobody can tell whose error it is: `require`
 * throws for all that began before it (`since`, of `count`), and for those that begin only if none has been told yet.
 * @type {T.Soundness}
 */
export function soundness(device) {
  let [found, told] = [0, 0];
  /** The first that none was told. @type {GPUError} */
  let first;
  device.addEventListener('uncapturederror', ({ error }) => {
    if (found++ === told) first = error;
  });
  return {
    count: () => found,
    require(since = told) {
      if (found <= since) return;
      told = found;
      throw refusedWork(first);
    },
  };
}

/** Why a device is lost, '' while it is not.  It may outlive the engine, of which this keeps nothing. @param {GPUDevice} device */
export function lossOf(device) {
  const loss = { why: '' };
  device.lost.then(({ reason, message }) => (loss.why = message || (reason === 'destroyed' ? 'it was destroyed' : 'the browser gave no reason')));
  return loss;
}

/** Whether a model's device can still be relied on; `theirs`: it is the caller's. */
export class Health {
  #loss;
  #sound;
  #hint;

  /** @param {GPUDevice} device */
  constructor(device, theirs = false) {
    this.#loss = lossOf(device);
    // What goes wrong on a device of the caller may be the caller's.
    this.#sound = theirs ? null : soundness(device);
    this.#hint = theirs ? 'Load the bundle again, on a new device' : 'Load the bundle again';
  }

  /** The error of a device that is lost, or that does not answer. */
  gone = () => new EngineError('host', `The GPU device was lost: ${this.#loss.why || 'it did not answer'}`, this.#hint, { lost: true });

  /** Throws that, if the device is lost, instead of an error which may only follow from it. @type {(error: unknown) => never} */
  orGone = (error) => {
    throw this.#loss.why ? this.gone() : error;
  };

  requireThere() {
    if (this.#loss.why) throw this.gone();
  }

  requireUsable() {
    this.requireThere();
    this.#sound?.require();
  }

  /** How many errors there were until now; for `requireSound`. */
  errors() {
    return this.#sound?.count();
  }

  /** Throws if the device found something wrong since. @param {number} [since] */
  requireSound(since) {
    this.#sound?.require(since);
  }
}
