// Encodes and decodes binary frames: header length (u32, little-endian), header (JSON, UTF-8), payload.
// Input: a plain object and bytes, or a frame.  Output: the other.

import { EngineError } from '../../engine/errors.js';

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
    if (Object(header) !== header) throw new Error('its header is no object');
    return { header, payload: bytes.slice(4 + length) };
  } catch (error) {
    throw new EngineError('network', `A frame of ${bytes.length} bytes is not a message: ${error instanceof Error ? error.message : error}`,
      'Update the server, or this page', { bytes: bytes.length });
  }
}
