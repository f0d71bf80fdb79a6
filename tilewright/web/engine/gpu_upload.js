// Weights on their way from files to a device's memory, tensor by tensor.
// Input: a manifest, its shards as they arrive, where each tensor lies.  Output: the device's buffers are written.
// No array holds all weights: a model may be larger than the largest array.  For WebAssembly, bundle.js's `widener` does this.

import { json, requireCounts, requireForm } from './bundle.js';
import { requireRoom, TENSORS, widen, WORD, wordsOf } from './gpu_device.js';
import { arrayOf, elementsOf } from './tensors.js';

/** Bytes of weights that wait for the device at a time. */
const MOST_WAITING = 2 ** 28;
/** Bytes between the beginnings of tensors. */
const APART = 64;
/** What may lie as bytes. */
const BYTES = ['i8', 'u8'];
const aligned = (/** @type {number} */ bytes) => Math.ceil(bytes / APART) * APART;

/** Uploads all weights to their addresses; `halves` are numbers of tensors that stay as files have them, `packed` those of 8 bits that lie as bytes. @type {T.Upload} */
export async function upload(device, buffers, manifest, { addresses, bankOf, halves, packed }, files) {
  const { shards, tensors, bytes, memory } = manifest.weights;
  const listed = /** @type {T.StoredTensor[]} */ (requireForm(await json(files, tensors), TENSORS, tensors.file));
  const inFiles = shards.reduce((sum, ref) => sum + ref.bytes, 0);
  requireCounts('weights', bytes - inFiles, buffers.reduce((sum, { size }) => sum + size, 0) - Math.max(bytes, halves.length ? memory / 2 : memory));
  requireCounts('halves', ...halves, ...halves.map((number) => listed.length - 1 - number));
  requireCounts('packed', ...packed, ...packed.map((number) => (BYTES.includes(listed[number]?.dtype) ? 0 : -1)));
  const kept = new Set(halves), bytewise = new Set(packed);
  /** How many elements of a tensor lie in a word, or in the words of an element. @type {(at: number) => number} */
  const eachOf = (at) => (kept.has(at) ? 2 : bytewise.has(at) ? WORD : 1);
  /** Bytes of a tensor, if not in halves. @type {(tensor: T.StoredTensor) => number} */
  const wholeOf = ({ dtype, shape }) => elementsOf(shape) * arrayOf(dtype).BYTES_PER_ELEMENT;
  let start = 0;
  const places = listed.map((tensor, at) => {
    const { dtype, shape } = tensor;
    const [from, buffer] = [start, buffers[bankOf[at] ?? 0]];
    requireForm(buffer, {}, 'banks');
    requireRoom({ name: `${at}`, dtype, shape: [Math.ceil(elementsOf(shape) / eachOf(at))], address: addresses[at] }, buffer.size);
    start += aligned(wholeOf(tensor));
    return { dtype, from, buffer, address: addresses[at] };
  });
  requireCounts('tensors', (memory || inFiles) - Math.max(0, ...listed.map((tensor, at) => places[at].from + wholeOf(tensor))));
  const widened = memory ? await f32Of(listed) : null;
  requireCounts('halves', widened ? 0 : -kept.size);

  /** Writes elements of a tensor, which begin at a byte of it. @type {(at: number, begin: number, part: Uint8Array) => void} */
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

  /** A tensor that is narrower in files, whose bytes arrived, with those of the next word's end. @type {(at: number, given: Uint8Array) => void} */
  function writeNarrow(at, given) {
    const { stored, shape, bytes: length } = listed[at];
    if (!kept.has(at)) return write(at, 0, /** @type {T.Widened} */ (widened)(at, given.subarray(0, length)));
    requireForm(stored === 'f16', Boolean, 'halves');
    requireCounts('halves', length - 2 * elementsOf(shape), 2 * elementsOf(shape) - length);
    device.queue.writeBuffer(places[at].buffer, places[at].address, given);
  }

  /** Of a tensor and its place in files: where it begins, and how long it is. @type {(at: number) => [number, number]} */
  const inFile = (at) => (memory ? [listed[at].offset, listed[at].bytes] : [places[at].from, wholeOf(listed[at])]);
  let [first, next, waiting] = [0, 0, 0];
  /** Of a tensor that is narrower in files: what arrived of it. @type {{bytes: Uint8Array, filled: number} | null} */
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
    // What the browser holds for the device must not grow with the model.
    device.queue.submit([]);
    await device.queue.onSubmittedWorkDone();
    waiting = 0;
  }
  // Where all tensors are empty there is no shard.
  while (next < listed.length && !inFile(next)[1]) next++;
  requireCounts('tensors', next - listed.length);
}

/** Makes f32 of tensors that are narrower in files, and copies others; keeps what scales those to come. @type {(listed: T.StoredTensor[]) => Promise<T.Widened>} */
async function f32Of(listed) {
  const { widening } = await import('./widening.js');
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
      const one = n < own.length ? { ...listed[own[n]], stored: '', scale: null, zero: null } : tensor;
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
