// Reads a trial's facts about a kernel specification from the bundle's files.
// Input: the list of kernels, plan images, the model's memory if shared.  Output: `SpecFacts`: buffers and how to fill them, scalars, slot
// and tiles of the bundle's own kernel.  Schedules are not considered.

import { ARGS, HEADER, RECORD, SLOT, TILES } from '../../engine/abi.js';
import { requireCounts } from '../../engine/bundle.js';
import { EngineError } from '../../engine/errors.js';
import { BYTES, readKernels } from '../records/kernels.js';
import { isFloat } from './trial_inputs.js';

/** Kernels with more bytes of buffers are not tried: the device may lack memory for copies. */
export const MOST_BYTES = 512 * 2 ** 20;
/** Reductions that propagate a NaN in any order of evaluation. */
const CLEAR = ['sum', 'prod'];
/** The layout of packed integers: kernels may move their zero points out of a sum, where inf - inf is NaN (targets/simd/quantised_gemm.py). */
const BLOCKS = 'blocks';
/** A buffer that a kernel multiplies by at least this much (integers; floats) is a mask: `(1 - mask) * -3.4e38` is infinite unless it is 0 or 1. */
const MASKING = { integer: 1e4, float: 1e30 };

/** Functions that change a number's magnitude little. */
const STRAIGHT = ['add', 'sub', 'neg', 'cast'];

/** Reads a bundle once, for all its kernels. @type {Tune.OpenSpecs} */
export async function openSpecs(engine) {
  const { manifest, program, memory, file } = engine.parts;
  const build = program.builds.find(({ variant }) => variant === engine.info.variant.name);
  if (!build) throw new EngineError('host', 'The manifest has no code of the variant in use', 'Load the bundle again');
  const [kernels, ...images] = await Promise.all([manifest.kernels, ...build.plans].map(file));
  const listed = readKernels(kernels);
  for (const { steps } of program.plans) for (const { spec } of steps) requireCounts('steps', spec, listed.length - 1 - spec);
  const words = images.map((image) => new Uint32Array(image));

  /** @type {Tune.OpenedSpecs['facts']} */
  function facts(spec) {
    const plan = program.plans.findIndex(({ steps }) => steps.some((step) => step.spec === spec));
    const { spec: data } = listed[spec];
    const { address, steps } = program.plans[plan];
    const number = steps.findIndex((step) => step.spec === spec);
    const record = (/** @type {number} */ step) => words[plan].subarray(HEADER + RECORD * step);
    const at = (/** @type {number} */ step) => (step < steps.length ? (record(step)[ARGS] - address) / 4 : words[plan].length);
    const block = [...words[plan].subarray(at(number), at(number + 1))];
    const { buffers: given, ...rest } = described(data);
    const weights = [program.memory.weights, program.memory.weights + (manifest.weights.memory || manifest.weights.bytes)];
    const buffers = given.map((buffer, place) => {
      const { bytes } = buffer;
      const constant = place > 0 && block[place] >= weights[0] && block[place] + bytes <= weights[1];
      return { ...buffer, real: memory && constant ? new Uint8Array(memory.buffer, block[place], bytes) : null };
    });
    return {
      spec, buffers, scalars: block.slice(buffers.length),
      slot: record(number)[SLOT], tiles: record(number)[TILES],
      ...rest, flops: steps[number].flops,
    };
  }

  /** @type {Tune.OpenedSpecs['resultOf']} */
  function resultOf(plan, step) {
    const { address, steps } = program.plans[plan];
    const { spec: data } = listed[steps[step].spec];
    const [dtype, size] = data.buffers[0];
    const args = words[plan][HEADER + RECORD * step + ARGS];
    const [from, bytes] = [words[plan][(args - address) / 4], size * BYTES[dtype]];
    requireCounts('image', from, program.memory.bytes - from - bytes);
    return { place: [from, bytes], dtype, rounds: hasFloats(data) };
  }

  return {
    facts,
    resultOf,
    bytesOf: (spec) => listed[spec].spec.buffers.reduce((/** @type {number} */ sum, /** @type {[string, number]} */ [dtype, size]) => sum + size * BYTES[dtype] + 1024, 0),
    gathers: (spec) => gathered(listed[spec].spec).size > 0,
    joined: () => false,
    exchangeable: () => true,
    firstOf: (_, step) => step,
    code: () => file(build.code),
  };
}

/** The facts about buffers and results in a specification. @type {Tune.Described} */
export function described(data) {
  const extents = gathered(data);
  const masks = masksOf(data);
  const floats = hasFloats(data);
  const buffers = data.buffers.map((/** @type {[string, number, number, any, boolean?]} */ [dtype, size, limit, [layout], halves = false], /** @type {number} */ place) => (
    { dtype, size, bytes: size * BYTES[dtype], limit, halves: halves === true, packed: layout === BLOCKS && BYTES[dtype] === 1, extent: extents.get(place) ?? (masks.has(place) ? 2 : 0), real: null }));
  const regrouped = data.buffers.some((/** @type {[string, number, number, any[]]} */ [, , , [layout]]) => layout === BLOCKS);
  const clear = data.stages.every((/** @type {string[]} */ [op, , , kept]) => CLEAR.includes(op) && !kept.length) && !data.cols && !regrouped;
  return { buffers, rounds: floats, special: floats && clear && !extents.size };
}

/** @param {{buffers: [string][]}} data */
export const hasFloats = ({ buffers }) => buffers.some(([dtype]) => isFloat(dtype));

/** By number of an index buffer, the bound of its elements: the extent of the smallest table they index. @type {Tune.Gathered} */
export function gathered(data, extent = 0, found = new Map()) {
  if (Array.isArray(data)) {
    // Terms of an index are [coefficient, 'gather', value, extent]; loads are ['load', dtype, buffer, index].
    if (data[1] === 'gather') return gathered(data[2], data[3], found);
    if (data[0] === 'load' && extent) found.set(data[2], Math.min(extent, found.get(data[2]) ?? Infinity));
  }
  if (data && typeof data === 'object') Object.values(data).forEach((part) => gathered(part, extent, found));
  return found;
}

/** Numbers of the buffers that a kernel multiplies by a very large constant: masks.  With other values a check would compare NaN with NaN. @type {Tune.MasksOf} */
function masksOf(data, factor = 1, found = new Set()) {
  if (Array.isArray(data)) {
    const [kind, dtype, what, more] = data;
    if (kind === 'load' && factor >= (isFloat(dtype) ? MASKING.float : MASKING.integer)) found.add(what);
    // The file may be damaged.
    if (kind === 'call' && what === 'mul' && isFloat(dtype) && Array.isArray(more)) {
      const sizes = more.map((part) => (part?.[0] === 'const' ? Math.abs(Number(part[2])) : 1));
      return masksOf(more, factor * Math.max(...sizes), found);
    }
    // A value chosen by a condition, or computed by another function, is not a factor of the product.
    if (kind === 'call' && !STRAIGHT.includes(what)) factor = 1;
  }
  if (data && typeof data === 'object') Object.values(data).forEach((part) => masksOf(part, factor, found));
  return found;
}
