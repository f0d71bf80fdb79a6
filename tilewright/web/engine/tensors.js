// Tensors at the engine's border: what a caller gives becomes exactly what the manifest promises.
// Input: named arrays and the model's input list.  Output: fresh row-major copies, sizes of the named
// dimensions, padded or cropped boxes, or an EngineError `input` that names the tensor and the fix.

import { EngineError } from './errors.js';

/**
 * @typedef {import('./types.js').DType} DType
 * @typedef {import('./types.js').TensorInfo} TensorInfo
 * @typedef {import('./types.js').Sizes} Sizes
 * @typedef {Float32Array<ArrayBuffer> | Float64Array<ArrayBuffer> | Int8Array<ArrayBuffer>
 *   | Uint8Array<ArrayBuffer> | Int32Array<ArrayBuffer> | BigInt64Array<ArrayBuffer>} TensorData
 * @typedef {ArrayLike<number> | ArrayLike<bigint> | ArrayLike<boolean>} InputData
 * @typedef {InputData | {data: InputData, shape: number[]}} Input
 * @typedef {{name: string, dtype: DType, shape: number[], data: TensorData}} Tensor
 */

/**
 * Per dtype: its array type, the array types that are taken as they are, and the range of numbers
 * that a conversion may meet.
 * @type {Record<DType, {size: number, array: any, takes: string[], range: [number, number] | null}>}
 */
const KINDS = {
  f32: { size: 4, array: Float32Array, takes: ['Float32Array'], range: null },
  f64: { size: 8, array: Float64Array, takes: ['Float64Array', 'Float32Array'], range: null },
  i8: { size: 1, array: Int8Array, takes: ['Int8Array'], range: [-128, 127] },
  u8: { size: 1, array: Uint8Array, takes: ['Uint8Array', 'Uint8ClampedArray'], range: [0, 255] },
  i32: { size: 4, array: Int32Array, takes: ['Int32Array'], range: [-(2 ** 31), 2 ** 31 - 1] },
  i64: {
    size: 8, array: BigInt64Array, takes: ['BigInt64Array', 'Int32Array', 'Uint32Array'],
    range: [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
  },
  bool: { size: 1, array: Uint8Array, takes: ['Uint8Array'], range: [0, 1] },
};

/** @param {DType} dtype */
export const sizeOf = (dtype) => KINDS[dtype].size;

/**
 * @param {DType} dtype
 * @param {ArrayBuffer} buffer
 * @returns {TensorData}
 */
export const viewOf = (dtype, buffer) => new KINDS[dtype].array(buffer);

/** @param {number[]} shape */
export const elementsOf = (shape) => shape.reduce((product, size) => product * size, 1);

/**
 * Checks and copies all inputs of a run.
 * @param {TensorInfo[]} infos
 * @param {Record<string, Input>} inputs
 * @returns {{tensors: Tensor[], sizes: Sizes}}
 */
export function checkInputs(infos, inputs) {
  const known = infos.map((info) => info.name);
  for (const name of Object.keys(inputs ?? {})) {
    if (!known.includes(name)) {
      throw inputError(name, `The model has no input '${name}'`, `Its inputs are ${known.join(', ')}`, { known });
    }
  }
  /** @type {Sizes} */
  const sizes = {};
  const tensors = infos.map((info) => {
    const input = inputs?.[info.name];
    if (input === undefined || input === null) {
      throw inputError(info.name, `Input '${info.name}' is missing`, `Give ${describe(info)}`, { expected: describe(info) });
    }
    const boxed = typeof input === 'object' && 'data' in input;
    const given = boxed ? input.data : /** @type {InputData} */ (input);
    const data = convert(info, given);
    const shape = boxed && input.shape ? [...input.shape] : inferShape(info, data.length);
    checkShape(info, shape, data.length, sizes);
    return { name: info.name, dtype: info.dtype, shape, data };
  });
  return { tensors, sizes };
}

/**
 * @param {TensorInfo} info
 * @param {InputData} given
 * @returns {TensorData} a copy: the caller may change its own array at once
 */
function convert(info, given) {
  const kind = KINDS[info.dtype];
  const found = Object.prototype.toString.call(given).slice(8, -1);
  if (found !== 'Array' && !kind.takes.includes(found)) {
    throw inputError(info.name, `Input '${info.name}' has the wrong type: expected ${info.dtype}, found ${found}`,
      `Give ${[...kind.takes, 'a plain array'].join(' or ')}`, { expected: info.dtype, found });
  }
  const values = /** @type {ArrayLike<any>} */ (given);
  if (kind.range && (found === 'Array' || info.dtype === 'bool')) {
    for (let at = 0; at < values.length; at++) checkInteger(info, kind.range, values[at], at);
  } else if (found === 'Array') {
    const at = Array.from(values).findIndex((value) => typeof value !== 'number');
    if (at >= 0) throw badElement(info, values[at], at, 'a number');
  }
  if (info.dtype === 'i64' && found !== 'BigInt64Array') return BigInt64Array.from(Array.from(values, BigInt));
  return kind.array.from(values);
}

/**
 * @param {TensorInfo} info
 * @param {[number, number]} range
 * @param {unknown} value
 * @param {number} at
 */
function checkInteger(info, [low, high], value, at) {
  if (typeof value === 'boolean' && info.dtype === 'bool') return;
  // A bigint that does not survive the trip through 64 bits is too large; others are exact.
  if (typeof value === 'bigint' && info.dtype === 'i64' && BigInt.asIntN(64, value) === value) return;
  if (typeof value === 'number' && Number.isInteger(value) && value >= low && value <= high) return;
  throw badElement(info, value, at, `an integer from ${low} to ${high}`);
}

/**
 * @param {TensorInfo} info
 * @param {unknown} value
 * @param {number} at
 * @param {string} expected
 */
function badElement(info, value, at, expected) {
  return inputError(
    info.name,
    `Element ${at} of input '${info.name}' does not fit ${info.dtype}: expected ${expected}, found ${String(value)}`,
    'Convert the values before the run',
    { index: at, dtype: info.dtype },
  );
}

/**
 * Without a given shape, one unknown dimension can be worked out from the number of elements.
 * @param {TensorInfo} info
 * @param {number} elements
 * @returns {number[]}
 */
function inferShape(info, elements) {
  const known = info.shape.filter((entry) => typeof entry === 'number');
  if (known.length < info.shape.length - 1) {
    throw inputError(
      info.name,
      `The shape of input '${info.name}' is open in several dimensions: ${describe(info)}`,
      'Give {data, shape} instead of the bare array',
      { elements },
    );
  }
  return info.shape.map((entry) => (typeof entry === 'number' ? entry : elements / elementsOf(known)));
}

/**
 * @param {TensorInfo} info
 * @param {number[]} shape
 * @param {number} elements
 * @param {Sizes} sizes named dimensions seen so far; completed here
 */
function checkShape(info, shape, elements, sizes) {
  const fail = (/** @type {string} */ what) => inputError(
    info.name,
    `Input '${info.name}' ${what}: expected ${describe(info)}, found [${shape.join(', ')}] with ${elements} elements`,
    'Give as many elements as the shape says, in row-major order',
    { expected: info.shape, found: shape, elements },
  );
  if (shape.length !== info.shape.length) throw fail('has the wrong rank');
  info.shape.forEach((entry, axis) => {
    const size = shape[axis];
    if (!Number.isInteger(size) || size < 0) throw fail('has the wrong size');
    if (typeof entry === 'number') {
      if (size !== entry) throw fail('has the wrong size');
      return;
    }
    if (size === 0) throw fail(`is empty in dimension ${entry}`);
    if (sizes[entry] !== undefined && sizes[entry] !== size) {
      throw fail(`disagrees with another input on dimension ${entry} (there ${sizes[entry]}, here ${size})`);
    }
    sizes[entry] = size;
  });
  if (elementsOf(shape) !== elements) throw fail('has the wrong size');
}

/** @param {TensorInfo} info */
const describe = (info) => `${info.dtype} [${info.shape.join(', ')}]`;

/**
 * @param {string} input
 * @param {string} message
 * @param {string} hint
 * @param {Record<string, unknown>} facts
 */
const inputError = (input, message, hint, facts) => new EngineError('input', message, hint, { input, ...facts });

/**
 * The smallest plan that holds these sizes; plans are ordered, smallest first.
 * @param {{dims: Sizes}[]} plans
 * @param {Sizes} sizes
 * @returns {number} index of the plan
 */
export function pickPlan(plans, sizes) {
  const wanted = Object.entries(sizes);
  const index = plans.findIndex(({ dims }) => wanted.every(([name, size]) => size <= dims[name]));
  if (index >= 0) return index;
  const largest = plans[plans.length - 1].dims;
  const show = (/** @type {Sizes} */ dims) => Object.entries(dims).map(([name, size]) => `${name}=${size}`).join(', ');
  throw new EngineError(
    'input',
    `No bucket of the bundle fits ${show(sizes)}: the largest is ${show(largest)}`,
    'Shorten the input, or build the bundle with a larger bucket',
    { sizes, largest },
  );
}

/**
 * Copies the box [0, box) from one row-major array to another, byte-wise.
 * @param {Uint8Array} to
 * @param {number[]} toShape
 * @param {Uint8Array} from
 * @param {number[]} fromShape
 * @param {number[]} box
 * @param {number} size bytes per element
 */
export function copyBox(to, toShape, from, fromShape, box, size) {
  const inner = box.slice(1);
  const toInner = toShape.slice(1);
  const fromInner = fromShape.slice(1);
  if (inner.every((length, axis) => length === toInner[axis] && length === fromInner[axis])) {
    to.set(from.subarray(0, elementsOf(box) * size));
    return;
  }
  const toStep = elementsOf(toInner) * size;
  const fromStep = elementsOf(fromInner) * size;
  for (let row = 0; row < box[0]; row++) {
    copyBox(to.subarray(row * toStep), toInner, from.subarray(row * fromStep), fromInner, inner, size);
  }
}
