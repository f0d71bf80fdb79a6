// Numbers to try a kernel on, and the comparison of what two kernels made of them.
// Input: what is known of a buffer, the name of a set, a seed.  Output: the buffer's content, or what
// is wrong with a result.  Equal arguments give equal content.  Large buffers take long: it breathes.
//
//     random    numbers of usual size: what is timed, too
//     edge      zeros (whole rows of them), both signs, tiny and large numbers, a few denormal ones; ends of ranges
//     special   random, and a few NaN and infinities

import { inPieces } from './breath.js';

/** @type {Record<string, any>} */
const ARRAYS = { f32: Float32Array, f64: Float64Array, i8: Int8Array, u8: Uint8Array, i16: Int16Array, i32: Int32Array, i64: BigInt64Array, bool: Uint8Array };
/** @type {Record<string, [number, number]>} */
const RANGES = { i8: [-128, 127], u8: [0, 255], i16: [-1000, 1000], i32: [-1000, 1000], i64: [-8, 8], bool: [0, 1] };
const EDGES = [0, -0, 1, -1, 1000, -1000, 1e-6, -0.5];
/** Processors calculate with these some hundred times slower: with 8 % of them a product takes six times as long. */
const DENORMALS = [1e-42, -1e-40];
const SPECIALS = [NaN, Infinity, -Infinity];
/** A float in so many is a denormal or a special one; and how often it is one of the edges. */
const RARE = 997;
const OFTEN = 0.4;
/** Elements at a time. */
const PIECE = 1 << 14;

/** Results of kernels that round differently are equal up to this, of the largest number among them. */
const ROUNDING = 2e-5;
/** Last bits that a neighbour may differ in. */
const LAST_BITS = 4;

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

/** One element of a set after the other, by its place. @type {Tune.NumbersOf} */
function numbersOf({ dtype, size, limit, extent }, set, next) {
  const usual = () => 4 * next() - 2;
  if (isFloat(dtype)) {
    const zeros = size >> 3;
    const rare = Math.floor(RARE * next()) % size;
    const edge = () => (next() < OFTEN ? EDGES[Math.floor(EDGES.length * next())] : usual());
    const few = (/** @type {number[]} */ values, /** @type {(at: number) => number} */ others) => (/** @type {number} */ at) => (at % RARE === rare ? values[at % values.length] : others(at));
    if (set === 'edge') return few(DENORMALS, (at) => (at < zeros ? 0 : edge()));
    return set === 'special' ? few(SPECIALS, usual) : usual;
  }
  const range = RANGES[dtype];
  const limited = limit && range[1] > 1 ? [Math.max(range[0], -limit), Math.min(range[1], limit)] : range;
  const [least, most] = extent ? [0, extent - 1] : limited;
  const pick = set === 'edge' ? () => (next() < 0.5 ? least : most) : () => least + Math.floor((most - least + 1) * next());
  return dtype === 'i64' ? () => BigInt(pick()) : pick;
}

/** @type {Tune.Filled} */
export async function filled(buffer, set, seed) {
  if (buffer.real) return buffer.real;
  const number = numbersOf(buffer, set, uniform(seed));
  const data = new ARRAYS[buffer.dtype](buffer.size);
  await inPieces(buffer.size, PIECE, (from, to) => {
    for (let at = from; at < to; at++) data[at] = number(at);
  });
  return new Uint8Array(data.buffer);
}

/** How far results of kernels that are right may be apart: integers are equal, or one apart where they
 * were rounded. @type {Tune.Allowed} */
export async function allowed(wanted, dtype, rounds) {
  if (!isFloat(dtype)) return Number(rounds);
  let largest = 0;
  await inPieces(wanted.length, PIECE, (from, to) => {
    for (let at = from; at < to; at++) {
      const size = Math.abs(wanted[at]);
      if (size > largest && size < Infinity) largest = size;
    }
  });
  return ROUNDING * largest;
}

/**
 * Numbers in memory become their neighbours: some of the last bits change.  What a kernel makes of it says how exact its
 * results can be: an attention's score of a million has an error of 0.1, of which exp makes a tenth of the result.
 * @type {Tune.Shake}
 */
export async function shake(bytes, { dtype, size }, seed) {
  if (dtype !== 'f32') return;
  const next = uniform(seed);
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, size);
  await inPieces(size, PIECE, (from, to) => {
    for (let at = from; at < to; at++) if (words[at] << 1) words[at] ^= LAST_BITS * next();
  });
}

/** The largest difference between results that are floats. @type {Tune.Spread} */
export async function spread(found, wanted) {
  let largest = 0;
  await inPieces(wanted.length, PIECE, (from, to) => {
    for (let at = from; at < to; at++) {
      const apart = Math.abs(found[at] - wanted[at]);
      if (apart > largest && apart < Infinity) largest = apart;
    }
  });
  return largest;
}

/** What is wrong with `found`, or '' if it is as good as `wanted`; NaN and infinities are where they should
 * be. @type {Tune.Difference} */
export async function difference(found, wanted, most) {
  let wrong = '';
  await inPieces(wanted.length, PIECE, (from, to) => {
    for (let at = from; at < to && !wrong; at++) {
      const [got, want] = [found[at], wanted[at]];
      if (got === want || (most > 0 && Math.abs(Number(got) - Number(want)) <= most) || (Number.isNaN(got) && Number.isNaN(want))) continue;
      wrong = `element ${at} is ${got} instead of ${want}`;
    }
  });
  return wrong;
}
