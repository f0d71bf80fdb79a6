// Inputs and outputs in a bundle's memory: the page reads and writes them itself where that is shared, else the worker.
// Input: the memory's buffer, a plan's places, tensors as tensors.js checked them.  Output: filled regions, or arrays.

import { arrayOf, elementsOf } from './tensors.js';

/** @import {Placed, Tensor, Wanted} from './types.js' */

/** @param {ArrayBufferLike} buffer @param {Placed} place */
const regionOf = (buffer, { dtype, shape, address }) => new (arrayOf(dtype))(buffer, address, elementsOf(shape));

/**
 * @param {ArrayBufferLike} buffer
 * @param {Placed[]} places
 * @param {Tensor[]} tensors what is missing, or was transferred away since it was checked, becomes zeros
 */
export function writeInputs(buffer, places, tensors) {
  places.forEach((place, at) => {
    const region = regionOf(buffer, place);
    const { data, shape } = tensors[at] ?? { data: [], shape: [] };
    const whole = data.length === elementsOf(shape);
    if (whole && data.length === region.length) return region.set(data);
    region.fill(0);
    if (whole) copyBox(region, place.shape, data, shape, shape);
  });
}

/**
 * @param {ArrayBufferLike} buffer
 * @param {Placed[]} places
 * @param {Wanted[]} wanted
 */
export const readOutputs = (buffer, places, wanted) => wanted.map(({ data, ...output }, at) => {
  const { dtype, shape } = output;
  const array = data ?? new (arrayOf(dtype))(elementsOf(shape));
  copyBox(array, shape, regionOf(buffer, places[at]), places[at].shape, shape);
  return { ...output, data: array };
});

/**
 * The content of inputs, and a function that writes it back: intermediate buffers may lie over them.
 * @param {ArrayBufferLike} buffer
 * @param {Placed[]} places
 */
export function keepInputs(buffer, places) {
  const kept = places.map((place) => ({ region: regionOf(buffer, place), data: regionOf(buffer, place).slice() }));
  return () => kept.forEach(({ region, data }) => region.set(data));
}

/**
 * Copies the box [0, box) from one row-major array to another.
 * @param {any} to
 * @param {number[]} toShape
 * @param {any} from
 * @param {number[]} fromShape
 * @param {number[]} box
 */
function copyBox(to, toShape, from, fromShape, box) {
  const [inner, toInner, fromInner] = [box, toShape, fromShape].map((shape) => shape.slice(1));
  if (inner.every((length, axis) => length === toInner[axis] && length === fromInner[axis])) {
    const elements = elementsOf(box);
    to.set(elements === from.length ? from : from.subarray(0, elements));
    return;
  }
  const toStep = elementsOf(toInner);
  const fromStep = elementsOf(fromInner);
  for (let row = 0; row < box[0]; row++) {
    copyBox(to.subarray(row * toStep), toInner, from.subarray(row * fromStep), fromInner, inner);
  }
}
