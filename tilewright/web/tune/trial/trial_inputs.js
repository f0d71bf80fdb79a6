// Test inputs for kernels, and the comparison of two kernels' results.
// Input: a buffer's description, the name of an input set, a seed. Output: the buffer's contents, the same for the same arguments; or a
// sentence about how a result differs.  Work on large buffers yields to other work in between (yielding.js).
//
//     random    usual magnitudes; also used for timing
//     edge      whole rows of zeros, both signs, tiny and large numbers, a few denormals; ends of integer ranges
//     special   random with a few NaN and infinities

import { inPieces } from './yielding.js';

/** @type {Record<string, any>} */
const ARRAYS = { f32: Float32Array, f64: Float64Array, i8: Int8Array, u8: Uint8Array, i16: Int16Array, i32: Int32Array, i64: BigInt64Array, bool: Uint8Array };
/** @type {Record<string, [number, number]>} */
const RANGES = { i8: [-128, 127], u8: [0, 255], i16: [-1000, 1000], i32: [-1000, 1000], i64: [-8, 8], bool: [0, 1] };
const EDGES = [0, -0, 1, -1, 1000, -1000, 1e-6, -0.5];
/** Only a few are denormals: arithmetic on denormals is about a hundred times slower, so that with 8 % of them a product takes six times as long. */
const DENORMALS = [1e-42, -1e-40];
const SPECIALS = [NaN, Infinity, -Infinity];
/** One float in RARE is a denormal or special value. */
const RARE = 997;
/** Probability that a float of the set `edge` is one of EDGES. */
const OFTEN = 0.4;
/** Elements per piece of work. */
const PIECE = 1 << 14;
/** Elements after which generated ones repeat.  It is prime, so that rows of a matrix within this distance differ. */
const PERIOD = 65537;

/** Tolerance of float results, relative to the largest magnitude among them. */
const ROUNDING = 2e-5;
/** shake() changes a float's bits by XOR with a number below this. */
const LAST_BITS = 4;

/** @param {string} dtype */
export const arrayOf = (dtype) => ARRAYS[dtype];

/** @param {string} dtype */
export const isFloat = (dtype) => dtype === 'f32' || dtype === 'f64';

/** Random numbers in [0, 1), by Marsaglia's 32-bit xorshift. @type {Tune.Uniform} */
function uniform(seed) {
  let state = seed * 2654435761 >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 4294967296;
  };
}

/** A generator of a set's elements, to be called once per index in order. @type {Tune.NumbersOf} */
function numbersOf({ dtype, size, limit, extent }, set, next) {
  const usual = () => 4 * next() - 2;
  if (isFloat(dtype) && extent) return () => Math.floor(extent * next());
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

/** A buffer's contents for an input set, in bytes: weights as the model has them, else generated. @type {Tune.Filled} */
export async function filled(buffer, set, seed) {
  if (buffer.real) return buffer.real;
  const number = numbersOf(buffer, set, uniform(seed));
  const { size } = buffer;
  const data = new ARRAYS[buffer.dtype](size);
  // The first numbers may be zeros (set `edge`).
  const first = size >> 3;
  await inPieces(Math.min(size, first + PERIOD), PIECE, (from, to) => {
    for (let at = from; at < to; at++) data[at] = number(at);
  });
  await inPieces(Math.max(0, size - first - PERIOD), PERIOD, (from, to) => data.copyWithin(first + PERIOD + from, first, first + to - from));
  return new Uint8Array(data.buffer);
}

/** The largest difference between results of correct kernels; for integers 0, or 1 if they were rounded from floats. @type {Tune.Allowed} */
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
 * Perturbs the last bits of floats in place.  The change in a kernel's result then shows how exact the result can be: an attention score of
 * a million has a rounding error of 0.1, which exp turns into a tenth of the result.
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

/** The largest finite absolute difference between two float results. @type {Tune.Spread} */
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

/** A sentence about the first element that differs by more than `most`, or ''; NaN and infinities must match. @type {Tune.Difference} */
export async function difference(found, wanted, most) {
  let wrong = '';
  await inPieces(wanted.length, PIECE, (from, to) => {
    for (let at = from; at < to && !wrong; at++) {
      const got = found[at];
      const want = wanted[at];
      const apart = got - want;
      if ((apart <= most && apart >= -most) || got === want || (Number.isNaN(got) && Number.isNaN(want))) continue;
      wrong = `element ${at} is ${got} instead of ${want}`;
    }
  });
  return wrong;
}
