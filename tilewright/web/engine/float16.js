// 16-bit numbers (f16 and bf16): their bits, and arrays of them from and to f32.  Loaded on demand, for bundles that have them in files, or
// as inputs, outputs or states.
// Input: bits, or arrays.  Output: numbers, or arrays of them.  Tensors are not handled here.

const words = new Uint32Array(1);
const floats = new Float32Array(words.buffer);

/** The f32 with these bits. @param {number} bits */
function float(bits) {
  words[0] = bits;
  return floats[0];
}

/** @param {number} number */
function bitsOf(number) {
  floats[0] = number;
  return words[0];
}

/** Sign, exponent and fraction of an f16 at their places in an f32. @param {number} bits */
const shifted = (bits) => (bits & 32767) << 13 | (bits & 32768) << 16;

/** The number that 16 bits represent. @type {Record<T.Half, (bits: number) => number>} */
export const MEANING = {
  f16: (bits) => (bits & 31744) < 31744 ? float(shifted(bits)) * 2 ** 112 : float(shifted(bits) | 255 << 23),
  bf16: (bits) => float(bits << 16),
};

/** The bits of the nearest number, ties to even. @type {Record<T.Half, (number: number) => number>} */
const NEAREST = {
  f16(number) {
    const bits = bitsOf(number), size = bits & 0x7fffffff, sign = bits >>> 16 & 0x8000;
    if (size >= 0x477ff000) return sign | (size > 0x7f800000 ? 0x7e00 : 0x7c00);
    if (size < 0x38800000) return sign | bitsOf(float(size) + 0.5) - 0x3f000000;
    return sign | size - 0x37fff001 + (size >>> 13 & 1) >>> 13;
  },
  bf16(number) {
    const bits = bitsOf(number);
    return Number.isNaN(number) ? 0x7fc0 : bits + 0x7fff + (bits >>> 16 & 1) >>> 16;
  },
};

/**
 * An input as numbers of the type: an array of bits is taken as bits, other numbers are rounded.
 * @type {(dtype: T.Half, given: any) => any}
 */
export function numbersOf(dtype, given) {
  if (given instanceof Uint16Array) return Float32Array.from(given, MEANING[dtype]);
  const own = dtype === 'f16' && /** @type {any} */ (globalThis).Float16Array;
  return own ? new own(given) : Float32Array.from(given, (number) => MEANING[dtype](NEAREST[dtype](number)));
}

/**
 * Writes numbers into an array of the type: the browser's own array type, or one of bits.
 * @type {(dtype: T.Half, array: any, numbers: Float32Array) => any}
 */
export function fill(dtype, array, numbers) {
  if (array instanceof Uint16Array) numbers.forEach((number, at) => (array[at] = NEAREST[dtype](number)));
  else array.set(numbers);
  return array;
}

/** The largest number of f16. */
const LARGEST = 65504;

/**
 * Reads numbers that memory has as f16, and everybody else as f32, or writes `data` there, limited to the numbers of f16.
 * @type {(region: Uint16Array, data: Float32Array | undefined) => any}
 */
export function exchangedHalves(region, data) {
  if (!data) return Float32Array.from(region, MEANING.f16);
  data.forEach((number, at) => (region[at] = NEAREST.f16(Math.max(-LARGEST, Math.min(LARGEST, number)))));
  return null;
}
