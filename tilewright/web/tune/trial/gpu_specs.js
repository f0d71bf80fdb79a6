// Reads the facts of a kernel specification for a trial on WebGPU from the bundle's files, as specs.js does for WebAssembly.
// Input: the list of kernels, the steps of the section `wgsl`.  Output: `SpecFacts`.  Schedules are not considered.

import { requireCounts, sectionOf } from '../../engine/bundle.js';
import { SECTION, WORD, wordsOf } from '../../engine/gpu_device.js';
import { isAlone, joinedStepsOf, lacking, numberAt, resolved } from '../../engine/gpu_plan.js';
import { elementsOf, sizesOf } from '../../engine/tensors.js';
import { readKernels } from '../records/kernels.js';
import { described, gathered, hasFloats } from './specs.js';

const TARGET = 'wgsl';
/** Words of a canary and of a buffer's alignment, in bytes. */
const ROOM = 512;
/** Elements of a vector in memory: kernels that load vectors need aligned buffers. */
const LANES = 4;

/** Reads a bundle once, for all its kernels. @type {Tune.OpenSpecs} */
export async function openSpecs(engine) {
  const { manifest, program: { plans, memory }, file } = engine.parts;
  const { builds: [build], slots } = sectionOf(manifest, TARGET, SECTION);
  const lack = lacking(build, slots, engine.info.adapter?.features ?? []);
  const listed = readKernels(await file(manifest.kernels));
  for (const { steps } of plans) for (const { spec } of steps) requireCounts('steps', spec, listed.length - 1 - spec);
  const calls = await Promise.all(build.plans.map(async (/** @type {T.FileRef} */ ref) => resolved(JSON.parse(new TextDecoder().decode(await file(ref))), lack)));

  const joined = calls.map(joinedStepsOf);

  /** A step of the specification, preferably one that runs its usual kernel in the model's own buffer. @param {number} spec */
  function stepOf(spec) {
    const all = plans.flatMap(({ steps }, plan) => steps.flatMap((step, number) => (step.spec === spec ? [{ plan, step, call: calls[plan][number] }] : [])));
    const own = all.filter(({ call }) => isAlone(call));
    return own.find(({ call }) => call.words.every((/** @type {number} */ word) => word % LANES === 0)) ?? own[0] ?? all[0];
  }

  /** The steps that a run computes together with this one. @param {number} plan @param {number} step */
  const joinOf = (plan, step) => joined[plan].find(({ first, last }) => first <= step && step < last);

  return {
    facts(spec) {
      const { plan, step, call } = stepOf(spec);
      const [tiles, ...scalars] = [call.tiles, ...call.scalars].map((number) => numberAt(number, sizesOf(plans[plan])));
      // WGSL guarantees nothing about NaN and infinities.
      return { ...described(listed[spec].spec), special: false, spec, scalars, slot: call.slot, tiles, group: call.group, flops: step.flops };
    },

    resultOf(plan, step) {
      const { spec: data } = listed[plans[plan].steps[step].spec];
      const [dtype, size] = data.buffers[0];
      // Rounded up to whole words, as on the device.
      const told = dtype === 'f32' || dtype === 'i64' ? dtype : 'i32';
      const [from, bytes] = [WORD * calls[plan][step].words[0], WORD * wordsOf(dtype, size)];
      requireCounts('plan', from, memory.bytes - from - bytes);
      return { place: [from, bytes], dtype: told, rounds: hasFloats(data) };
    },

    bytesOf: (spec) => listed[spec].spec.buffers.reduce((/** @type {number} */ sum, /** @type {[T.DType, number]} */ [dtype, size]) => (
      sum + WORD * wordsOf(dtype, elementsOf([size])) + ROOM), ROOM),
    gathers: (spec) => gathered(listed[spec].spec).size > 0,
    joined: (spec) => plans.some(({ steps }, plan) => steps.some((step, number) => step.spec === spec && joinOf(plan, number))),
    firstOf: (plan, step) => joinOf(plan, step)?.first ?? step,
    // No candidates are made for kernels that use other buffers.
    exchangeable(spec) {
      const own = plans.flatMap(({ steps }, plan) => steps.flatMap((step, number) => (step.spec === spec ? [calls[plan][number]] : [])));
      return own.some(isAlone) && !own.some(({ annexes }) => annexes);
    },
    code: () => file(build.code),
  };
}
