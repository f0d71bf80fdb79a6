// Uploads weights from files to a device's memory, tensor by tensor.
// Input: a manifest, its shards as they arrive, the place of each tensor.  Output: the device's buffers are written. No array holds all
// weights, since a model may be larger than the largest array.  For WebAssembly, bundle.js's `widener` does this.

import { json, requireCounts, requireForm } from './bundle.js';
import { requireRoom, TENSORS, widen, WORD, wordsOf } from './gpu_device.js';
import { arrayOf, elementsOf } from './tensors.js';

/** The most bytes of weights that wait for the device at a time. */
const MOST_WAITING = 2 ** 28;
/** The alignment of tensors in bytes. */
const APART = 64;
/** Types that may be stored as bytes. */
const BYTES = ['i8', 'u8'];
const aligned = (/** @type {number} */ bytes) => Math.ceil(bytes / APART) * APART;

/**
 * Uploads all weights to their addresses.  `halves`: numbers of tensors that stay f16; `packed`: numbers of 8-bit tensors that are stored
 * as bytes.
 * @type {T.Upload}
 */
export async function upload(device, buffers, manifest, { addresses, bankOf, halves, packed }, files) {
  const { shards, tensors, bytes } = manifest.weights;
  const listed = /** @type {T.StoredTensor[]} */ (requireForm(await json(files, tensors), TENSORS, tensors.file));
  const inFiles = shards.reduce((sum, ref) => sum + ref.bytes, 0);
  requireCounts('halves', ...halves, ...halves.map((number) => listed.length - 1 - number));
  requireCounts('packed', ...packed, ...packed.map((number) => (BYTES.includes(listed[number]?.dtype) ? 0 : -1)));
  const kept = new Set(halves), bytewise = new Set(packed);
  /** Elements of a tensor in a word, or in the words that one element usually takes. @type {(at: number) => number} */
  const eachOf = (at) => (kept.has(at) ? 2 : bytewise.has(at) ? WORD : 1);
  /** Bytes of a tensor if it is not stored as f16. @type {(tensor: T.StoredTensor) => number} */
  const wholeOf = ({ dtype, shape }) => elementsOf(shape) * arrayOf(dtype).BYTES_PER_ELEMENT;
  let start = 0;
  const places = listed.map((tensor, at) => {
    const { dtype, shape } = tensor, from = start, buffer = buffers[bankOf[at] ?? 0];
    requireForm(buffer, {}, 'banks');
    requireRoom({ name: `${at}`, dtype, shape: [Math.ceil(elementsOf(shape) / eachOf(at))], address: addresses[at] }, buffer.size);
    start += aligned(wholeOf(tensor));
    return { dtype, from, buffer, address: addresses[at] };
  });
  const memory = listed.some(({ stored }) => stored) ? start : 0; // in the manifest is that of WebAssembly
  requireCounts('weights', bytes - inFiles, buffers.reduce((sum, { size }) => sum + size, 0) - Math.max(bytes, halves.length ? memory / 2 : memory));
  requireCounts('tensors', (memory || inFiles) - Math.max(0, ...listed.map((tensor, at) => places[at].from + wholeOf(tensor))));
  const widened = memory ? await f32Of(listed) : null;
  requireCounts('halves', widened ? 0 : -kept.size);

  /** Writes a part of a tensor, which begins at byte `begin`. @type {(at: number, begin: number, part: Uint8Array) => void} */
  function write(at, begin, part) {
    const { dtype, buffer, address } = places[at];
    if (bytewise.has(at)) {
      requireCounts('packed', part.length / WORD);
      device.queue.writeBuffer(buffer, address + begin, part);
      return;
    }
    const array = arrayOf(dtype), each = array.BYTES_PER_ELEMENT;
    device.queue.writeBuffer(buffer, address + WORD * wordsOf(dtype, begin / each), widen(dtype, new array(part.buffer, part.byteOffset, part.length / each)));
  }

  /** Converts and writes a tensor that is narrower in files; pads it to whole words. @type {(at: number, given: Uint8Array) => void} */
  function writeNarrow(at, given) {
    const { stored, shape, bytes: length } = listed[at];
    if (!kept.has(at)) return write(at, 0, /** @type {T.Widened} */ (widened)(at, given.subarray(0, length)));
    requireForm(stored === 'f16', Boolean, 'halves');
    requireCounts('halves', length - 2 * elementsOf(shape), 2 * elementsOf(shape) - length);
    device.queue.writeBuffer(places[at].buffer, places[at].address, given);
  }

  /** A tensor's offset and length in its files. @type {(at: number) => [number, number]} */
  const inFile = (at) => (memory ? [listed[at].offset, listed[at].bytes] : [places[at].from, wholeOf(listed[at])]);
  let [first, next, waiting] = [0, 0, 0];
  /** The part that has arrived of a tensor that is narrower in files. @type {{bytes: Uint8Array, filled: number} | null} */
  let open = null;
  for (const ref of shards) {
    requireCounts(ref.file, ref.bytes / APART);
    const part = await files.bytes(ref);
    const last = first + part.length;
    for (; next < listed.length; next++) {
      const [from, length] = inFile(next);
      requireCounts('tensors', from, length, from / APART, inFiles - from - length);
      const [begin, end] = [Math.max(from, first), Math.min(from + length, last)];
      const found = part.subarray(begin - first, Math.max(begin, end) - first);
      if (!memory) {
        if (found.length) write(next, begin - from, found);
      } else {
        open ??= { bytes: new Uint8Array(Math.ceil(length / WORD) * WORD), filled: 0 };
        open.bytes.set(found, begin - from);
        open.filled += found.length;
        if (open.filled === length) {
          writeNarrow(next, open.bytes);
          open = null;
        }
      }
      if (from + length > last) break;
    }
    first = last;
    waiting += part.length;
    if (waiting < MOST_WAITING) continue;
    // The memory that the browser holds for the device must not grow with the model.
    device.queue.submit([]);
    await device.queue.onSubmittedWorkDone();
    waiting = 0;
  }
  // If all tensors are empty there is no shard.
  while (next < listed.length && !inFile(next)[1]) next++;
  requireCounts('tensors', next - listed.length);
}

/**
 * Converts tensors that are narrower in files to f32, and copies others; keeps scales for later tensors.
 * @type {(listed: T.StoredTensor[]) => Promise<T.Widened>}
 */
async function f32Of(listed) {
  const { widening } = await import('./weight_decoding.js');
  const parts = new Set(listed.flatMap(({ scale, zero }) => [scale, zero]));
  /** @type {Map<number, Uint8Array>} */
  const known = new Map();
  return (at, given) => {
    const tensor = listed[at];
    const own = /** @type {number[]} */ ([...new Set([tensor.scale, tensor.zero])].filter((n) => n !== null));
    for (const number of own) requireForm(known.has(number), Boolean, 'tensors', 'scale');
    const all = [...own.map((number) => /** @type {Uint8Array} */ (known.get(number))), given];
    const whole = elementsOf(tensor.shape) * arrayOf(tensor.dtype).BYTES_PER_ELEMENT;
    requireCounts('tensors', whole);
    const to = all.slice(0, -1).reduce((sum, { length }) => sum + aligned(length), 0);
    const inFile = to + aligned(given.length), memory = Math.max(to + aligned(whole), inFile);
    const region = new Uint8Array(memory);
    let offset = 0;
    const row = all.map((bytes, n) => {
      region.set(bytes, memory - inFile + offset);
      const one = n < own.length ? { ...listed[own[n]], stored: '', scale: null, zero: null, compact: false } : { ...tensor, compact: false };
      const place = (/** @type {number | null} */ number) => (number === null ? null : own.indexOf(number));
      const made = { ...one, scale: place(one.scale), zero: place(one.zero), offset, bytes: bytes.length };
      offset += aligned(bytes.length);
      return made;
    });
    widening(row, memory, memory - inFile).arrived(region, inFile);
    const found = region.subarray(to, to + whole);
    if (parts.has(at)) known.set(at, found);
    return found;
  };
}
