// Tensors at the engine's API: checks a caller's inputs against the manifest, and copies them to and from memory; states (values that a
// model keeps between runs, such as a KV cache): read, write, reset.
// Input: tensors, places in memory.  Output: typed arrays, a plan's index, or an `input` error with the tensor and the fix.  Memory changes
// only between runs.

import { EngineError } from './errors.js';
import { reach } from './memory_growth.js';

/** Conversions of f16 and bf16, once `useHalves` has loaded them. @type {typeof import('./float16.js')} */
let halves;

/** @param {string} dtype @returns {dtype is T.Half} */
export const isHalf = (dtype) => /^b?f16$/.test(dtype);

/** @type {T.UseHalves} */
export async function useHalves({ inputs, outputs, states }) {
  if ([inputs, outputs, states].flat().some(({ dtype }) => isHalf(dtype))) halves = await import('./float16.js');
}

/** @type {T.Kinds} */
const KINDS = {
  f32: { array: Float32Array, also: ['Float16Array'] },
  f64: { array: Float64Array, also: ['Float16Array', 'Float32Array'] },
  i8: { array: Int8Array, range: [-128, 127] },
  u8: { array: Uint8Array, also: ['Uint8ClampedArray'], range: [0, 255] },
  i16: { array: Int16Array, range: [-(2 ** 15), 2 ** 15 - 1] },
  i32: { array: Int32Array, range: [-(2 ** 31), 2 ** 31 - 1] },
  i64: { array: BigInt64Array, also: ['Int32Array', 'Uint32Array'], range: [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER] },
  bool: { array: Uint8Array, range: [0, 1] },
  // f16 is given as bits in browsers without Float16Array; bf16 always is.
  get f16() { return { array: /** @type {any} */ (globalThis).Float16Array ?? Uint16Array, also: ['Float16Array', 'Uint16Array', 'Float32Array'] }; },
  bf16: { array: Uint16Array, also: ['Float32Array'] },
};

/** A property of the object itself, not an inherited one such as `constructor`. @type {T.OwnOf} */
export const ownOf = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined);

/** True for types of inputs, outputs and states. @param {string} dtype */
export const isDeclared = (dtype) => Object.hasOwn(KINDS, dtype);

/** True for types of tensors in memory. @param {string} dtype */
export const isDtype = (dtype) => isDeclared(dtype) && !isHalf(dtype);

/** The type in memory of a declared type: f32 for f16 and bf16. @param {T.Declared} dtype @returns {T.DType} */
export const inMemory = (dtype) => (isHalf(dtype) ? 'f32' : dtype);

/** @param {T.Declared} dtype */
export const arrayOf = (dtype) => KINDS[dtype].array;

/** @param {number[]} shape */
export const elementsOf = (shape) => shape.reduce((product, size) => product * size, 1);

/** @type {T.RequireKnown} */
export function requireKnown(name, infos, kind, of = 'The model') {
  const found = infos.find((info) => info.name === name);
  if (found) return found;
  const known = infos.map((info) => info.name);
  const weights = kind === 'input' ? '; what the model file has a value for is a weight, which runs cannot change' : '';
  throw new EngineError('input', `${of} has no ${kind} '${name}'`, `Its ${kind}s are ${known.join(', ') || 'none'}${weights}`, { [kind]: name, known });
}

/** Throws if an unknown option is given; `known`: the names, separated by commas. @type {T.RequireOptions} */
export function requireOptions(of, options, known) {
  for (const option in options) requireKnown(option, known.split(', ').map((name) => ({ name })), 'option', of);
}

/** @type {T.CheckInputs} */
export function checkInputs({ inputs: infos, dims }, inputs) {
  Object.keys(inputs ?? {}).forEach((name) => requireKnown(name, infos, 'input'));
  /** Without a prototype, since dimensions may have any name. @type {T.Sizes} */
  const sizes = Object.create(null);
  const tensors = infos.map((info) => {
    const input = ownOf(inputs ?? {}, info.name);
    if (input === undefined || input === null) {
      throw inputError(info, 'is missing', `Give ${describe(info)}`, { expected: describe(info) });
    }
    const boxed = typeof input === 'object' && 'data' in input;
    const data = convert(info, boxed ? input.data : /** @type {T.InputData} */ (input));
    const shape = boxed && input.shape ? [...input.shape] : inferShape(info, data.length);
    checkShape(info, shape, data.length, sizes, dims);
    return { shape, data };
  });
  return { tensors, sizes };
}

/** @type {T.CheckOutputs} */
export function checkOutputs(infos, places, sizes, into) {
  Object.keys(into).forEach((name) => requireKnown(name, infos, 'output'));
  return places.map(({ name, shape: padded }, at) => {
    const { dtype } = infos[at];
    const shape = padded.map((size, axis) => sizes[infos[at].shape[axis]] ?? size);
    const data = ownOf(into, name);
    const expected = `${arrayOf(dtype).name} of ${elementsOf(shape)} elements`;
    if (data === undefined || (data instanceof arrayOf(dtype) && data.length === elementsOf(shape))) return { name, dtype, shape, data };
    const found = `${typeName(data)} of ${data?.length ?? 'no'} elements`;
    throw inputError(infos[at], `has the wrong array: expected ${expected}, found ${found}`, 'Give what runs return', { expected, found }, 'Output');
  });
}

/** @param {unknown} value */
const typeName = (value) => Object.prototype.toString.call(value).slice(8, -1);

/** @type {T.Convert} */
export function convert(info, given, kind) {
  // A frame (frames.js), or an output of the last run (webgpu.js).
  if (given?.pixels || given?.from) return given;
  const { dtype } = info, { array, also = [], range } = KINDS[dtype];
  const found = typeName(given);
  const plain = found === 'Array';
  const takes = [...new Set([array.name, ...also, 'Array'])];
  if (!takes.includes(found)) {
    throw inputError(info, `has the wrong type: expected ${dtype}, found ${found}`,
      `Give ${takes.join(' or ')}`, { expected: dtype, found }, kind);
  }
  const index = plain || dtype === 'bool' ? given.findIndex((/** @type {unknown} */ value) => !fits(value, dtype, range)) : -1;
  if (index >= 0) {
    const expected = range ? `an integer from ${range[0]} to ${range[1]}` : 'a number';
    throw inputError(info, `has the wrong element ${index}: expected ${expected}, found ${String(given[index])}`, 'Convert it', { index, dtype }, kind);
  }
  if (isHalf(dtype)) return halves.numbersOf(dtype, given);
  if (dtype === 'i64' && found !== 'BigInt64Array') return BigInt64Array.from(Array.from(given, BigInt));
  return plain ? array.from(given) : given;
}

/** @type {T.Fits} */
function fits(value, dtype, range) {
  if (!range) return typeof value === 'number';
  if (typeof value === 'boolean') return dtype === 'bool';
  // A bigint that changes when truncated to 64 bits is too large.
  if (typeof value === 'bigint') return dtype === 'i64' && BigInt.asIntN(64, value) === value;
  return Number.isInteger(value) && Number(value) >= range[0] && Number(value) <= range[1];
}

/** @type {T.InferShape} */
function inferShape(info, elements) {
  const known = info.shape.filter((entry) => typeof entry === 'number');
  if (known.length < info.shape.length - 1) {
    throw inputError(info, `has several open dimensions: ${describe(info)}`, 'Give {data, shape}', { elements });
  }
  return info.shape.map((entry) => (typeof entry === 'number' ? entry : elements / elementsOf(known)));
}

/** @type {T.CheckShape} */
function checkShape(info, shape, elements, sizes, dims) {
  const fail = (/** @type {string} */ what) => inputError(info, `${what}: expected ${describe(info)}, found [${shape.join(', ')}] with ${elements} elements`,
    'Give what the shape says, row by row', { expected: info.shape, found: shape, elements });
  if (shape.length !== info.shape.length) throw fail('has the wrong rank');
  info.shape.forEach((entry, axis) => {
    const size = shape[axis];
    if (size === entry) return;
    if (typeof entry === 'number' || !(Number.isInteger(size) && size >= 0)) throw fail('has the wrong size');
    if (!size && dims[entry][0]) throw fail(`is empty in dimension ${entry}`);
    const there = sizes[entry] ??= size;
    if (there !== size) throw fail(`disagrees with another input on dimension ${entry} (there ${there}, here ${size})`);
  });
  if (elementsOf(shape) !== elements) throw fail('has the wrong size');
}

/** @param {T.TensorInfo} info */
const describe = (info) => `${info.dtype} [${info.shape.join(', ')}]`;

/** @type {T.InputError} */
const inputError = ({ name }, problem, hint, facts, kind = 'Input') => new EngineError('input', `${kind} '${name}' ${problem}`, hint, { [kind.toLowerCase()]: name, ...facts });

/** @type {T.PickPlan} */
export function pickPlan(plans, sizes) {
  const index = plans.findIndex(({ dims }) => Object.entries(sizes).every(([name, size]) => size <= dims[name]));
  if (index >= 0) return index;
  const largest = /** @type {{dims: T.Sizes}} */ (plans.at(-1)).dims;
  const show = (/** @type {T.Sizes} */ dims) => Object.entries(dims).map(([name, size]) => `${name}=${size}`).join(', ');
  throw new EngineError('input', `No bucket of the bundle fits ${show(sizes)}: the largest is ${show(largest)}`,
    'Shorten the input, or build a larger bucket', { sizes, largest });
}

/** @type {T.SizesOf} */
export const sizesOf = ({ dims, extents }, sizes) => extents.map((name) => ownOf(sizes ?? {}, name) ?? dims[name]);

/** @type {T.ZerosOf} */
export const zerosOf = ({ dtype, shape }) => new (arrayOf(dtype))(elementsOf(shape));

/** @type {T.InputArray} */
export function inputArray(buffer, places, name) {
  const place = requireKnown(name, places, 'input');
  return buffer ? regionOf(buffer, place) : zerosOf(place);
}

/** @type {T.RegionOf} */
export const regionOf = (buffer, { dtype, shape, address }) => new (arrayOf(dtype))(buffer, address, elementsOf(shape));

/** A copy of the tensor that owns its buffer; empty if the array was detached. @param {T.Tensor} tensor */
export const copied = ({ data, shape }) => ({ data: data.length ? data.slice?.() ?? data : new data.constructor(), shape });

/** @type {T.WriteInputs} */
export function writeInputs(buffer, places, tensors) {
  // Arrays that overlap this memory are copied first, unless they are the input's own place: writing other inputs may overwrite them.
  const given = tensors.map((tensor, at) => {
    const { buffer: from, byteOffset, byteLength } = tensor.data;
    return from === buffer && (byteOffset !== places[at].address || byteLength !== places[at].bytes) ? copied(tensor) : tensor;
  });
  places.forEach((place, at) => {
    const region = regionOf(buffer, place);
    const { data, shape } = given[at] ?? { data: [], shape: [] };
    const whole = data.length === elementsOf(shape);
    if (whole && data.length === region.length) return data.buffer === buffer || region.set(data);
    region.fill(place.dtype === 'i64' ? 0n : 0);
    if (whole) copyBox(region, place.shape, data, shape, shape);
  });
}

/** @type {T.ReadOutputs} */
export const readOutputs = (buffer, places, wanted) => wanted.map(({ data, ...output }, at) => {
  const { dtype, shape } = output;
  const array = data ?? zerosOf(output);
  const whole = isHalf(dtype) ? new Float32Array(array.length) : array;
  copyBox(whole, shape, regionOf(buffer, places[at]), places[at].shape, shape);
  return { ...output, data: asDeclared(dtype, whole, array) };
});

/** Numbers from memory in the declared type. @type {T.AsDeclared} */
const asDeclared = (dtype, whole, array) => (isHalf(dtype) ? halves.fill(dtype, array ?? new (arrayOf(dtype))(whole.length), whole) : whole);

/** @type {T.CopyBox} */
export function copyBox(to, toShape, from, fromShape, box) {
  const [inner, toInner, fromInner] = [box, toShape, fromShape].map((shape) => shape.slice(1));
  if (inner.every((length, axis) => length === toInner[axis] && length === fromInner[axis])) {
    return to.set(from.subarray(0, elementsOf(box)));
  }
  const [toStep, fromStep] = [toInner, fromInner].map(elementsOf);
  for (let row = 0; row < box[0] && toStep; row++) copyBox(to.subarray(row * toStep), toInner, from.subarray(row * fromStep), fromInner, inner);
}

/** Reads a state in WebAssembly's memory, or writes `data` to it. @type {T.Exchanged} */
export const exchanged = async (memory, work) => (work.place.growth
  ? (await import('./state_blocks.js')).exchangedBlocks(memory, work, { part: exchangedPart, reach, arrayOf, elementsOf }) : exchangedPart(memory.buffer, work.place, work.data));

/** @type {T.ExchangedPart} */
async function exchangedPart(buffer, place, data) {
  if (place.compact) return (await import('./float16.js')).exchangedHalves(new Uint16Array(buffer, place.address, place.bytes / 2), data);
  const region = regionOf(buffer, place);
  if (!data) return region.slice();
  region.set(data);
  return null;
}

/** @type {T.MakeStates} */
export function makeStates(places, enqueue, link, live) {
  /** @type {(place: T.Placed, data?: any) => Promise<any>} */
  const ask = async (place, data) => {
    live();
    return enqueue(async () => (link.memory ? exchanged(link.memory, { place, data }) : link.request('state', { place, data })));
  };
  return {
    names: places.map(({ name }) => name),
    async read(name) {
      const place = requireKnown(name, places, 'state');
      return asDeclared(place.declared, await ask(place));
    },
    async write(name, data) {
      const place = requireKnown(name, places, 'state');
      // A copy: the write may have to wait, and the caller's array may change.
      const array = arrayOf(place.dtype).from(convert({ ...place, dtype: place.declared }, data, 'State'));
      const [expected, found] = [elementsOf(place.shape), array.length];
      if (found !== expected) throw inputError(place, `has the wrong size: expected ${expected} elements, found ${found}`, 'Give what the shape says, row by row', { expected, found }, 'State');
      await ask(place, array);
    },
    async reset() {
      await Promise.all(places.map((place) => ask(place, zerosOf(place))));
    },
  };
}
