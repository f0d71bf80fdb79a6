// Numbers to try a kernel on, and the comparison of what two kernels made of them.
// Input: what is known of a buffer, the name of a set, a seed.  Output: the buffer's content, or what
// is wrong with a result.  Equal arguments give equal content.
//
//     random    numbers of usual size: what is timed, too
//     edge      zeros (whole rows of them), both signs, tiny, denormal and large numbers; ends of ranges
//     special   random, and a few NaN and infinities

/** @type {Record<string, any>} */
const ARRAYS = { f32: Float32Array, f64: Float64Array, i8: Int8Array, u8: Uint8Array, i16: Int16Array, i32: Int32Array, i64: BigInt64Array, bool: Uint8Array };
/** @type {Record<string, [number, number]>} */
const RANGES = { i8: [-128, 127], u8: [0, 255], i16: [-1000, 1000], i32: [-1000, 1000], i64: [-8, 8], bool: [0, 1] };
const EDGES = [0, -0, 1e-42, -1e-40, 1, -1, 1000, -1000, 1e-6, -0.5];
const SPECIALS = [NaN, Infinity, -Infinity];
/** A float in so many is one of the special ones. */
const RARE = 997;

/** Results of kernels that round differently are equal up to this, of the largest number among them. */
const ROUNDING = 2e-5;

/** @param {string} dtype */
export const arrayOf = (dtype) => ARRAYS[dtype];

/** @param {string} dtype */
export const isFloat = (dtype) => dtype === 'f32' || dtype === 'f64';

/** Numbers in [0, 1): Marsaglia's xorshift of 32 bits. @type {Tune.Uniform} */
function uniform(seed) {
  let state = seed * 2654435761 >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 4294967296;
  };
}

/** @type {Tune.Filled} */
export function filled({ dtype, size, limit, extent, real }, set, seed) {
  if (real) return real;
  const next = uniform(seed);
  const data = new ARRAYS[dtype](size);
  if (isFloat(dtype)) {
    const zeros = set === 'edge' ? size >> 3 : 0;
    for (let at = zeros; at < size; at++) data[at] = 4 * next() - 2;
    if (set === 'edge') for (let at = zeros; at < size; at += 1 + Math.floor(4 * next())) data[at] = EDGES[Math.floor(EDGES.length * next())];
    if (set === 'special') for (let at = Math.floor(RARE * next()) % size; at < size; at += RARE) data[at] = SPECIALS[at % 3];
  } else {
    const [least, most] = extent ? [0, extent - 1] : limit && RANGES[dtype][1] > 1 ? [Math.max(RANGES[dtype][0], -limit), Math.min(RANGES[dtype][1], limit)] : RANGES[dtype];
    const pick = set === 'edge' ? () => (next() < 0.5 ? least : most) : () => least + Math.floor((most - least + 1) * next());
    const convert = dtype === 'i64' ? BigInt : Number;
    for (let at = 0; at < size; at++) data[at] = convert(pick());
  }
  return new Uint8Array(data.buffer);
}

/**
 * What is wrong with `found`, or '' if it is as good as `wanted`.  Integers are equal, or one apart
 * where they were rounded; NaN and infinities are where they should be.
 * @type {Tune.Difference}
 */
export function difference(found, wanted, dtype, rounds) {
  let largest = 0;
  if (isFloat(dtype)) {
    for (let at = 0; at < wanted.length; at++) {
      const size = Math.abs(wanted[at]);
      if (size > largest && size < Infinity) largest = size;
    }
  }
  const allowed = isFloat(dtype) ? ROUNDING * largest : Number(rounds);
  for (let at = 0; at < wanted.length; at++) {
    const got = found[at];
    const want = wanted[at];
    if (got === want) continue;
    if (Number.isNaN(got) && Number.isNaN(want)) continue;
    if (Math.abs(Number(got) - Number(want)) <= allowed) continue;
    return `element ${at} is ${got} instead of ${want}`;
  }
  return '';
}
