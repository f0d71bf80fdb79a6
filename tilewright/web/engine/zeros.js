// Inputs of zeros, for runs whose results nobody reads.
// Input: what a bundle says of its inputs, sizes of the named dimensions.  Output: inputs for `Engine.run`.

import { zerosOf } from './tensors.js';

/** In the smallest bucket, or in that of `bucket`. @type {T.ZerosFor} */
export function zerosFor({ inputs, plans: [{ dims }] }, bucket = {}) {
  const sizes = { ...dims, ...bucket };
  return Object.fromEntries(inputs.map(({ name, dtype, shape: open }) => {
    const shape = open.map((size) => (typeof size === 'number' ? size : sizes[size]));
    return [name, { data: zerosOf({ dtype, shape }), shape }];
  }));
}
