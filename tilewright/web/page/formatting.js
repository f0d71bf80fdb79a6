// Formats numbers and errors for display.
// Input: bytes, milliseconds, sizes, errors.  Output: short texts.  It does not touch the page.

import { EngineError } from '../engine/engine.js';

/** @param {number} bytes */
export function sizeText(bytes) {
  if (bytes < 1e5) return `${(bytes / 1e3).toFixed(1)} kB`;
  return `${(bytes / 1e6).toFixed(bytes < 1e8 ? 1 : 0)} MB`;
}

/** @param {number} milliseconds */
export function timeText(milliseconds) {
  if (milliseconds >= 1000) return `${(milliseconds / 1000).toFixed(1)} s`;
  return `${milliseconds.toFixed(milliseconds < 10 ? 2 : milliseconds < 100 ? 1 : 0)} ms`;
}

/** @param {Record<string, number>} bucket */
export function bucketText(bucket) {
  const sizes = Object.entries(bucket);
  return sizes.length ? sizes.map(([name, size]) => `${name} = ${size}`).join(', ') : 'fixed shape';
}

/**
 * @param {number} count
 * @param {string} one
 * @param {string} [many]
 */
export const countText = (count, one, many = `${one}s`) => `${count.toLocaleString('en')} ${count === 1 ? one : many}`;

/**
 * @param {unknown} error
 * @returns {{code: string, message: string, hint: string}}
 */
export function errorText(error) {
  if (error instanceof EngineError) return { code: error.code, message: error.message, hint: error.hint };
  const message = error instanceof Error ? error.message : String(error);
  return { code: 'host', message: `Unexpected error: ${message}`, hint: 'Reload the page' };
}
