// Converts tensors that are narrower in files to f32 in place, while shards arrive.
// Input: the table of tensors, the memory of all, whose end receives the shards.  Output: the tensors, each in its place.

import { count, requireCounts, requireForm } from './bundle.js';
import { MEANING } from './float16.js';
import { arrayOf, elementsOf, isDtype, isHalf } from './tensors.js';

/** Bytes of a number in files. @type {Record<string, number>} */
const WIDTHS = { f16: 2, bf16: 2, i8: 1, u8: 1 };
const isPart = (/** @type {any} */ part) => part === null || count(part);
const TABLE = [{ dtype: isDtype, shape: [count], stored: Object, scale: isPart, zero: isPart, offset: count, bytes: count }];

/** The most numbers at the end of a tensor whose new places may, because of padding, overlap unread old ones. */
const TAIL = 32;

/** @type {T.Widening} */
export function widening(listed, memory, start) {
  /** The finished contents of each place, by number. @type {any[]} */
  const done = [];
  requireForm(listed, TABLE, 'tensors');
  /** @type {Record<string, Float32Array>} */
  const tables = {};
  let to = 0;

  /** Throws `bundle-corrupt` unless the next tensor can be read and has room. @type {(region: Uint8Array) => void} */
  function check({ byteOffset }) {
    const { dtype, shape, stored, scale, zero, offset, bytes, compact } = listed[done.length];
    const each = compact ? WIDTHS.f16 : arrayOf(dtype).BYTES_PER_ELEMENT;
    const elements = elementsOf(shape);
    const width = stored ? WIDTHS[stored] : each;
    requireCounts('tensors', bytes - elements * width, elements * width - bytes, memory - start - offset - bytes, memory - to - elements * each,
      (byteOffset + to) / each, (byteOffset + start + offset) / width);
    if (!stored) return;
    requireForm(dtype === 'f32' && isHalf(stored) === (scale === null) && (!compact || stored === 'f16'), Boolean, 'tensors', 'stored');
    for (const part of [scale, zero]) {
      // Scales and zero points come earlier, and have the same number of axes, at least one.
      if (part !== null) requireForm(part < done.length && listed[part].dtype !== 'i64' && !listed[part].compact && shape.length && listed[part].shape.length === shape.length, Boolean, 'tensors', 'scale');
    }
  }

  /** Scales or zero points of a tensor of this shape. @type {T.PartOf} */
  function part(number, shape) {
    if (number === null) return { numbers: [0], steps: shape.map(() => 0) };
    const own = listed[number].shape;
    return { numbers: done[number], steps: own.map((extent, axis) => (extent > 1 ? elementsOf(own.slice(axis + 1)) : 0)) };
  }

  /** (integer - zero) * scale, rounded twice as in f32. @type {T.WidenIntegers} */
  function widenIntegers(array, read, shape, zero, scale) {
    const last = shape.length - 1;
    /** The offset in a part of a row along the last axis. @type {(row: number, steps: number[]) => number} */
    const begin = (row, steps) => {
      let at = 0;
      for (let axis = last - 1; axis >= 0; row = Math.floor(row / shape[axis--])) at += (row % shape[axis]) * steps[axis];
      return at;
    };
    const zeroStep = zero.steps[last], scaleStep = scale.steps[last];
    for (let row = 0, place = 0; place < array.length; row++) {
      let z = begin(row, zero.steps), s = begin(row, scale.steps);
      for (const end = place + shape[last]; place < end; place++, z += zeroStep, s += scaleStep) {
        array[place] = Math.fround(read(place) - zero.numbers[z]) * scale.numbers[s];
      }
    }
  }

  /** @type {(array: any, read: T.ReadAt, tensor: T.StoredTensor) => void} */
  function widen(array, read, { stored, shape, scale, zero }) {
    if (scale !== null) return widenIntegers(array, read, shape, part(zero, shape), part(scale, shape));
    const table = (tables[stored] ??= Float32Array.from({ length: 65536 }, (_, bits) => MEANING[/** @type {T.Half} */ (stored)](bits)));
    for (let place = 0; place < array.length; place++) array[place] = table[read(place)];
  }

  return {
    start, memory,
    // No tensor reaches bytes that are still to be read: later tensors take at least as many bytes as in files.
    arrived(region, end) {
      for (let next; (next = listed[done.length]) && next.offset + next.bytes <= end;) {
        check(region);
        const { dtype, shape, stored, offset, bytes, compact } = next;
        const array = new (compact ? Uint16Array : arrayOf(dtype))(region.buffer, region.byteOffset + to, elementsOf(shape));
        if (stored && !compact) {
          const kind = isHalf(stored) ? Uint16Array : arrayOf(/** @type {T.DType} */ (stored));
          const given = new kind(region.buffer, region.byteOffset + start + offset, array.length);
          const tail = given.slice(-TAIL), edge = array.length - tail.length;
          widen(array, (place) => (place < edge ? given[place] : tail[place - edge]), next);
        } else region.copyWithin(to, start + offset, start + offset + bytes);
        done.push(array);
        to += Math.ceil(array.byteLength / 64) * 64;
      }
    },
  };
}
