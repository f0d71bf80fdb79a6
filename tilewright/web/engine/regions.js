// Inputs and outputs in a bundle's memory, where the page reads and writes if it is shared, else the worker.
// Input: a buffer, a plan's places, checked tensors.  Output: filled regions, or arrays.

import { arrayOf, elementsOf } from './tensors.js';

/** @import * as T from './types.js' */

/** @param {ArrayBufferLike} buffer @param {T.Placed} place */
const regionOf = (buffer, { dtype, shape, address }) => new (arrayOf(dtype))(buffer, address, elementsOf(shape));

/** @type {T.WriteInputs} */
export const writeInputs = (buffer, places, tensors) => places.forEach((place, at) => {
  const region = regionOf(buffer, place);
  const { data, shape } = tensors[at] ?? { data: [], shape: [] };
  const whole = data.length === elementsOf(shape);
  if (whole && data.length === region.length) return region.set(data);
  new Uint8Array(region.buffer, region.byteOffset, region.byteLength).fill(0);
  if (whole) copyBox(region, place.shape, data, shape, shape);
});

/** @type {T.ReadOutputs} */
export const readOutputs = (buffer, places, wanted) => wanted.map(({ data, ...output }, at) => {
  const { dtype, shape } = output;
  const array = data ?? new (arrayOf(dtype))(elementsOf(shape));
  copyBox(array, shape, regionOf(buffer, places[at]), places[at].shape, shape);
  return { ...output, data: array };
});

/** @type {T.KeepInputs} */
export function keepInputs(buffer, places) {
  const regions = places.map((place) => regionOf(buffer, place));
  const kept = regions.map((region) => region.slice());
  return () => regions.forEach((region, at) => region.set(kept[at]));
}

/** @type {T.CopyBox} */
function copyBox(to, toShape, from, fromShape, box) {
  const [inner, toInner, fromInner] = [box, toShape, fromShape].map((shape) => shape.slice(1));
  if (inner.every((length, axis) => length === toInner[axis] && length === fromInner[axis])) {
    return to.set(from.subarray(0, elementsOf(box)));
  }
  const toStep = elementsOf(toInner);
  const fromStep = elementsOf(fromInner);
  for (let row = 0; row < box[0]; row++) {
    copyBox(to.subarray(row * toStep), toInner, from.subarray(row * fromStep), fromInner, inner);
  }
}
