// Inputs of zeros, for runs whose results are not used.
// Input: a bundle's description of its inputs, sizes of named dimensions.  Output: inputs for `Engine.run`.  A file of its own: pages of
// static builds need it without auto.js.

import { zerosOf } from './tensors.js';

/** Zeros in the smallest bucket, or in the bucket `bucket`. @type {T.ZeroInputs} */
export function zeroInputs({ inputs, plans: [{ dims }] }, bucket = {}) {
  const sizes = { ...dims, ...bucket };
  return Object.fromEntries(inputs.map(({ name, dtype, shape: open }) => {
    const shape = open.map((size) => (typeof size === 'number' ? size : sizes[size]));
    return [name, { data: zerosOf({ dtype, shape }), shape }];
  }));
}
