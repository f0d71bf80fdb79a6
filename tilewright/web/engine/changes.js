// The page's side of a kernel swap; exchange.js is the worker's.  Only pages that tune load this file.
// Input: the tuned kernels in use, and changes.  Output: the new list, once all workers run it: with new plan images on WebAssembly, with
// new pipelines on WebGPU.

import { BEFORE, GRAIN, HEADER, RECORD, SLOT, TICKETS, TILES, WIDEST } from './abi.js';
import { EngineError } from './errors.js';

/** The new list; throws `input` for an invalid change. `kernelOf`: checks a kernel for the device. @type {T.Merged} */
function merged(plans, kernels, changes, kernelOf) {
  const next = new Map(kernels.map((kernel) => [kernel.spec, kernel]));
  for (const change of changes) {
    const { spec, module } = change;
    const refuse = (/** @type {string} */ problem, /** @type {string} */ hint, facts = {}) => {
      throw new EngineError('input', `The kernel for specification ${spec} ${problem}`, hint, { spec, ...facts });
    };
    if (!plans.some(({ steps }) => steps.some((step) => step.spec === spec))) refuse('belongs to no step of the bundle', 'Use the spec number of a step in a plan');
    if (module === null) next.delete(spec);
    else next.set(spec, kernelOf({ tiles: 0, grains: {}, scratch: 0, ...change, module }, refuse));
  }
  return [...next.values()];
}

/** @type {T.IsCount} */
const isCount = (value, least, most) => Number.isInteger(value) && value >= least && value <= most;

/** The most tiles of a kernel on WebAssembly, and invocations of one on WebGPU. */
const [MOST_TILES, MOST_INVOCATIONS] = [2 ** 31 - 1, 2 ** 32 - 1];
/** The allowed imports of a kernel's module, and its export, as reflection lists them. */
const IMPORTS = ['env.memory memory', 'env.table table', 'env.scratch global'];
const EXPORTS = 'k0 function';

/** @type {T.ImagesOf} */
const imagesOf = (link, { plans, builds }, variant) => Promise.all(plans.map(async ({ steps }, plan) => {
  const build = /** @type {T.Build} */ (builds.find((other) => other.variant === variant));
  return new Uint32Array(await link.request('file', build.plans[plan]), 0, HEADER + RECORD * (steps.length + 1));
}));

/** @type {T.Swapped} */
export const swapped = (link, program, info, ...kernels) => (info.adapter ? swappedOnGpu : swappedOnWasm)(link, program, info, ...kernels);

/** @type {T.Swapped} */
async function swappedOnWasm(link, program, { variant: { name: variant } }, kernels, changes) {
  const next = merged(program.plans, kernels, changes, kernelFor(program.memory.scratch_bytes));
  link.images ??= imagesOf(link, program, variant);
  link.images.catch(() => delete link.images);
  const images = (await link.images).map((words, plan) => drawn(words, program.plans[plan], plan, program.slots, next));
  await link.request('swap', { kernels: next, images });
  return next;
}

/** @type {T.Swapped} */
async function swappedOnGpu(link, { plans }, { adapter }, kernels, changes) {
  const { factsOf, objectionTo } = await import('./gpu_vet.js');
  const next = merged(plans, kernels, changes, (kernel, refuse) => {
    const { module, tiles } = kernel;
    if (typeof module !== 'string') return refuse('is not a text', 'Its module must be WGSL');
    if (!isCount(tiles, 1, MOST_INVOCATIONS)) refuse(`has ${tiles} invocations`, 'Give their number, an integer from 1 on', { tiles });
    const objection = objectionTo(new TextEncoder().encode(module), tiles, adapter?.features);
    if (objection) refuse(`is not one of Tilewright's: ${objection}`, 'Use a kernel of this compiler');
    return { ...kernel, ...factsOf(module) };
  });
  await link.request('swap', { kernels: next });
  return next;
}

/**
 * A plan image that uses the given kernels.  Example, a step of a swapped specification:
 * before: slot 2, 96 tiles in 48 tickets
 * after:  slot `slots` + index in `kernels`, the kernel's own tiles and tickets; the ticket offset BEFORE of all later steps changes
 * accordingly
 * @type {T.Drawn}
 */
export function drawn(original, { steps }, plan, slots, kernels) {
  const words = original.slice();
  let before = 0;
  let widest = 0;
  for (const [number, { spec }] of steps.entries()) {
    const record = words.subarray(HEADER + RECORD * number);
    const place = kernels.findIndex((kernel) => kernel.spec === spec);
    if (place >= 0) {
      const { tiles, grains } = kernels[place];
      // A serial step keeps its one ticket: other steps may be chained to it.
      const grain = record[TICKETS] > 1 ? grains[plan] : 0;
      if (grain === undefined) {
        throw new EngineError('input', `The kernel for specification ${spec} has no number of tiles per ticket for plan ${plan}`,
          'Give one for every plan that uses it', { spec, plan });
      }
      record[SLOT] = slots + place;
      record[TILES] = tiles;
      record[GRAIN] = Math.min(grain || tiles, tiles);
      record[TICKETS] = Math.ceil(tiles / record[GRAIN]);
    }
    record[BEFORE] = before;
    before += record[TICKETS];
    widest = Math.max(widest, record[TICKETS]);
  }
  words[WIDEST] = widest;
  words[HEADER + RECORD * steps.length + BEFORE] = before;
  return words;
}

/** Checks and completes a kernel's module. @type {(scratchBytes: number) => T.KernelOf} */
const kernelFor = (most) => (kernel, refuse) => {
  const { module, tiles, grains, scratch } = kernel;
  if (!(module instanceof WebAssembly.Module)) return refuse('is not a module', 'Compile it first');
  const exported = WebAssembly.Module.exports(module).map(({ name, kind }) => `${name} ${kind}`).join();
  const known = WebAssembly.Module.imports(module).every(({ module: from, name, kind }) => IMPORTS.includes(`${from}.${name} ${kind}`));
  if (exported !== EXPORTS || !known) refuse('is not a tile kernel', 'Its module must export k0 alone and import only memory, table and scratch from env');
  if (!isCount(tiles, 1, MOST_TILES)) refuse(`has ${tiles} tiles`, 'Give its number of tiles, an integer from 1 on', { tiles });
  if (!isCount(scratch, 0, most)) {
    refuse(`needs ${scratch} bytes of scratch memory`, 'Use a kernel that needs at most what the bundle reserves', { scratch, limit: most });
  }
  if (!Object.values(grains).every((grain) => isCount(grain, 0, MOST_TILES))) refuse('has a wrong number of tiles per ticket', 'Give an integer per plan; 0 for one ticket', { grains });
  return kernel;
};
