// Checks data from servers and from lists of static builds: binary frames, and the forms of messages that the tuner relies on.
// Input: data from outside.  Output: the same data, or a frame's header and payload; an error for any other form.  Tiles and scratch are
// not checked here, since a trial checks them.
//
//    frame: header length (u32, little-endian), header (JSON, UTF-8), payload

import { count, requireForm } from '../../engine/bundle.js';
import { EngineError } from '../../engine/errors.js';

const text = (/** @type {unknown} */ value) => typeof value === 'string';
const isLeft = (/** @type {unknown} */ value) => value === undefined;
const isNested = (/** @type {unknown} */ value) => Object(value) === value;
const texts = (/** @type {any} */ value) => isLeft(value) || (Array.isArray(value) && value.every(text));
/** Tiles per ticket, by plan. */
const grains = (/** @type {unknown} */ value) => isLeft(value) || isNested(value);

export const CLASSES = [{ id: text, kind: text, vendor: text, architecture: text, features: [text], least_l1: count, variant: text }];
/** The form of an offer; `schedule` is that of the bundle's own kernel. */
const OFFER = { spec: count, checksum: text, schedule: (/** @type {unknown} */ value) => isLeft(value) || text(value) };
export const WELCOME = { kernels: [OFFER] };
export const KERNEL = { spec: count, candidate: count, schedule: text, grains };
/** The form of a candidate from the compiler in the page; it has no header if the candidate cannot be made. */
export const OFFERED = [{ ...OFFER, order: [count] }];
export const MADE = { milliseconds: Number.isFinite };
export const CANDIDATE = { header: KERNEL, module: (/** @type {unknown} */ value) => value instanceof Uint8Array };
/** The form of the lists of a static build (docs/modes.md). */
export const INDEX = { tool: text, bundle: text, objective: text, classes: CLASSES, spaces: {} };
export const LIST = {
  kernels: [{ ...OFFER, order: [count], candidates: [(/** @type {any} */ one) => one === null || (isNested(one) && text(one.schedule) && grains(one.grains) && texts(one.features))] }],
};

/** Most bytes of an answer over HTTP: device classes take some kilobytes. */
const MOST_BYTES = 1 << 22;

/** The JSON of an answer; rejects with `input` if it is longer than MOST bytes, which no correct answer is. @type {S.JsonOf} */
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

/** @type {Tune.Encode} */
export function encode(header, ...payloads) {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const frame = new Uint8Array(payloads.reduce((sum, { length }) => sum + length, 4 + text.length));
  new DataView(frame.buffer).setUint32(0, text.length, true);
  frame.set(text, 4);
  let at = 4 + text.length;
  for (const payload of payloads) {
    frame.set(payload, at);
    at += payload.length;
  }
  return frame;
}

/** @type {Tune.Decode} */
export function decode(frame) {
  const bytes = new Uint8Array(frame);
  const length = bytes.length < 4 ? Infinity : new DataView(frame).getUint32(0, true);
  try {
    if (4 + length > bytes.length) throw new Error('it is cut off');
    const header = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes.subarray(4, 4 + length)));
    if (Object(header) !== header) throw new Error('its header is not an object');
    return { header, payload: bytes.slice(4 + length) };
  } catch (error) {
    throw new EngineError('network', `A frame of ${bytes.length} bytes is not a message: ${error instanceof Error ? error.message : error}`,
      'Update the server, or this page', { bytes: bytes.length });
  }
}
