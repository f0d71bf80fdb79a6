// Weights in memory: numbers of 16 bits in files become f32 where they lie, while shards arrive.
// Input: the memory of all tensors, whose end takes the shards.  Output: the tensors, each in its place.

import { arrayOf, elementsOf } from './tensors.js';

/** The number that 16 bits stand for. @type {Record<string, (bits: number) => number>} */
const MEANING = {
  f16: (bits) => (bits & 31744) < 31744 ? float(shifted(bits)) * 2 ** 112 : float(shifted(bits) | 255 << 23),
  bf16: (bits) => float(bits << 16),
};

/** Sign, exponent and fraction of an f16 at their places in an f32. @param {number} bits */
const shifted = (bits) => (bits & 32767) << 13 | (bits & 32768) << 16;

const float = (/** @type {number} */ bits) => new Float32Array(Uint32Array.of(bits).buffer)[0];

/** @type {T.Json} */
export const json = async (files, ref) => JSON.parse(new TextDecoder().decode(await files.bytes(ref)));

/** @type {T.Widener} */
export async function widener({ weights: { bytes, memory, tensors } }, files) {
  /** The table of tensors, if any is to be moved. @type {T.StoredTensor[]} */
  const listed = memory ? await json(files, tensors) : [];
  memory ||= bytes;
  const start = memory - bytes;
  /** @type {Record<string, Float32Array>} */
  const tables = {};
  let next = 0, to = 0;
  return {
    start, memory,
    // No tensor reaches what is still to be read: what follows takes at least as many bytes as it has in files.
    arrived(region, end) {
      for (; next < listed.length && listed[next].offset + listed[next].bytes <= end; next++) {
        const { dtype, shape, stored, offset, bytes } = listed[next];
        const array = new (arrayOf(dtype))(region.buffer, region.byteOffset + to, elementsOf(shape));
        if (stored) {
          const table = (tables[stored] ??= Float32Array.from({ length: 65536 }, (_, bits) => MEANING[stored](bits)));
          const given = new Uint16Array(region.buffer, region.byteOffset + start + offset, array.length);
          // Padding may bring the last numbers' new places over where they are.
          const { length } = given, tail = given.slice(-32);
          for (let at = 0; at < length; at++) array[at] = table[tail[at - length + tail.length] ?? given[at]];
        } else region.copyWithin(to, start + offset, start + offset + bytes);
        to += Math.ceil(array.byteLength / 64) * 64;
      }
    },
  };
}
