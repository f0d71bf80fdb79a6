// Tensors in buffers of the device: in the model's memory, in rows of their own, in buffers of the caller.
// Input: places, arrays, buffers. Output: words, addresses, recorded copies; or an `input` error.  Nothing is submitted here.

import { EngineError } from './errors.js';
import { WORD, wordsOf } from './gpu_device.js';
import { copyBox, elementsOf, regionOf, writeInputs } from './tensors.js';

/** The offset of the first place in a row, after the words that a trapping kernel writes. */
export const FIRST = 16;
/**
 * Types that buffers of the caller may have, with f16 as f32.  Other integers take a word each in memory, and their range could not be
 * checked.
 */
const LIKE_ARRAYS = ['f32', 'i32', 'i64', 'f16', 'bf16'];

/** An input's elements in the shape of its place, padded with zeros. @type {T.Padded} */
export function padded(place, tensor) {
  if (tensor?.data.length === elementsOf(place.shape)) return tensor.data;
  const own = { ...place, address: 0 };
  const buffer = new ArrayBuffer(place.bytes);
  writeInputs(buffer, [own], tensor ? [tensor] : []);
  return regionOf(buffer, own);
}

/** Bytes in the device's memory. @param {Pick<T.Wanted, 'dtype' | 'shape'>} place */
export const bytesOf = ({ dtype, shape }) => WORD * wordsOf(dtype, elementsOf(shape));

/** The same places in a buffer of their own, one after the other at multiples of 8 bytes. @type {T.InRow} */
export function inRow(places) {
  let end = FIRST;
  return places.map((place) => {
    const address = end;
    end += Math.ceil(bytesOf(place) / 8) * 8;
    return { ...place, address, annex: 0 };
  });
}

/** The end of a row of places. @param {T.Placed[]} row */
export const endOf = (row) => row.reduce((_, place) => place.address + bytesOf(place), FIRST);

/** Records copies of places to other places with the same elements. @type {T.CopyPlaces} */
export const copyPlaces = (encoder, from, places, to, others) => others.forEach(({ address, annex }, at) => {
  const bytes = bytesOf(places[at]);
  if (bytes) encoder.copyBufferToBuffer(from[places[at].annex ?? 0], places[at].address, to[annex ?? 0], address, bytes);
});

/**
 * Throws unless the caller's buffer is large enough for a tensor and has the usage; the device finds other problems.
 * @type {T.RequireBuffer}
 */
export function requireBuffer({ name, dtype, shape }, { buffer, offset }, usage) {
  const bytes = bytesOf({ dtype, shape });
  const fail = (/** @type {string} */ problem, /** @type {string} */ hint, facts = {}) => {
    throw new EngineError('input', `The buffer for '${name}' ${problem}`, hint, { input: name, ...facts });
  };
  if (!LIKE_ARRAYS.includes(dtype)) fail(`cannot be: the tensor is ${dtype}`, `Buffers hold ${LIKE_ARRAYS.join(', ')}, as typed arrays have them; use an array`, { dtype, expected: LIKE_ARRAYS });
  if (!(buffer.usage & GPUBufferUsage[usage])) fail(`lacks the usage ${usage}`, `Create it with GPUBufferUsage.${usage}`, { usage });
  if (!(Number.isInteger(offset) && offset >= 0 && offset % WORD === 0)) fail(`has the offset ${offset}`, `Give a multiple of ${WORD}`, { offset });
  if (buffer.size - offset < bytes) fail(`is too small: [${shape.join(', ')}] takes ${bytes} bytes from byte ${offset} on, and it has ${buffer.size}`, 'Create a larger one, or give the shape that it has', { expected: offset + bytes, found: buffer.size });
  if (buffer.mapState !== 'unmapped') fail('is mapped', 'Unmap it before the run', { mapState: buffer.mapState });
}

/** Elements of a buffer, of `each` bytes, for `copyBox`. @type {T.ElementsIn} */
const elementsIn = (encoder, buffer, each, start, count = 0) => ({
  buffer, start, count,
  subarray: (first, last = first) => elementsIn(encoder, buffer, each, start + first * each, last - first),
  set: (from) => encoder.copyBufferToBuffer(from.buffer, from.start, buffer, start, from.count * each),
});

/** Records an input's copy, padded with zeros. @type {T.CopyIn} */
export function copyIn(encoder, memory, place, shape, given) {
  const { buffer, offset } = given;
  // A repeated run finds the input in its place.
  if (!buffer) return;
  const { dtype, address, shape: whole } = place;
  requireBuffer({ ...place, shape }, { buffer, offset }, 'COPY_SRC');
  given.buffer = null;
  const each = WORD * wordsOf(dtype, 1);
  if (elementsOf(shape) < elementsOf(whole)) encoder.clearBuffer(memory, address, bytesOf(place));
  copyBox(elementsIn(encoder, memory, each, address), whole, elementsIn(encoder, buffer, each, offset), shape, shape);
}

/** Records an output's copy, without padding. @type {T.CopyOut} */
export function copyOut(encoder, memory, { dtype, address, shape: whole }, shape, { buffer, offset }) {
  const each = WORD * wordsOf(dtype, 1);
  copyBox(elementsIn(encoder, buffer, each, offset), shape, elementsIn(encoder, memory, each, address), whole, shape);
}
