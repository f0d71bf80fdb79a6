// States in WebAssembly's memory.  Loaded on demand, when one is read or written.  Input: the memory, a state's place, numbers to write.
// Output: the numbers that were read, or the memory, changed.

import { MEANING, NEAREST } from './float16.js';
import { regionOf } from './tensors.js';

/** The largest number of f16. */
const LARGEST = 65504;

/** Reads a state, or writes `data` to it. @type {T.StateAccess} */
export function exchanged({ buffer }, { place, data }) {
  return place.compact ? exchangedHalves(new Uint16Array(buffer, place.address, place.bytes / 2), data) : exchangedWhole(regionOf(buffer, place), data);
}

/** @type {(region: any, data: any) => any} */
function exchangedWhole(region, data) {
  if (!data) return region.slice();
  region.set(data);
  return null;
}

/** Numbers that memory has as f16, and everybody else as f32; they are limited to those of f16. @type {(region: Uint16Array, data: Float32Array | undefined) => any} */
function exchangedHalves(region, data) {
  if (!data) return Float32Array.from(region, MEANING.f16);
  data.forEach((number, at) => (region[at] = NEAREST.f16(Math.max(-LARGEST, Math.min(LARGEST, number)))));
  return null;
}
