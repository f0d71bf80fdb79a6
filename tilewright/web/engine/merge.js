// Merges changes of kernels into the list of those in use, for changes.js and gpu_changes.js.
// Input: the kernels in use, changes, what a device asks of a kernel.  Output: the new list; or an `input` error.  It swaps nothing.

import { EngineError } from './errors.js';

/** @type {T.Merged} */
export function merged(plans, kernels, changes, kernelOf) {
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
export const isCount = (value, least, most) => Number.isInteger(value) && value >= least && value <= most;
