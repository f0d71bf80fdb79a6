// Reads the parts of a bundle's list of kernels (docs/bundle.md) that the tuner needs.
// Input: the file's bytes.  Output: the list, in which every kernel has buffers and stages, or a `bundle-corrupt` error. The device's
// record and the trials of both kinds of devices read the list, each without the others' code.

import { count, readJson, requireForm } from '../../engine/bundle.js';

/** Bytes of an element. @type {Record<string, number>} */
export const BYTES = { f32: 4, f64: 8, i8: 1, u8: 1, i16: 2, i32: 4, i64: 8, bool: 1 };
const PLACE = 'the list of kernels';
/** The most levels of nested lists.  Readers are recursive; expressions of real kernels have some dozens of levels. */
const MOST_LEVELS = 500;

/** [dtype, elements, limit, layout, whether they are halves] */
const isBuffer = (/** @type {any} */ buffer) => Array.isArray(buffer) && Object.hasOwn(BYTES, buffer[0]) && count(buffer[1]) && Array.isArray(buffer[3]);
/** [operation, …, kept values] */
const isStage = (/** @type {any} */ stage) => Array.isArray(stage) && Array.isArray(stage[3]);
const KERNELS = [{ spec: { buffers: [isBuffer], stages: [isStage] } }];

/** @param {unknown} value */
const isNested = (value) => Object(value) === value;

/** @type {(bytes: Uint8Array<ArrayBuffer> | ArrayBuffer) => any[]} */
export function readKernels(bytes) {
  const listed = requireForm(readJson(new Uint8Array(bytes), PLACE), KERNELS, PLACE);
  let level = [listed];
  for (let left = MOST_LEVELS; level.length; left--) {
    requireForm(left, count, PLACE, 'levels');
    level = level.flatMap((value) => Object.values(value).filter(isNested));
  }
  for (const { spec } of listed) requireForm(spec.buffers.length, Boolean, PLACE, 'buffers');
  return listed;
}
