// What the tuner relies on in answers of servers and in lists of static builds: the forms, and the error for what has another one.
// Input: data from outside.  Output: the same data.  Values that a trial refuses (tiles, scratch) are not checked here.

import { count, requireForm } from '../../engine/bundle.js';
import { EngineError } from '../../engine/errors.js';

const text = (/** @type {unknown} */ value) => typeof value === 'string';
const isLeft = (/** @type {unknown} */ value) => value === undefined;
const isNested = (/** @type {unknown} */ value) => Object(value) === value;
const texts = (/** @type {any} */ value) => isLeft(value) || (Array.isArray(value) && value.every(text));
/** Tiles per ticket, by plan. */
const grains = (/** @type {unknown} */ value) => isLeft(value) || isNested(value);

export const CLASSES = [{ id: text, kind: text, vendor: text, architecture: text, features: [text], least_l1: count, variant: text }];
/** `schedule`: of the bundle's own kernel. */
const OFFER = { spec: count, checksum: text, schedule: (/** @type {unknown} */ value) => isLeft(value) || text(value) };
export const WELCOME = { kernels: [OFFER] };
export const KERNEL = { spec: count, candidate: count, schedule: text, grains };
/** Of the compiler in the page; without a header if a candidate cannot be made. */
export const OFFERED = [{ ...OFFER, order: [count] }];
export const MADE = { milliseconds: Number.isFinite };
export const CANDIDATE = { header: KERNEL, module: (/** @type {unknown} */ value) => value instanceof Uint8Array };
/** Of a static build (docs/modes.md). */
export const INDEX = { tool: text, bundle: text, objective: text, classes: CLASSES, spaces: {} };
export const LIST = {
  kernels: [{ ...OFFER, order: [count], candidates: [(/** @type {any} */ one) => one === null || (isNested(one) && text(one.schedule) && grains(one.grains) && texts(one.features))] }],
};

/** Most bytes of an answer over HTTP: device classes take some kilobytes. */
const MOST_BYTES = 1 << 22;

/** The JSON of an answer; rejects with `input` if it is longer than any of ours. @type {S.JsonOf} */
export async function jsonOf({ body }, what) {
  const reader = /** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (body).getReader();
  const parts = [];
  for (let size = 0, piece; (piece = (await reader.read()).value);) {
    parts.push(piece);
    if ((size += piece.length) <= MOST_BYTES) continue;
    reader.cancel().catch(() => {});
    throw new EngineError('input', `The tuning server's answer has more than ${MOST_BYTES} bytes`, 'Update the server, or this page', { what, limit: MOST_BYTES });
  }
  return JSON.parse(await new Blob(parts).text());
}

/** Throws `input` if a server's message has another form. @type {S.Heard} */
export function heard(value, form, what) {
  try {
    return requireForm(value, form, what);
  } catch (error) {
    throw new EngineError('input', `The tuning server sends a malformed message: ${error instanceof Error ? error.message : error}`, 'Update the server, or this page', { what });
  }
}
