// Helpers of the pages: make elements, and write numbers and errors as short texts.
// Input: an id, or a tag with properties, attributes or children; bytes, milliseconds, sizes, errors.  Output: an element, a text.

import { EngineError } from '../engine/engine.js';

const SVG = 'http://www.w3.org/2000/svg';

/**
 * @param {string} id
 * @returns {any} the caller knows the element's type
 */
export function element(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`The page has no element #${id}`);
  return found;
}

/**
 * @param {string} tag
 * @param {Record<string, string>} properties
 * @param {...(Node | string)} children
 */
export function make(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  if (children.length) made.append(...children);
  return made;
}

/**
 * An element of a drawing.
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 */
export function draw(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}

/**
 * Words in a drawing.
 * @param {number} x
 * @param {number} y
 * @param {string} textContent
 * @param {'start' | 'middle' | 'end'} anchor which part of them is at x
 */
export function drawText(x, y, textContent, anchor) {
  return Object.assign(draw('text', { x, y, 'text-anchor': anchor }), { textContent });
}

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
